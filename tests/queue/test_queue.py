"""The rules of core spec 3.3, one by one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koordsched.cluster import events as ev
from koordsched.cluster.events import ActionType as A
from koordsched.cluster.events import ClusterEvent
from koordsched.queue.backoff import BackoffPolicy
from koordsched.queue.hints import ByKey, HintRegistration, QueueingHint, Scope
from koordsched.queue.item import Place, QueuedPod
from koordsched.queue.queue import SchedulingQueue
from tests.queue.pods import PROFILE, Clock, Pod, make_queue, pop, reject, scheduling_gates
from tests.steps import counted

FREED = ev.ASSIGNED_POD_DELETE
HINTS: list[HintRegistration[Pod]] = [
    HintRegistration("Fit", ClusterEvent(ev.POD, A.DELETE), scope=Scope.SHAPE),
    HintRegistration("Taints", ClusterEvent(ev.POD, A.UPDATE_POD_TOLERATION), scope=Scope.OWN_POD),
]
OWN_TOLERATION = ClusterEvent(ev.UNSCHEDULABLE_POD, A.UPDATE_POD_TOLERATION)
OWN_LABEL = ClusterEvent(ev.UNSCHEDULABLE_POD, A.UPDATE_POD_LABEL)


def order(queue: SchedulingQueue[Pod]) -> list[str]:
    return [queued.pod.name for queued in queue]


def test_active_pods_are_ordered_by_priority_then_time_then_arrival() -> None:
    clock = Clock()
    queue = make_queue(clock=clock)
    for name, priority, at in (("a", 0, 3), ("b", 5, 2), ("c", 0, 1), ("d", 5, 2), ("e", -1, 0)):
        clock.now = at
        queue.add(Pod(name, priority=priority))
    assert order(queue) == ["b", "d", "c", "a", "e"]
    assert [pop(queue).pod.name for _ in range(5)] == ["b", "d", "c", "a", "e"]
    assert queue.pop() is None
    assert queue.scheduling_cycle == 5


def test_popping_starts_an_attempt() -> None:
    clock = Clock(7.0)
    queue = make_queue(HINTS, clock=clock)
    queued = reject(queue, Pod("p"), "Fit", pending=["Waits"])
    assert (queued.attempts, queued.unschedulable_count, queued.initial_attempt_timestamp) == (1, 1, 7.0)
    assert queued.unschedulable_plugins == {"Fit", "Waits"}
    assert queued.pending_plugins == {"Waits"}
    clock.now = 9.5
    queue.move_all(FREED)
    assert queue.pop() is queued
    assert (queued.attempts, queued.place, queued.initial_attempt_timestamp) == (2, Place.IN_FLIGHT, 7.0)
    assert queued.unschedulable_plugins == queued.pending_plugins == frozenset()
    assert queue.in_flight_pods() == [queued.pod]


def test_the_first_attempt_of_a_pod_that_is_popped_out_of_turn() -> None:
    clock = Clock(7.0)
    queue = make_queue(HINTS, clock=clock, pre_enqueue={"Gates": scheduling_gates})
    tried = reject(queue, Pod("tried"), "Fit")
    gated = Pod("gated", gates=("g",))
    queue.add(gated)
    clock.now = 9.0
    assert [queued and queued.initial_attempt_timestamp for queued in map(queue.pop_pod, (tried.pod, gated))] == [7, 9]


def test_the_first_of_two_attempts_at_a_pod_ends_both() -> None:
    """A pod that changes after `done` comes anew, and is tried; then the first attempt turns out to have failed.

    When the pod is deleted meanwhile, what is left of the second must not come back.
    """
    queue = make_queue(HINTS)
    old = Pod("p")
    queue.add(old)
    first = pop(queue)
    queue.done(old.uid)
    queue.update(old, Pod("p", labels="new"))
    second = pop(queue)
    assert queue.add_unschedulable_if_not_present(first, {"Fit"}) is Place.UNSCHEDULABLE
    assert (second.place, queue.in_flight_pods()) == (Place.NOWHERE, [])


@pytest.mark.parametrize(
    ("outcomes", "unschedulable", "errors"),
    [("r", 1, 0), ("rr", 2, 0), ("e", 0, 1), ("ee", 0, 2), ("re", 1, 1), ("ree", 1, 2), ("reer", 2, 0)],
)
def test_rejections_and_errors_are_counted_apart(outcomes: str, unschedulable: int, errors: int) -> None:
    clock = Clock()
    queue = make_queue(HINTS, clock=clock)
    queue.add(Pod("p"))
    queued = pop(queue)
    for outcome in outcomes:
        queue.add_unschedulable_if_not_present(queued, {"Fit"} if outcome == "r" else set())
        clock.now += 60
        queue.timers.flush_backoff()
        queue.activate([queued.pod])
        assert queue.pop() is queued
    assert (queued.unschedulable_count, queued.consecutive_errors) == (unschedulable, errors)


def test_the_return_refreshes_the_timestamp() -> None:
    clock = Clock(5.0)
    queue = make_queue(HINTS, clock=clock)
    queue.add(Pod("p"))
    queued = pop(queue)
    clock.now = 8.0
    queue.add_unschedulable_if_not_present(queued, {"Fit"})
    assert queued.timestamp == 8.0


def test_an_error_without_backoff_is_active_at_once() -> None:
    queue = make_queue(HINTS, backoff=BackoffPolicy(1, 0))
    queue.add(Pod("p"))
    assert queue.add_unschedulable_if_not_present(pop(queue)) is Place.ACTIVE


@pytest.mark.parametrize(("elapsed", "place"), [(0.0, Place.BACKOFF), (1.9, Place.BACKOFF), (2.0, Place.ACTIVE)])
def test_a_woken_pod_backs_off_only_as_long_as_needed(elapsed: float, place: Place) -> None:
    clock = Clock(100.0)
    queue = make_queue(HINTS, clock=clock)
    queued = reject(queue, Pod("p"), "Fit")
    clock.now += elapsed
    queue.move_all(FREED)
    assert queued.place is place


def test_backoff_is_popped_early_by_expiry_then_order_only_when_nothing_is_active() -> None:
    clock = Clock(100.0)
    queue = make_queue(HINTS, clock=clock)
    for name, priority, at in (("late", 9, 101.0), ("low", 0, 100.1), ("high", 5, 100.2)):
        clock.now = at
        reject(queue, Pod(name, priority=priority), "Fit")
    queue.move_all(FREED)
    queue.add(Pod("new"))
    assert [pop(queue).pod.name for _ in range(4)] == ["new", "high", "low", "late"]


# --- in flight


@pytest.mark.parametrize(
    ("event", "place"),
    [(FREED, Place.BACKOFF), (ev.ASSIGNED_POD_ADD, Place.UNSCHEDULABLE), (ev.UNSCHEDULABLE_TIMEOUT, Place.BACKOFF)],
)
def test_events_while_in_flight_are_replayed(event: ClusterEvent, place: Place) -> None:
    queue = make_queue(HINTS)
    queue.add(Pod("p"))
    queued = pop(queue)
    queue.move_all(event)
    assert queue.add_unschedulable_if_not_present(queued, {"Fit"}) is place
    assert queue.in_flight_events() == {"PodPopped": 0}


def test_events_before_the_pop_are_not_replayed() -> None:
    queue = make_queue(HINTS)
    queue.add(Pod("other"))
    pop(queue)
    queue.move_all(FREED)
    assert reject(queue, Pod("p"), "Fit").place is Place.UNSCHEDULABLE


def test_a_replayed_event_of_a_finished_backoff_activates() -> None:
    queue = make_queue(HINTS, backoff=BackoffPolicy(1, 0))
    queue.add(Pod("p"))
    queued = pop(queue)
    queue.move_all(FREED)
    assert queue.add_unschedulable_if_not_present(queued, {"Fit"}) is Place.ACTIVE


def test_a_pod_that_was_done_before_it_failed_cannot_be_replayed_and_backs_off() -> None:
    queue = make_queue(HINTS)
    queue.add(Pod("p"))
    queued = pop(queue)
    queue.done(queued.pod.uid)
    assert queued.place is Place.NOWHERE
    assert queue.add_unschedulable_if_not_present(queued, {"Fit"}) is Place.BACKOFF


def test_done_is_idempotent() -> None:
    queue = make_queue(HINTS)
    queued = reject(queue, Pod("p"), "Fit")
    queue.done(queued.pod.uid)
    queue.done("unknown")
    assert queued.place is Place.UNSCHEDULABLE


@pytest.mark.parametrize(
    ("events", "place"),
    [([FREED], Place.BACKOFF), ([ev.NODE_ADD], Place.ACTIVE), ([FREED, ev.NODE_ADD], Place.ACTIVE),
     ([ev.NODE_ADD, FREED], Place.ACTIVE), ([ev.ASSIGNED_POD_ADD, FREED], Place.BACKOFF)],
)  # fmt: skip
def test_the_best_of_all_replayed_events_counts(events: list[ClusterEvent], place: Place) -> None:
    waits = HintRegistration[Pod]("Waits", ClusterEvent(ev.NODE, A.ADD), scope=Scope.SHAPE)
    queue = make_queue([*HINTS, waits])
    queue.add(Pod("p"))
    queued = pop(queue)
    for event in events:
        queue.move_all(event)
    assert queue.add_unschedulable_if_not_present(queued, {"Fit"}, {"Waits"}) is place


def test_own_changes_while_in_flight_are_replayed_to_that_pod_alone() -> None:
    queue = make_queue(HINTS)
    queue.add(Pod("a"))
    queue.add(Pod("b"))
    a, b = pop(queue), pop(queue)
    newer = Pod("a", labels="new")
    assert queue.update(a.pod, newer, [OWN_TOLERATION]) is Place.IN_FLIGHT
    assert a.pod is not newer
    assert queue.add_unschedulable_if_not_present(b, {"Taints"}) is Place.UNSCHEDULABLE
    assert queue.add_unschedulable_if_not_present(a, {"Taints"}) is Place.BACKOFF
    assert a.pod is newer


def test_the_caller_may_return_a_newer_version() -> None:
    queue = make_queue(HINTS)
    queue.add(Pod("p"))
    queued, newest = pop(queue), Pod("p", labels="newest")
    queue.update(queued.pod, Pod("p", labels="newer"))
    queue.add_unschedulable_if_not_present(queued, {"Fit"}, pod=newest)
    assert queued.pod is newest


def test_a_pod_that_was_gone_in_flight_and_is_there_again_comes_back() -> None:
    queue = make_queue()
    queue.add(Pod("p"))
    queued = pop(queue)
    queue.delete(queued.pod)
    again = Pod("p", uid=queued.pod.uid)
    assert queue.returns(again)
    queue.add_unschedulable_if_not_present(queued, {"Fit"}, ())
    assert [each.pod for each in queue] == [again]
    queue.delete(again)
    assert not queue.returns(again)


def test_a_pod_deleted_in_flight_does_not_come_back() -> None:
    queue = make_queue(HINTS)
    queue.add(Pod("p"))
    queued = pop(queue)
    queue.delete(queued.pod)
    assert queue.add_unschedulable_if_not_present(queued, {"Fit"}) is Place.NOWHERE
    assert len(queue) == 0
    assert queue.in_flight_pods() == []


def test_a_pod_seen_again_in_flight_is_not_queued_twice() -> None:
    queue = make_queue(HINTS)
    queue.add(Pod("p"))
    queued, relisted = pop(queue), Pod("p", labels="relisted")
    assert queue.add(relisted) is Place.IN_FLIGHT
    assert queue.pop() is None
    queue.add_unschedulable_if_not_present(queued, {"Fit"})
    assert queued.pod is relisted
    assert len(queue) == 1


def test_a_pod_that_is_queued_already_is_not_returned() -> None:
    queue = make_queue(HINTS)
    queue.add(Pod("p", uid="old"))
    old = pop(queue)
    assert queue.add(Pod("p", uid="new")) is Place.ACTIVE
    assert queue.add_unschedulable_if_not_present(old, {"Fit"}) is Place.NOWHERE
    assert [queued.pod.uid for queued in queue] == ["new"]
    assert queue.in_flight_pods() == []


@pytest.mark.parametrize("pending", [(), ("Waits",)], ids=["rejected", "waits for something of its own"])
def test_a_pod_rests_after_an_attempt_that_took_long_whatever_happens(pending: tuple[str, ...]) -> None:
    clock = Clock(100.0)
    hints = [*HINTS, HintRegistration[Pod]("Waits", ClusterEvent(ev.POD, A.DELETE), scope=Scope.SHAPE)]
    queue = make_queue(hints, clock=clock)
    queue.add(Pod("p"))
    queue.add_unschedulable_if_not_present(pop(queue), {"Fit"}, set(pending), rest=40.0)
    clock.now = 120.0
    queue.move_all(FREED)
    assert queue.pop() is None, "not popped early either"
    queue.timers.flush_backoff()
    assert queue.pop() is None
    clock.now = 141.0
    queue.timers.flush_backoff()
    queued = pop(queue)
    queue.add_unschedulable_if_not_present(queued, {"Fit"})
    clock.now = 145.0
    queue.move_all(FREED)
    assert pop(queue) is queued


# --- gating


class Held:
    """A PreEnqueue plugin that holds pods by name and remembers who asked."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)
        self.asked: list[str] = []

    def __call__(self, pod: Pod) -> str | None:
        self.asked.append(pod.name)
        return "held" if pod.name in self.names else None


