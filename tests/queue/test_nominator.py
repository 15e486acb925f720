import pytest

from koordsched.queue.nominator import Nominator
from tests.queue.pods import Pod


def nominator(gone: tuple[str, ...] = ()) -> Nominator[Pod]:
    return Nominator(lambda pod: pod.name not in gone)


def names(pods: object) -> list[str]:
    return [pod.name for pod in pods]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("status", "info", "node"),
    [("", None, ""), ("n1", None, "n1"), ("n1", "n2", "n2"), ("", "n2", "n2"),
     ("n1", "", "")],
)  # fmt: skip
def test_add_uses_the_name_its_mode_says(status: str, info: str | None, node: str) -> None:
    nominations = nominator()
    nominations.add(Pod("p", nominated_node="n0"))
    nominations.add(Pod("p", nominated_node=status), info)
    assert nominations.node_of("uid-default-p") == node
    assert list(nominations.nodes_with_nominated()) == ([node] if node else [])
    assert len(nominations) == bool(node)


def test_pods_that_are_gone_or_assigned_are_not_nominated() -> None:
    nominations = nominator(gone=("p",))
    nominations.add(Pod("p"), "n1")
    assert not nominations.nodes_with_nominated()
    assert nominations.version == 0


@pytest.mark.parametrize(
    ("memory", "before", "after", "node"),
    [
        ("n1", "", "", "n1"),  # the nomination has not reached the status yet
        ("n1", "", "n2", "n2"),
        ("n1", "n1", "n2", "n2"),
        ("n1", "n1", "", ""),  # taken away by somebody
        ("", "", "n2", "n2"),
        ("", "", "", ""),
    ],
)
def test_update(memory: str, before: str, after: str, node: str) -> None:
    nominations = nominator()
    old, new = Pod("p", nominated_node=before), Pod("p", nominated_node=after, labels="new")
    nominations.add(old, memory)
    nominations.update(old, new)
    assert nominations.node_of(new.uid) == node
    if node:
        assert nominations.nominated_on(node)[0] is new


def test_pods_of_a_node_are_ordered_by_priority_then_arrival() -> None:
    nominations = nominator()
    for name, priority in (("a", 5), ("b", 1), ("c", 9), ("d", 5)):
        nominations.add(Pod(name, priority=priority), "n1")
    assert names(nominations.nominated_on("n1")) == ["c", "a", "d", "b"]
    assert names(nominations.nominated_on("n1", 5)) == ["c", "a", "d"]
    assert names(nominations.nominated_on("n1", 6)) == ["c"]
    assert names(nominations.nominated_on("n2")) == []


def test_core_case_28_only_nominated_pods_of_at_least_the_own_priority_count() -> None:
    nominations = nominator()
    nominations.add(Pod("A", priority=5), "n1")
    nominations.add(Pod("B", priority=1), "n1")
    assert names(nominations.nominated_on("n1", 3)) == ["A"]
    assert nominations.nodes_nominated_at_least(3) == ["n1"]


def test_nodes_by_priority_follow_the_nominations() -> None:
    nominations = nominator()
    nominations.add(Pod("a", priority=5), "n1")
    nominations.add(Pod("b", priority=5), "n1")
    nominations.add(Pod("c", priority=7), "n2")
    nominations.add(Pod("d", priority=-3), "n3")
    assert nominations.nodes_nominated_at_least(6) == ["n2"]
    assert sorted(nominations.nodes_nominated_at_least(5)) == ["n1", "n2"]
    assert sorted(nominations.nodes_nominated_at_least(-10)) == ["n1", "n2", "n3"]
    nominations.delete("uid-default-a")
    assert sorted(nominations.nodes_nominated_at_least(5)) == ["n1", "n2"]
    nominations.delete("uid-default-b")
    assert nominations.nodes_nominated_at_least(5) == ["n2"]
    nominations.add(Pod("c", priority=7), "n1")
    assert nominations.nodes_nominated_at_least(5) == ["n1"]


def test_version_grows_with_every_change_and_only_then() -> None:
    nominations = nominator()
    seen = [nominations.version]

    def changed() -> bool:
        seen.append(nominations.version)
        return seen[-1] > seen[-2]

    nominations.delete("uid-default-p")
    assert not changed()
    nominations.add(Pod("p"), "n1")
    assert changed()
    nominations.nominated_on("n1")
    nominations.update(Pod("q"), Pod("q"))
    assert not changed()
    nominations.delete("uid-default-p")
    assert changed()
    assert nominations.nominated_on("n1") == ()


def test_changes_are_told_by_node_until_there_are_too_many() -> None:
    nominations = nominator()
    seen = nominations.version
    nominations.add(Pod("a"), "n1")
    nominations.add(Pod("b"), "n2")
    assert nominations.changed_since(seen) == ["n1", "n2"]
    later = nominations.version
    assert nominations.changed_since(later) == []
    nominations.add(Pod("a"), "n3")
    assert nominations.changed_since(later) == ["n1", "n3"]
    nominations.delete("uid-default-b")
    assert nominations.changed_since(later) == ["n1", "n3", "n2"]
    for _ in range(5000):
        nominations.add(Pod("c"), "n4")
    assert nominations.changed_since(seen) is None
    assert nominations.changed_since(nominations.version - 2) == ["n4", "n4"]


def test_a_late_status_hides_what_was_decided_here_and_does_not_take_it_back() -> None:
    nominations = nominator()
    nominations.add(Pod("p"), "n1")
    nominations.update(Pod("p", nominated_node="n0"), Pod("p"))
    uid = Pod("p").uid
    assert (nominations.node_of(uid), nominations.is_promised(uid), nominations.unseen) == ("", True, [uid])
    nominations.update(Pod("p"), Pod("p", nominated_node="n1"))
    assert (nominations.node_of(uid), nominations.is_promised(uid), nominations.unseen) == ("n1", True, [])


@pytest.mark.parametrize("ends", ["decided", "deleted"])
def test_a_promise_ends_when_that_is_decided_or_with_its_pod(ends: str) -> None:
    nominations = nominator()
    nominations.add(Pod("p"), "n1")
    nominations.update(Pod("p", nominated_node="n0"), Pod("p"))
    uid = Pod("p").uid
    if ends == "decided":
        nominations.add(Pod("p"), "")
    else:
        nominations.delete(uid)
    assert not nominations.is_promised(uid)
    assert nominations.unseen == []


def test_one_that_its_status_alone_says_ends_with_that() -> None:
    nominations = nominator()
    nominations.add(Pod("p", nominated_node="n1"))
    uid = Pod("p").uid
    assert nominations.is_promised(uid)
    nominations.update(Pod("p", nominated_node="n1"), Pod("p"))
    assert not nominations.is_promised(uid)


def test_a_pod_that_is_not_pending_is_promised_nothing() -> None:
    nominations = nominator(gone=("p",))
    nominations.add(Pod("p"), "n1")
    assert not nominations.is_promised(Pod("p").uid)
