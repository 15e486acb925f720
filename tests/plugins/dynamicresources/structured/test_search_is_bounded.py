"""Searches that would take upstream for ever: they end, with what upstream would have found (L2)."""

from __future__ import annotations

from itertools import combinations, count
from random import Random

import numpy as np
import pytest

from koordsched.plugins.dynamicresources.structured import Deadline, Outcome, SearchExpired
from koordsched.plugins.dynamicresources.structured.matching import can_be_shared_out
from tests.plugins.dynamicresources.structured.world import (
    World,
    claim,
    counters,
    device,
    request,
    taking,
)


class Clock:
    """A step per look."""

    def __init__(self) -> None:
        self._steps = count()

    def __call__(self) -> float:
        return float(next(self._steps))


STEPS = 20_000
"""Looks at the clock that a search may take here; there is one per step."""


def limited() -> Deadline:
    """A deadline in steps."""
    return Deadline(Clock(), STEPS)


def test_more_devices_than_there_are_in_two_requests() -> None:
    world = World()
    world.slice("s", *(device(f"d{at:02}", {"index": at}) for at in range(31)))
    asked = claim(request("a", 20), request("b", 12, selector="device.attributes['drv'].index >= 10"))
    assert world.allocate(asked, deadline=limited()) is None
    world.slice("t", device("d99", {"index": 99}), pool="q")
    found = world.allocate(asked, deadline=limited())
    assert found is not None
    devices = [each.device for each in found.results[0].devices.results]
    assert devices[:20] == [f"d{at:02}" for at in range(20)]
    assert devices[20:] == [f"d{at:02}" for at in range(20, 31)] + ["d99"]


def test_requests_that_crowd_each_other_out() -> None:
    world = World()
    world.slice("s", *(device(f"d{at:02}", {"index": at}) for at in range(24)))
    of = "device.attributes['drv'].index < {}"
    asked = claim(*(request(f"r{at}", 5, selector=of.format(20 + at)) for at in range(5)))
    assert world.allocate(asked, deadline=limited()) is None


def test_devices_that_are_passed_over_do_not_end_the_care() -> None:
    world = World()
    world.lenient = True
    good = [device(f"d{at:02}", {"index": at}) for at in range(31)]
    world.slice("s", device("bad"), *good)
    of = "device.attributes['drv'].index >= {}"
    asked = claim(request("a", 20, selector=of.format(0)), request("b", 12, selector=of.format(10)))
    assert world.allocate(asked, deadline=limited()) is None


def test_no_value_that_enough_devices_have() -> None:
    world = World()
    world.slice("s", *(device(f"d{at:02}", {"k": at % 8, "u": at}) for at in range(64)))
    asked = claim(request("a", 5), request("b", 4), constraints=[{"matchAttribute": "drv/k"}])
    assert world.allocate(asked, deadline=limited()) is None


def test_more_partitions_than_the_cards_have_room_for() -> None:
    world = World()
    world.slice("c", sharedCounters=[each for card in range(8) for each in counters(7, f"card{card}")])
    devices = [taking(f"g{card}-{at}", 2, f"card{card}") for card in range(8) for at in range(7)]
    world.slice("s", *devices)
    assert world.got(request(number=24)) is not None
    assert world.allocate(request(number=25), deadline=limited()) is None


def test_admin_access_takes_no_counters_from_itself() -> None:
    """Each of the parts fits what is left of the card; that both together do not is no matter."""
    world = World()
    world.slice("counters", sharedCounters=counters(20))
    parts = [taking(name, 20, attributes={"k": {"int": 2}}) for name in ("x", "y")]
    world.slice("devices", device("d1", {"k": 1}), device("d2", {"k": 2}), *parts)
    of = "device.attributes['drv'].k == 2"
    asked = claim(
        request("a"),
        request("b", 2, selector=of, adminAccess=True),
        constraints=[{"matchAttribute": "drv/k"}],
    )
    assert world.got(asked) == ["a=d2", "b=x", "b=y"]


def test_a_search_that_takes_too_long_is_not_remembered() -> None:
    world = World()
    world.slice("s", "d0", "d1")
    demand = world.demand(request())
    rows = np.array([0, 1])
    assert list(world.allocator.verdicts(demand, rows, Deadline(Clock(), 0.5)).outcomes) == [Outcome.EXPIRED] * 2
    with pytest.raises(SearchExpired):
        world.allocator.allocate(demand, 0, Deadline(Clock(), 0.5))
    assert list(world.allocator.verdicts(demand, rows).outcomes) == [Outcome.FITS, Outcome.NONE]


@pytest.mark.parametrize(("began", "latest"), [(0, 10), (4, 14), (8, 15)])
def test_a_search_has_all_of_its_time_and_no_more_than_is_left_of_all(began: float, latest: float) -> None:
    now = iter((0, began, latest, latest + 0.5))
    deadline = Deadline(lambda: next(now), 10, total=15)
    deadline.start()
    assert [deadline.expired(), deadline.expired()] == [False, True]


def test_all_searches_of_a_call_together() -> None:
    world = World(nodes={f"n{at}": {} for at in range(50)})
    for at in range(50):
        world.slice(f"s{at}", *(f"d{index}" for index in range(at + 1)), pool=f"n{at}", nodeName=f"n{at}")
    demand = world.demand(request())
    outcomes = world.allocator.verdicts(demand, np.arange(50), Deadline(Clock(), 10, total=60)).outcomes
    assert 0 < (outcomes == Outcome.FITS).sum() < 50
    assert set(outcomes.tolist()) == {Outcome.FITS, Outcome.EXPIRED}


@pytest.mark.parametrize(
    ("needs", "possible"),
    [
        ([(1, 0b011), (1, 0b001)], True),
        ([(1, 0b011), (2, 0b011)], False),
        ([(1, 0b0110), (1, 0b0011), (1, 0b1100), (1, 0b1001)], True),
        ([(2, 0b0111), (2, 0b0111)], False),
        ([(2, 0b1111), (1, 0b0011), (1, 0b0011)], True),
        ([(1, 0b0011), (1, 0b0101), (2, 0b0111)], False),
    ],
)
def test_needs_that_can_be_shared_out(needs: list[tuple[int, int]], possible: bool) -> None:
    assert can_be_shared_out(needs, [1, 2, 4, 8]) is possible


def shared_out(needs: list[tuple[int, int]], left: int) -> bool:
    """The same by trying everything."""
    if not needs:
        return True
    (number, devices), *others = needs
    bits = [1 << at for at in range(8) if devices & left & 1 << at]
    return any(shared_out(others, left & ~sum(chosen)) for chosen in combinations(bits, number))


@pytest.mark.parametrize("seed", range(5))
def test_needs_are_shared_out_as_by_trying_everything(seed: int) -> None:
    rng = Random(seed)
    found = set()
    for _ in range(100):
        kinds = [0b11, 0b1100, 0b110000, 0b1000000, 0b10000000]
        sets = [rng.sample(kinds, rng.randint(1, 4)) for _ in range(rng.randint(2, 4))]
        needs = [(rng.randint(1, 3), sum(of)) for of in sets]
        possible = shared_out(needs, 0xFF)
        assert can_be_shared_out(needs, kinds) is possible
        assert can_be_shared_out(needs, [1 << at for at in range(8)]) is possible
        found.add(possible)
    assert found == {True, False}