GATED_HINTS: list[HintRegistration[Pod]] = [
    *HINTS,
    HintRegistration("G", ClusterEvent(ev.NODE, A.ADD), scope=Scope.SHAPE),
    HintRegistration("H", ClusterEvent(ev.NODE, A.ADD | A.DELETE), scope=Scope.SHAPE),
]


def test_gated_pods_wait_for_events_of_the_gating_plugin_only() -> None:
    g, h = Held("p"), Held()
    queue = make_queue(GATED_HINTS, pre_enqueue={"G": g, "H": h})
    assert queue.add(Pod("p")) is Place.GATED
    queue.move_all(ev.NODE_DELETE)
    queue.move_all(FREED)
    queue.move_all(ev.UNSCHEDULABLE_TIMEOUT)
    assert (g.asked, h.asked) == (["p"], [])
    queue.move_all(ev.NODE_ADD)
    assert g.asked == ["p", "p"]
    assert queue.pending()["gated"] == 1
    g.names.clear()
    queue.move_all(ev.NODE_ADD)
    assert queue.pending() == {"active": 1, "backoff": 0, "unschedulable": 0, "gated": 0}


def test_the_gating_plugin_is_asked_first() -> None:
    g, h = Held(), Held("p")
    queue = make_queue(GATED_HINTS, pre_enqueue={"G": g, "H": h})
    queue.add(Pod("p"))
    assert (g.asked, h.asked) == (["p"], ["p"])
    queue.move_all(ev.NODE_ADD)
    assert (g.asked, h.asked) == (["p"], ["p", "p"])
    g.names, h.names = {"p"}, set()
    queue.move_all(ev.NODE_ADD)
    assert (g.asked, h.asked) == (["p", "p"], ["p", "p", "p"])
    queued = queue.get("default/p")
    assert queued is not None
    assert queued.gating_plugin == "G"
    assert queue.counters.unschedulable == {("H", PROFILE): 1, ("G", PROFILE): 1}


