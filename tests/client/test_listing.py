"""The uids of a listing."""

from itertools import pairwise

from koordsched.client.listing import ListedUids


def test_uids():
    uids = ListedUids()
    for number in range(10_000):
        uids.add(f"uid-{number}")
        uids.add(f"uid-{number}")
    for number in range(0, 10_000, 3):
        uids.discard(f"uid-{number}")
    uids.discard("never seen")
    assert [number for number in range(10_000) if f"uid-{number}" not in uids] == list(range(0, 10_000, 3))


def test_they_are_forgotten_step_by_step():
    uids = ListedUids()
    names = [f"uid-{number}" for number in range(10_000)]
    for name in names:
        uids.add(name)
    left = [len(names)]
    for _ in uids.clear():
        left.append(sum(name in uids for name in names) if len(left) < 20 else left[-1])
    assert all(0 < before - after < 40 for before, after in pairwise(left[:20]))
    assert not any(name in uids for name in names)
    assert len(left) < 2000, "many at a time"
