"""Acceptance cases of the core spec, section 7, as far as the queue decides them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from koordsched.cluster import events as ev
from koordsched.cluster.events import ActionType as A
from koordsched.cluster.events import ClusterEvent
from koordsched.queue.hints import HintRegistration, QueueingHint, Scope
from koordsched.queue.item import Place
from tests.queue.pods import Clock, Pod, Shape, make_queue, pop, reject, scheduling_gates

GATES_GONE = ClusterEvent(ev.UNSCHEDULABLE_POD, A.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)


@dataclass(frozen=True)
class Node:
    fits: bool = True


def fits(pod: Pod, old: Node | None, new: Node) -> QueueingHint:
    return QueueingHint.QUEUE if new.fits else QueueingHint.SKIP


#: As in kube-scheduler's hint table, for the plugins that the cases need.
HINTS: list[HintRegistration[Pod]] = [
    HintRegistration(
        "SchedulingGates", ClusterEvent(ev.POD, A.UPDATE_POD_SCHEDULING_GATES_ELIMINATED), scope=Scope.OWN_POD
    ),
    HintRegistration("NodeResourcesFit", ClusterEvent(ev.POD, A.DELETE), scope=Scope.SHAPE),
    HintRegistration(
        "NodeResourcesFit", ClusterEvent(ev.NODE, A.ADD | A.UPDATE_NODE_ALLOCATABLE), fits, scope=Scope.SHAPE
    ),
]


def test_core_case_17_idle_scheduler_retries_after_every_event_despite_backoff() -> None:
    clock = Clock(1000.0)
    queue = make_queue(HINTS, clock=clock)
    queued = reject(queue, Pod("p"), "NodeResourcesFit")
    attempts_before = queued.attempts
    for _ in range(12):
        clock.now += 0.37
        queue.timers.run()
        assert queue.pop() is None
        queue.move_all(ev.ASSIGNED_POD_DELETE, Pod("victim"))
        assert queued.place is Place.BACKOFF
        assert queue.pop() is queued
        queue.add_unschedulable_if_not_present(queued, {"NodeResourcesFit"})
    assert queued.attempts - attempts_before == 12
    assert queue.counters.incoming == {
        ("active", "UnschedulablePodAdd"): 1,
        ("unschedulable", "ScheduleAttemptFailure"): 13,
        ("backoff", "AssignedPodDelete"): 12,
        ("active", "PopFromBackoffQ"): 12,
    }


def test_core_case_18_errors_are_not_popped_early() -> None:
    clock = Clock(100.3)
    queue = make_queue(HINTS, clock=clock)
    queue.add(Pod("p"))
    queued = pop(queue)
    queue.done(queued.pod.uid)  # before PreBind; then the binding fails with an error
    assert queue.add_unschedulable_if_not_present(queued) is Place.ERROR_BACKOFF
    for now, popped in ((100.3, False), (101.9, False), (102.0, True)):
        clock.now = now
        assert queue.timers.next_deadline() == 102.0
        queue.timers.run()
        assert (queue.pop() is queued) is popped
    assert queue.counters.incoming["active", "BackoffComplete"] == 1


def test_core_case_19_gates() -> None:
    clock = Clock()
    queue = make_queue(HINTS, clock=clock, pre_enqueue={"SchedulingGates": scheduling_gates})
    two, one, none = (Pod("p", gates=gates) for gates in (("a", "b"), ("a",), ()))
    assert queue.add(two) is Place.GATED
    assert queue.pending() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 1}
    assert queue.counters.unschedulable == {("SchedulingGates", "default-scheduler"): 1}
    assert queue.pop() is None
    assert queue.update(two, one, [ev.UNSCHEDULABLE_POD_UPDATE]) is Place.GATED
    queued = queue.get("default/p")
    assert queued is not None
    assert queued.gating_reason == "waiting for scheduling gates: ['a', 'b']"
    assert queue.update(one, none, [GATES_GONE]) is Place.ACTIVE
    assert queue.counters.incoming == {
        ("unschedulable", "UnschedulablePodAdd"): 1,
        ("active", "UnschedulablePodUpdatePodSchedulingGatesEliminated"): 1,
    }
    assert pop(queue).pod is none
    assert queue.counters.unschedulable == {("SchedulingGates", "default-scheduler"): 0}
    assert queue.pending() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0}


def test_core_case_20_unschedulable_pods_are_flushed_after_five_minutes_gated_ones_never() -> None:
    clock = Clock(1000.0)  # looks for overdue pods at 1030, 1060, …
    queue = make_queue(HINTS, clock=clock, pre_enqueue={"SchedulingGates": scheduling_gates})
    queue.add(Pod("gated", gates=("a",)))
    clock.now = 1010.5
    queued = reject(queue, Pod("p"), "NodeResourcesFit")
    assert queue.timers.next_deadline() == 1330.0
    for now in (1040.0, 1300.0, 1310.4, 1329.9):
        clock.now = now
        queue.timers.run()
        assert queued.place is Place.UNSCHEDULABLE
    clock.now = 1330.0
    queue.timers.run()
    assert queued.place is Place.ACTIVE
    assert queued.flushed
    assert queue.counters.incoming["active", "UnschedulableTimeout"] == 1
    assert queue.timers.next_deadline() is None
    clock.now = 1610.0
    queue.timers.run()
    assert queue.pending()["gated"] == 1
    assert queue.pop() is queued
    assert queue.pop() is None


def test_core_case_21_an_unregistered_event_moves_and_records_nothing() -> None:
    queue = make_queue(HINTS)
    queue.add(Pod("flying"))
    flying = pop(queue)
    queued = reject(queue, Pod("p"), "NodeResourcesFit")
    condition = ClusterEvent(ev.NODE, A.UPDATE_NODE_CONDITION)
    assert condition.label == "NodeUpdateNodeCondition"
    assert queue.move_all(condition, Node(), Node()) == 0
    assert queued.place is Place.UNSCHEDULABLE
    assert queue.in_flight_events() == {"PodPopped": 1}
    assert flying.place is Place.IN_FLIGHT


def test_core_case_22_taint_changes_wake_pods_of_plugins_that_wait_for_new_nodes() -> None:
    taint = ClusterEvent(ev.NODE, A.UPDATE_NODE_TAINT)

    def tolerates(pod: Pod, old: Any, new: Any) -> QueueingHint:
        return QueueingHint.SKIP

    hints = [
        *HINTS,
        HintRegistration("TaintToleration", ClusterEvent(ev.NODE, A.ADD | A.UPDATE_NODE_TAINT), tolerates),
    ]
    queue = make_queue(hints)
    resources = reject(queue, Pod("resources"), "NodeResourcesFit")
    taints = reject(queue, Pod("taints"), "TaintToleration")
    assert queue.move_all(taint, Node(fits=False), Node(fits=False)) == 1
    assert resources.place is Place.BACKOFF
    assert taints.place is Place.UNSCHEDULABLE


def test_core_case_29_foreign_pods_are_never_queued() -> None:
    queue = make_queue(HINTS)
    foreign = Pod("p", shape=Shape("my-scheduler"))
    assert queue.add(foreign) is Place.NOWHERE
    assert queue.update(foreign, foreign, [ev.UNSCHEDULABLE_POD_UPDATE]) is Place.NOWHERE
    queue.activate([foreign])
    assert len(queue) == 0
    assert queue.pop() is None
    assert queue.counters.incoming == {}


def test_core_case_29_an_update_without_change_events_wakes_no_pod() -> None:
    queue = make_queue(HINTS)
    queued = reject(queue, Pod("p"), "NodeResourcesFit")
    assert queue.update(queued.pod, Pod("p"), []) is Place.UNSCHEDULABLE