def test_gating_applies_before_backoff_and_not_again_after_it() -> None:
    g = Held()
    clock = Clock()
    queue = make_queue(GATED_HINTS, clock=clock, pre_enqueue={"G": g})
    queued = reject(queue, Pod("p"), "Fit")
    g.names.add("p")
    queue.move_all(FREED)
    assert queued.place is Place.GATED
    g.names.clear()
    queue.move_all(ev.NODE_ADD)
    assert queued.place is Place.BACKOFF
    asked = len(g.asked)
    g.names.add("p")
    clock.now += 2
    queue.timers.run()
    assert queued.place is Place.ACTIVE
    assert len(g.asked) == asked


def gate_after_rejection(
    queue: SchedulingQueue[Pod], held: Held, pod: Pod, rejecting: str, waking: ClusterEvent, new: Any = None
) -> QueuedPod[Pod]:
    """A pod that was rejected, woken by an event, and then refused by the PreEnqueue plugin."""
    queued = reject(queue, pod, rejecting)
    held.names.add(pod.name)
    queue.move_all(waking, None, new)
    assert queued.place is Place.GATED
    return queued


def test_events_of_what_rejected_a_pod_do_not_count_while_it_is_gated() -> None:
    claim = ClusterEvent(ev.PERSISTENT_VOLUME_CLAIM, A.ADD)
    index: ByKey[Pod] = ByKey(lambda pod: pod.claims, lambda old, new: [new])
    held = Held()
    queue = make_queue([*GATED_HINTS, HintRegistration("Volumes", claim, None, index)], pre_enqueue={"G": held})
    fit = gate_after_rejection(queue, held, Pod("fit"), "Fit", FREED)
    volumes = gate_after_rejection(queue, held, Pod("volumes", claims=("c",)), "Volumes", claim, "c")
    held.asked.clear()
    queue.move_all(FREED)
    queue.move_all(claim, None, "c")
    assert held.asked == []
    assert fit.gated
    assert volumes.gated


