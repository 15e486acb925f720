"""`NominatedTo`: hints for pods that are nominated to the node of an event, whatever keeps them waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from koordsched.cluster import events as ev
from koordsched.cluster.events import ActionType as A
from koordsched.cluster.events import ClusterEvent
from koordsched.queue.hints import HintRegistration, HintTable, NominatedTo, QueueingHint, Scope
from koordsched.queue.item import Place
from koordsched.queue.queue import QueueProfile, SchedulingQueue
from tests.queue.pods import PROFILE, Clock, Pod, pop, priority_sort, reject

ROOM = ClusterEvent(ev.ASSIGNED_POD, A.DELETE)
NODE_COMES = ClusterEvent(ev.NODE, A.ADD)


class Gang:
    """A PreEnqueue plugin that keeps every pod out but one; `asked`: the pods for which its hint was asked."""

    def __init__(self, answer: QueueingHint = QueueingHint.QUEUE) -> None:
        self.answer = answer
        self.first = "a"
        self.asked: list[str] = []

    def pre_enqueue(self, pod: Pod) -> str | None:
        return None if pod.name == self.first else "another one goes"

    def hint(self, pod: Pod, old: Any, new: Any) -> QueueingHint:
        self.asked.append(pod.name)
        return self.answer


def made(
    gang: Gang, where: Callable[[Any, Any], str] = lambda old, new: str(old), awaited: ClusterEvent = NODE_COMES
) -> SchedulingQueue[Pod]:
    """`awaited`: what pods wait for that `Fit` refused."""
    hints: list[HintRegistration[Pod]] = [
        HintRegistration("Gang", ROOM, gang.hint, NominatedTo(where)),
        HintRegistration("Fit", awaited, scope=Scope.SHAPE),
    ]
    profile = QueueProfile(HintTable(hints), {"Gang": gang.pre_enqueue})
    return SchedulingQueue({PROFILE: profile}, clock=Clock(), sort_key=priority_sort, is_pending=lambda pod: True)


def test_a_pod_that_is_kept_out_is_woken_by_an_event_on_the_node_it_is_nominated_to() -> None:
    gang = Gang()
    queue = made(gang)
    pods = [Pod("b", nominated_node="n1"), Pod("c", nominated_node="n2"), Pod("d")]
    assert [queue.add(pod) for pod in pods] == [Place.GATED] * 3
    gang.first = "b"
    assert queue.move_all(ROOM, "n1") == 1
    assert gang.asked == ["b"]
    assert pop(queue).pod.name == "b"


def test_one_whose_plugin_sees_nothing_in_the_event_stays() -> None:
    gang = Gang(QueueingHint.SKIP)
    queue = made(gang)
    queue.add(Pod("b", nominated_node="n1"))
    gang.first = "b"
    assert queue.move_all(ROOM, "n1") == 0
    assert gang.asked == ["b"]


def test_one_that_is_still_kept_out_goes_on_waiting() -> None:
    queue = made(Gang())
    queue.add(Pod("b", nominated_node="n1"))
    assert queue.move_all(ROOM, "n1") == 1
    queued = queue.get("default/b")
    assert queued is not None
    assert queued.place is Place.GATED


def test_pods_that_the_plugin_did_not_refuse_are_not_asked() -> None:
    gang = Gang()
    queue = made(gang)
    reject(queue, Pod("a", nominated_node="n1"), "Fit")
    assert queue.move_all(ROOM, "n1") == 0
    assert gang.asked == []


def test_pods_that_are_to_be_tried_anyway_are_not_asked() -> None:
    gang = Gang()
    queue = made(gang)
    queue.add(Pod("a", nominated_node="n1"))
    assert queue.move_all(ROOM, "n1") == 0
    assert gang.asked == []


def test_pods_of_lower_priority_only_where_the_event_says_so() -> None:
    gang = Gang()
    queue = made(gang)
    queue.add(Pod("b", nominated_node="n1", priority=5))
    assert queue.move_all(ROOM, "n1", max_priority=4) == 0
    assert queue.move_all(ROOM, "n1", max_priority=5) == 1


def test_other_events_do_not_ask() -> None:
    gang = Gang()
    queue = made(gang)
    queue.add(Pod("b", nominated_node="n1"))
    queue.move_all(NODE_COMES, "n1")
    assert gang.asked == []


@pytest.mark.parametrize(("node", "place"), [("n1", Place.BACKOFF), ("n2", Place.UNSCHEDULABLE)])
def test_an_event_while_the_pod_is_tried_counts_when_it_comes_back(node: str, place: Place) -> None:
    queue = made(Gang())
    queue.add(Pod("a", nominated_node="n1"))
    queued = pop(queue)
    queue.move_all(ROOM, node)
    assert queue.add_unschedulable_if_not_present(queued, {"Gang"}) is place


def test_what_the_event_is_worth_to_another_plugin_is_not_made_less() -> None:
    queue = made(Gang(), awaited=ROOM)
    queue.add(Pod("a", nominated_node="n1"))
    queued = pop(queue)
    queue.move_all(ROOM, "n1")
    assert queue.add_unschedulable_if_not_present(queued, {"Gang"}, pending_plugins={"Fit"}) is Place.ACTIVE


def test_an_event_without_a_node_is_none_for_pods_without_a_nomination() -> None:
    queue = made(Gang(), where=lambda old, new: "")
    queue.add(Pod("a"))
    queued = pop(queue)
    queue.move_all(ROOM, "n1")
    assert queue.add_unschedulable_if_not_present(queued, {"Gang"}) is Place.UNSCHEDULABLE


@pytest.mark.failing_hints
def test_a_hint_that_fails_wakes_the_pod() -> None:
    gang = Gang()

    def broken(pod: Pod, old: Any, new: Any) -> QueueingHint:
        raise RuntimeError("broken")

    gang.hint = broken  # type: ignore[method-assign]
    queue = made(gang)
    queue.add(Pod("b", nominated_node="n1"))
    gang.first = "b"
    assert queue.move_all(ROOM, "n1") == 1


@pytest.mark.failing_hints
def test_an_event_whose_node_is_unknown_may_be_on_that_of_any_nominated_pod() -> None:
    def broken(old: Any, new: Any) -> str:
        raise RuntimeError("broken")

    gang = Gang()
    queue = made(gang, broken)
    for pod in (Pod("a", nominated_node="n1"), Pod("b", nominated_node="n2"), Pod("c")):
        queue.add(pod)
    queued = pop(queue)
    assert queue.move_all(ROOM, "n1") == 1
    assert gang.asked == ["b"]
    assert queue.add_unschedulable_if_not_present(queued, {"Gang"}) is Place.BACKOFF
