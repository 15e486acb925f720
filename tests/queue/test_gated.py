"""Plugins hear of the pods that another PreEnqueue plugin keeps out, and may activate others in their stead."""

from __future__ import annotations

from collections.abc import Callable

from koordsched.cluster import events as ev
from koordsched.cluster.events import ActionType as A
from koordsched.cluster.events import ClusterEvent
from koordsched.queue.hints import ByKey, HintRegistration, HintTable, Scope
from koordsched.queue.item import Place
from koordsched.queue.queue import QueueProfile, SchedulingQueue
from tests.queue.pods import PROFILE, Clock, Pod, make_queue, pop, priority_sort, reject

NODE_COMES = ClusterEvent(ev.NODE, A.ADD)
CLAIM_COMES = ClusterEvent(ev.RESOURCE_CLAIM, A.ADD)
HINTS = [HintRegistration[Pod](plugin, NODE_COMES, scope=Scope.SHAPE) for plugin in ("One", "Other", "Fit")]


class One:
    """Lets in one pod of all; if another plugin keeps that out, the next of those that it knows."""

    def __init__(self) -> None:
        self.queue: SchedulingQueue[Pod] | None = None
        self.first = "a"
        self.others: list[Pod] = []
        self.heard: list[tuple[str, set[str], int]] = []

    def pre_enqueue(self, pod: Pod) -> str | None:
        return None if pod.name == self.first else "another one goes"

    def gated(self, pod: Pod) -> None:
        assert self.queue is not None
        everywhere = {queued.pod.name for queued in self.queue}
        self.heard.append((pod.name, everywhere, len(self.queue)))
        if pod.name == self.first and self.others:
            following = self.others.pop(0)
            self.first = following.name
            self.queue.activate([following])


def made(one: One, closed: set[str]) -> SchedulingQueue[Pod]:
    """`closed`: names of the pods that the other plugin keeps out."""
    checks = {"One": one.pre_enqueue, "Other": lambda pod: "closed" if pod.name in closed else None}
    profile = QueueProfile(HintTable(HINTS), checks, gated={"One": one.gated})
    one.queue = SchedulingQueue({PROFILE: profile}, clock=Clock(), sort_key=priority_sort, is_pending=lambda pod: True)
    return one.queue


def test_the_next_goes_when_an_event_finds_the_first_kept_out() -> None:
    one, closed = One(), set[str]()
    queue = made(one, closed)
    first = reject(queue, Pod("a"), "Fit")
    one.others = [Pod("b"), Pod("c")]
    for pod in one.others:
        assert queue.add(pod) is Place.GATED
    closed.update("ab")
    queue.move_all(NODE_COMES)
    # Each was in its place when that was said; b was kept out, too.
    assert one.heard == [("a", {"a", "b", "c"}, 3), ("b", {"a", "b", "c"}, 3)]
    assert (first.place, first.gating_plugin) == (Place.GATED, "Other")
    assert pop(queue).pod.name == "c"
    assert queue.pop() is None


def test_the_next_goes_when_the_first_comes_back_and_is_kept_out() -> None:
    one, closed = One(), set[str]()
    queue = made(one, closed)
    queue.add(Pod("a"))
    one.others = [Pod("b")]
    queue.add(one.others[0])
    first = pop(queue)
    closed.add("a")
    queue.move_all(NODE_COMES)
    assert queue.add_unschedulable_if_not_present(first, {"Fit"}) is Place.GATED
    assert pop(queue).pod.name == "b"


def test_of_a_new_pod_that_is_kept_out_it_is_said_as_well() -> None:
    one = One()
    queue = made(one, {"a"})
    assert queue.add(Pod("a")) is Place.GATED
    assert one.heard == [("a", {"a"}, 1)]


def test_a_plugin_does_not_hear_of_those_that_it_keeps_out_itself() -> None:
    one = One()
    queue = made(one, set())
    queue.add(Pod("b"))
    queue.move_all(NODE_COMES)
    assert one.heard == []


def test_a_bug_in_it_leaves_the_queue_in_order() -> None:
    one, closed = One(), {"a"}
    queue = made(one, closed)
    one.queue = None  # it raises
    assert queue.add(Pod("a")) is Place.GATED
    closed.clear()
    queue.move_all(NODE_COMES)
    assert pop(queue).pod.name == "a"


def test_a_waiting_pod_that_is_asked_about_again_waits_for_the_plugin_that_keeps_it_out() -> None:
    one, closed = One(), set[str]()
    queue = made(one, closed)
    waiting = reject(queue, Pod("a"), "Fit")
    closed.add("a")
    queue.ask_again([waiting.pod, Pod("unknown")], {"One"})
    assert (waiting.place, waiting.gating_plugin, len(queue)) == (Place.GATED, "Other", 1)
    closed.clear()
    queue.ask_again([waiting.pod], {"One"})
    assert waiting.place is Place.GATED, "its own events have it looked at again"
    queue.ask_again([waiting.pod], {"Other"})
    assert (waiting.place, waiting.gating_plugin, len(queue)) == (Place.BACKOFF, "", 1)


def test_a_pod_that_is_let_in_when_it_is_asked_about_again_is_tried_after_its_backoff() -> None:
    queue = made(One(), set())
    waiting = reject(queue, Pod("a"), "Fit")
    queue.ask_again([waiting.pod], ())
    assert waiting.place is Place.BACKOFF
    assert pop(queue) is waiting
    queue.ask_again([waiting.pod], ())
    assert waiting.place is Place.IN_FLIGHT


def test_a_pod_that_is_kept_out_still_stays_filed_as_it_is() -> None:
    """It may be filed under thousands of keys, and nodes change all the time."""
    asked, filed = [], []
    why = {"Claims": "missing", "Quota": ""}

    def claims_of(pod: Pod) -> tuple[str, ...]:
        filed.append(pod.name)
        return pod.claims

    def said_by(plugin: str) -> Callable[[Pod], str | None]:
        def check(pod: Pod) -> str | None:
            asked.append(plugin)
            return why[plugin] or None

        return check

    by_claim = ByKey[Pod](claims_of, lambda old, new: (new,))
    hints = [HintRegistration[Pod](plugin, NODE_COMES, scope=Scope.SHAPE) for plugin in ("Claims", "Quota")]
    hints.append(HintRegistration[Pod]("Claims", CLAIM_COMES, scope=by_claim))
    queue = make_queue(hints, pre_enqueue={plugin: said_by(plugin) for plugin in why})
    waits = Pod("a", claims=("c1", "c2"))
    assert queue.add(waits) is Place.GATED
    assert filed == ["a"]
    why["Claims"] = "in use"
    asked.clear()
    for _ in range(10):
        assert queue.move_all(NODE_COMES) == 1
    assert (asked, filed) == (["Claims"] * 10, ["a"])
    queued = queue.get("default/a")
    assert queued is not None
    assert (queued.place, queued.gating_reason) == (Place.GATED, "in use")
    queue.activate([waits])
    assert (queued.place, filed) == (Place.GATED, ["a"])
    assert queue.pending()["gated"] == 1
    # Kept out by another plugin it is filed anew, and waits for the events of that one.
    why.update(Claims="", Quota="used up")
    assert queue.move_all(CLAIM_COMES, None, "c2") == 1
    assert (queued.gating_plugin, filed) == ("Quota", ["a", "a"])
    assert queue.move_all(CLAIM_COMES, None, "c2") == 0
    why["Quota"] = ""
    assert queue.move_all(NODE_COMES) == 1
    assert pop(queue) is queued
    assert (len(queue), queue.pending()["gated"]) == (0, 0)