def test_a_gated_equivalent_pod_does_not_hide_one_that_waits() -> None:
    held = Held()
    queue = make_queue(GATED_HINTS, pre_enqueue={"G": held})
    gate_after_rejection(queue, held, Pod("gated"), "Fit", FREED)
    waiting = reject(queue, Pod("waiting"), "Fit", "G")
    assert queue.move_all(FREED) == 1
    assert waiting.place is Place.BACKOFF


def test_pre_enqueue_asks_every_plugin_once() -> None:
    g, h = Held(), Held("p")
    queue = make_queue(GATED_HINTS, pre_enqueue={"G": g, "H": h})
    queue.add(Pod("p"))
    h.names.clear()
    queue.move_all(ev.NODE_ADD)
    assert queue.pending()["active"] == 1
    assert (g.asked, h.asked) == (["p", "p"], ["p", "p"])


def test_activation_out_of_backoff_does_not_ask_pre_enqueue_again() -> None:
    held = Held()
    queue = make_queue(GATED_HINTS, pre_enqueue={"G": held})
    queued = reject(queue, Pod("p"), "Fit")
    queue.move_all(FREED)
    held.names.add("p")
    queue.activate([queued.pod])
    assert queued.place is Place.ACTIVE


def test_a_failing_pod_may_be_gated_on_return() -> None:
    g = Held()
    queue = make_queue(GATED_HINTS, pre_enqueue={"G": g})
    queue.add(Pod("p"))
    queued = pop(queue)
    g.names.add("p")
    queue.move_all(FREED)
    assert queue.add_unschedulable_if_not_present(queued, {"Fit"}) is Place.GATED
    assert queue.counters.incoming["unschedulable", "ScheduleAttemptFailure"] == 1


