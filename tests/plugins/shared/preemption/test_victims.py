"""Who may go, in arrays: the order of pods, also of those that start when it is looked at, and what is read anew."""

import numpy as np
import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.state import ClusterState
from koordsched.plugins.shared.preemption.candidates import NOT_STARTED, Candidate, best_of, by_importance, verdicts_of
from koordsched.plugins.shared.preemption.victims import _KINDS_SPARE, VictimTable
from tests.plugins.objects import container, node, pod

NOON = 1_900_000_000.0
"""2030-03-17T17:46:40Z."""
PAST, SOON, LATER = "2030-03-17T17:00:00Z", "2030-03-17T17:46:50Z", "2030-03-17T18:00:00Z"


def cluster_of(*starts, priority=0):
    """One node with a pod per start time, called a, b, ...; None for one that has not started."""
    cluster = ClusterState()
    cluster.upsert_node(convert(node("n"), core.Node))
    for name, start in zip("abcdefg", starts, strict=False):
        made = pod(name, container(cpu="1"), on="n", priority=priority)
        if start is not None:
            made["status"]["startTime"] = start
        made["metadata"]["uid"] = name
        cluster.set_pod(cluster.pods.build(convert(made, core.Pod)))
    return cluster


@pytest.mark.parametrize(
    ("starts", "at", "order", "lasting"),
    [
        ((None, PAST), NOON, "ba", True),
        ((None, PAST, None), NOON, "bac", True),
        ((LATER, None, PAST), NOON, "cba", False),
        ((SOON, None), NOON, "ba", False),
        ((SOON, None), NOON + 60, "ab", True),
    ],
)
def test_pods_that_have_not_started_count_as_starting_now(starts, at, order, lasting):
    cluster = cluster_of(*starts)
    table = VictimTable(cluster)
    pods = table.pods(0, 10, at)
    assert "".join(victim.name for victim in pods) == order
    assert pods == by_importance(cluster.pods_on(0).values(), at)
    assert table.lasting(np.array([0])).tolist() == [lasting]


def test_an_order_that_changes_with_time_is_found_anew():
    table = VictimTable(cluster_of(SOON, None))
    assert [victim.name for victim in table.pods(0, 10, NOON)] == ["b", "a"]
    assert [victim.name for victim in table.pods(0, 10, NOON + 60)] == ["a", "b"]


def test_rows_follow_their_pods():
    cluster = cluster_of(PAST, None)
    table = VictimTable(cluster)
    rows = np.array([0])
    assert table.counts(rows, 10, NOON).tolist() == [2]
    assert table.counts(rows, 0, NOON).tolist() == [0]
    cluster.remove_pod("a")
    assert [victim.name for victim in table.pods(0, 10, NOON)] == ["b"]
    for number in range(20):
        cluster.upsert_node(convert(node(f"n{number}"), core.Node))
    made = pod("z", container(cpu="1"), on="n19", priority=5)
    cluster.set_pod(cluster.pods.build(convert(made, core.Pod)))
    potential = table.potential(np.arange(21), 10, NOON)
    assert potential.counts.tolist() == [1] + [0] * 19 + [1]
    assert (potential.kinds > 0).sum() == 2
    assert potential.starts[0].tolist()[0] == NOT_STARTED


def test_a_pod_that_comes_is_no_victim_of_less_important_ones():
    cluster = cluster_of(PAST)
    table = VictimTable(cluster)
    rows = np.array([0])
    assert table.counts(rows, 10, NOON).tolist() == [1]
    important = pod("important", container(cpu="1"), on="n", priority=20)
    cluster.set_pod(cluster.pods.build(convert(important, core.Pod)))
    assert table.counts(rows, 10, NOON).tolist() == [1]
    assert [victim.name for victim in table.pods(0, 10, NOON)] == ["a"]
    cluster.remove_pod("uid-default-important")
    assert [victim.name for victim in table.pods(0, 10, NOON)] == ["a"]


@pytest.mark.parametrize(("start", "best"), [(PAST, 1), (SOON, 0), (LATER, 0)])
def test_the_victim_that_started_last_is_the_best(start, best):
    """One that has not started counts as starting now, which is before those of the future."""
    victims = [cluster_of(each).assigned["a"] for each in (start, None)]
    verdicts = verdicts_of([Candidate(row, (victim,), 0) for row, victim in enumerate(victims)])
    assert best_of(verdicts, NOON) == best


def test_of_several_victims_one_that_has_not_started_counts_as_now_beside_starts_in_the_future():
    """The row whose longest running victim started last: later than the one that counts as now."""
    waiting, ahead = cluster_of(None, LATER), cluster_of(SOON, LATER)
    crews = [tuple(VictimTable(cluster).pods(0, 10, NOON)) for cluster in (waiting, ahead)]
    verdicts = verdicts_of([Candidate(row, potential, 0) for row, potential in enumerate(crews)])
    assert best_of(verdicts, NOON) == 1
    assert best_of(verdicts, NOON + 60) == 0


def test_a_confirmed_pod_is_its_newest_version():
    cluster = ClusterState()
    cluster.upsert_node(convert(node("n"), core.Node))
    pending = cluster.pods.build(convert(pod("p", container(cpu="1")), core.Pod))
    cluster.assume(pending, 0)
    table = VictimTable(cluster)
    assert table.pods(0, 10, NOON) == [pending]
    assert all(example is None or example.wire is None for example in table.kinds.examples)
    bound = cluster.pods.build(convert(pod("p", container(cpu="1"), on="n"), core.Pod))
    cluster.set_pod(bound)
    assert table.pods(0, 10, NOON) == [bound]


def test_kinds_of_pods_that_are_gone_are_forgotten():
    """Pods with labels of their own, such as those of StatefulSets and Jobs, are kinds of their own."""
    cluster = cluster_of(PAST)
    table = VictimTable(cluster)
    rows = np.array([0])
    most = 0
    for number in range(_KINDS_SPARE + 50):
        made = pod(f"p{number}", container(cpu="1"), on="n", labels={"index": str(number)})
        known = cluster.pods.build(convert(made, core.Pod))
        cluster.set_pod(known)
        potential = table.potential(rows, 10, NOON)
        assert [table.kinds.examples[kind].name for kind in potential.kinds[:, 0]] == ["a", f"p{number}"]
        cluster.remove_pod(known.uid)
        most = max(most, len(table.kinds))
    assert most <= _KINDS_SPARE + 5
    assert len(table.kinds) < 100