def test_a_broken_pre_enqueue_plugin_gates() -> None:
    def broken(pod: Pod) -> str | None:
        raise RuntimeError("boom")

    queue = make_queue(GATED_HINTS, pre_enqueue={"G": broken})
    assert queue.add(Pod("p")) is Place.GATED
    queued = queue.get("default/p")
    assert queued is not None
    assert queued.gating_reason == "running PreEnqueue plugin 'G': boom"


# --- updates


@pytest.mark.parametrize(
    ("rejecting", "events", "place", "label"),
    [
        ("Taints", [OWN_TOLERATION], Place.BACKOFF, "UnschedulablePodUpdatePodToleration"),
        ("Taints", [OWN_LABEL, OWN_TOLERATION], Place.BACKOFF, "UnschedulablePodUpdatePodToleration"),
        ("Taints", [OWN_TOLERATION, OWN_TOLERATION], Place.BACKOFF, "UnschedulablePodUpdatePodToleration"),
        ("Taints", [OWN_LABEL], Place.UNSCHEDULABLE, None),
        ("Taints", [ev.UNSCHEDULABLE_POD_UPDATE], Place.UNSCHEDULABLE, None),
        ("Taints", [], Place.UNSCHEDULABLE, None),
        ("Fit", [OWN_TOLERATION], Place.UNSCHEDULABLE, None),
    ],
)
def test_update_of_an_unschedulable_pod(
    rejecting: str, events: list[ClusterEvent], place: Place, label: str | None
) -> None:
    queue = make_queue(HINTS)
    queued = reject(queue, Pod("p"), rejecting)
    before = dict(queue.counters.incoming)
    newer = Pod("p", labels="new")
    assert queue.update(queued.pod, newer, events) is place
    assert queued.pod is newer
    moved = {key: n for key, n in queue.counters.incoming.items() if n != before.get(key)}
    assert moved == ({("backoff", label): 1} if label else {})


def test_update_of_a_pod_in_backoff_or_active_changes_its_order_only() -> None:
    clock = Clock()
    queue = make_queue(HINTS, clock=clock)
    for name in ("a", "b", "c"):
        reject(queue, Pod(name), "Fit")
    queue.move_all(FREED)
    assert queue.update(Pod("c"), Pod("c", priority=9), [OWN_TOLERATION]) is Place.BACKOFF
    assert order(queue) == ["c", "a", "b"]
    clock.now += 5
    queue.timers.flush_backoff()
    before = dict(queue.counters.incoming)
    assert queue.update(Pod("b"), Pod("b", priority=10), [OWN_TOLERATION]) is Place.ACTIVE
    assert order(queue) == ["b", "c", "a"]
    assert queue.counters.incoming == before


def test_update_of_a_pod_in_error_backoff_keeps_it_there() -> None:
    queue = make_queue(HINTS)
    queue.add(Pod("p"))
    queued = pop(queue)
    queue.add_unschedulable_if_not_present(queued)
    assert queue.update(queued.pod, Pod("p", labels="new")) is Place.ERROR_BACKOFF
    assert queue.pop() is None


def test_update_of_an_unknown_pod_adds_it() -> None:
    queue = make_queue(HINTS)
    assert queue.update(None, Pod("p")) is Place.ACTIVE
    assert queue.counters.incoming == {("active", "UnschedulablePodUpdate"): 1}


def test_a_pod_of_the_same_name_replaces_its_predecessor() -> None:
    queue = make_queue(HINTS)
    reject(queue, Pod("p", uid="1", nominated_node="n1"), "Fit")
    assert queue.update(Pod("p", uid="1"), Pod("p", uid="2")) is Place.ACTIVE
    assert len(queue) == 1
    assert pop(queue).pod.uid == "2"
    assert not queue.nominator.nodes_with_nominated()
    assert queue.counters.unschedulable == {("Fit", PROFILE): 0}


def test_a_late_delete_of_the_predecessor_does_not_touch_the_successor() -> None:
    queue = make_queue(HINTS)
    queue.add(Pod("p", uid="2"))
    queue.delete(Pod("p", uid="1"))
    assert order(queue) == ["p"]


def test_a_new_version_is_grouped_by_its_new_shape() -> None:
    asked: list[str] = []

    def hint(pod: Pod, old: Any, new: Any) -> QueueingHint:
        asked.append(pod.labels)
        return QueueingHint.SKIP

    queue = make_queue([HintRegistration("P", ClusterEvent(ev.NODE, A.ADD), hint, Scope.SHAPE)])
    queued = reject(queue, Pod("p"), "P")
    queue.update(queued.pod, Pod("p", labels="new"), [OWN_LABEL])
    queue.move_all(ev.NODE_ADD)
    assert asked == ["new"]


# --- delete, activate, filters of move_all


@pytest.mark.parametrize("place", [Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF, Place.UNSCHEDULABLE, Place.GATED])
@pytest.mark.parametrize("operation", ["delete", "activate", "pop_pod"])
def test_pods_are_found_wherever_they_are(place: Place, operation: str) -> None:
    held = Held()
    queue = make_queue(GATED_HINTS, pre_enqueue={"G": held})
    pod = Pod("p", nominated_node="n1")
    if place is Place.GATED:
        held.names.add("p")
    queue.add(pod)
    if place not in (Place.ACTIVE, Place.GATED):
        queue.add_unschedulable_if_not_present(pop(queue), set() if place is Place.ERROR_BACKOFF else {"Fit"})
    if place is Place.BACKOFF:
        queue.move_all(FREED)
    held.names.clear()
    queued = queue.get(pod.key)
    assert queued is not None
    assert queued.place is place
    if operation == "delete":
        queue.delete(pod)
        assert queued.place is Place.NOWHERE
        assert queue.nominator.node_of(pod.uid) == ""
        assert sum(queue.pending().values()) == len(queue) == 0
        assert queue.move_all(FREED) == 0
    elif operation == "activate":
        before = queue.counters.incoming["active", "ForceActivate"]
        queue.activate([pod])
        if place is Place.ERROR_BACKOFF:
            assert queued.place is place, "an error is waited out"
            return
        assert queued.place is Place.ACTIVE
        assert queue.counters.incoming["active", "ForceActivate"] - before == (place is not Place.ACTIVE)
        assert queue.pop() is queued
    else:
        assert queue.pop_pod(pod) is queued
        assert queued.place is Place.IN_FLIGHT
        assert queue.nominator.node_of(pod.uid) == "n1"
        assert sum(queue.pending().values()) == len(queue) == 0
        assert queue.pop_pod(pod) is None
    assert not any(queue.counters.unschedulable.values()) or operation == "activate"


def test_a_pod_that_is_kept_out_after_an_error_backs_off_for_it_once_it_is_let_in() -> None:
    held, clock = Held(), Clock()
    queue = make_queue(GATED_HINTS, clock=clock, pre_enqueue={"G": held})
    queue.add(Pod("p"))
    queued = pop(queue)
    held.names.add("p")
    assert queue.add_unschedulable_if_not_present(queued) is Place.GATED
    assert queue.met_error(queued.pod)
    held.names.clear()
    queue.activate([queued.pod])
    assert queued.place is Place.ERROR_BACKOFF
    assert queue.pop() is None
    clock.now += 3.0
    queue.timers.run()
    assert queue.pop() is queued


def test_activation_does_not_overrule_pre_enqueue() -> None:
    held = Held("p")
    queue = make_queue(GATED_HINTS, pre_enqueue={"G": held})
    queue.add(Pod("p"))
    queue.activate([Pod("p")])
    assert queue.pending()["gated"] == 1
    assert queue.counters.incoming == {("unschedulable", "UnschedulablePodAdd"): 1}


@pytest.mark.parametrize("pending", [[], ["Fit"]])
def test_a_pod_activated_in_flight_is_retried_after_its_backoff(pending: list[str]) -> None:
    queue = make_queue(HINTS)
    queue.add(Pod("p"))
    queue.add(Pod("other"))
    queued, other = pop(queue), pop(queue)
    queue.activate([queued.pod, Pod("unknown")])
    assert queue.in_flight_events() == {"ForceActivate": 1, "PodPopped": 2}
    assert queue.add_unschedulable_if_not_present(other, {"Fit"}, set(pending)) is Place.UNSCHEDULABLE
    assert queue.add_unschedulable_if_not_present(queued, {"Fit"}, set(pending)) is Place.BACKOFF


@pytest.mark.parametrize(
    ("arguments", "woken"),
    [
        ({}, ["low", "mid", "high"]),
        ({"max_priority": 5}, ["low", "mid"]),
        ({"max_priority": -1}, []),
        ({"exclude_uid": "uid-default-mid"}, ["low", "high"]),
        ({"max_priority": 5, "exclude_uid": "uid-default-mid"}, ["low"]),
    ],
)
def test_events_may_be_limited_to_some_pods(arguments: dict[str, Any], woken: list[str]) -> None:
    queue = make_queue(HINTS)
    pods = [reject(queue, Pod(name, priority=p), "Fit") for name, p in (("low", 0), ("mid", 5), ("high", 9))]
    assert queue.move_all(FREED, **arguments) == len(woken)
    assert [queued.pod.name for queued in pods if queued.place is Place.BACKOFF] == woken


# --- nominations


def test_nominations_follow_the_pod() -> None:
    queue = make_queue(HINTS)
    queue.add(Pod("p", nominated_node="n1"))
    queue.update(Pod("p", nominated_node="n1"), Pod("p", nominated_node="n2"))
    assert list(queue.nominator.nodes_with_nominated()) == ["n2"]
    queued = pop(queue)
    queue.nominator.delete(queued.pod.uid)  # assumed
    assert not queue.nominator.nodes_with_nominated()
    queue.add_unschedulable_if_not_present(queued, {"Fit"})
    queue.nominator.add(queued.pod, "n3")
    queue.update(queued.pod, Pod("p", nominated_node="n3"))
    assert [pod.name for pod in queue.nominator.nominated_on("n3")] == ["p"]
    queue.delete(queued.pod)
    assert not queue.nominator.nodes_with_nominated()


def test_a_gated_pod_keeps_its_nomination_over_a_restart() -> None:
    queue = make_queue(GATED_HINTS, pre_enqueue={"G": Held("p")})
    queue.add(Pod("p", nominated_node="n1"))
    assert queue.nominator.node_of("uid-default-p") == "n1"


# --- time and waiting


def test_next_deadline_is_the_earliest_thing_to_do() -> None:
    clock = Clock(1000.25)
    queue = make_queue(HINTS, clock=clock)
    assert queue.timers.next_deadline() is None
    queue.add(Pod("active"))
    assert queue.timers.next_deadline() is None
    queued = pop(queue)
    clock.now = 1007.9
    queue.add_unschedulable_if_not_present(queued, {"Fit"})
    # Overdue after 1307.9; looked for at 1000.25 + k*30.
    assert queue.timers.next_deadline() == 1330.25
    queue.move_all(FREED)
    assert queue.timers.next_deadline() == 1009.0


def test_exactly_five_minutes_are_not_too_long() -> None:
    clock = Clock(1000.0)
    queue = make_queue(HINTS, clock=clock)
    queued = reject(queue, Pod("p"), "Fit")
    assert queue.timers.next_deadline() == 1330.0
    clock.now = 1300.0
    queue.timers.run()
    assert queued.place is Place.UNSCHEDULABLE
    assert queue.timers.next_deadline() == 1330.0
    clock.now = 1330.0
    queue.timers.run()
    assert queued.place is Place.ACTIVE


def test_the_flush_asks_no_hints_and_is_replayed_to_pods_in_flight() -> None:
    clock = Clock(1000.0)
    queue = make_queue([], clock=clock)
    waiting = reject(queue, Pod("waiting"), "Nobody")
    queue.add(Pod("flying"))
    flying = pop(queue)
    clock.now = 1301.0
    assert queue.timers.flush_unschedulable() == 1
    assert waiting.flushed
    assert queue.add_unschedulable_if_not_present(flying, {"Nobody"}) is Place.BACKOFF
    assert pop(queue) is waiting
    queue.add_unschedulable_if_not_present(waiting, {"Nobody"})
    assert not waiting.flushed


async def test_wait_nonempty_wakes_for_active_and_backoff_but_not_for_error_backoff() -> None:
    clock = Clock()
    queue = make_queue(HINTS, clock=clock)

    async def next_pod() -> Pod:
        await queue.wait_nonempty()
        return pop(queue).pod

    waiter = asyncio.create_task(next_pod())
    await asyncio.sleep(0)
    assert not waiter.done()
    queue.add(Pod("a"))
    assert (await asyncio.wait_for(waiter, 1)).name == "a"
    queue.done("uid-default-a")

    queue.add(Pod("b"))
    queued = pop(queue)
    waiter = asyncio.create_task(next_pod())
    await asyncio.sleep(0)
    queue.add_unschedulable_if_not_present(queued)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiter.done()
    clock.now += 2
    queue.timers.run()
    assert (await asyncio.wait_for(waiter, 1)).name == "b"

    queue.add_unschedulable_if_not_present(queued, {"Fit"})
    waiter = asyncio.create_task(next_pod())
    await asyncio.sleep(0)
    queue.move_all(FREED)
    assert (await asyncio.wait_for(waiter, 1)).name == "b"


def test_summary() -> None:
    queue = make_queue(HINTS, pre_enqueue={"G": Held("gated")})
    for name in ("a", "b", "c"):
        reject(queue, Pod(name), "Fit")
    queue.move_all(FREED, exclude_uid="uid-default-a")
    for name in ("gated", "d", "e", "f"):
        queue.add(Pod(name))
    assert queue.summary() == "activeQ:3; backoffQ:2; unschedulablePods:2"


# --- cost


def test_an_event_costs_what_it_concerns_not_what_waits() -> None:
    calls = 0

    def hint(pod: Pod, old: Any, new: Any) -> QueueingHint:
        nonlocal calls
        calls += 1
        return QueueingHint.SKIP if old is None else QueueingHint.QUEUE

    taken = []
    for pods in (100, 10_000):
        queue = make_queue([HintRegistration("P", ClusterEvent(ev.NODE, A.ADD), hint, Scope.SHAPE)])
        for i in range(pods):
            queue.add(Pod(f"p{i}"))
        for queued in [pop(queue) for _ in range(pods)]:
            queue.add_unschedulable_if_not_present(queued, {"P"})
        calls = 0
        with counted() as steps:
            queue.move_all(ev.NODE_ADD)
        taken.append(steps.count)
        assert calls == 1
        assert queue.move_all(ev.NODE_ADD, "old", "new") == pods
        assert calls == 2
    assert taken[0] == taken[1] > 0
