from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest

from koordsched.cluster import events as ev
from koordsched.cluster.events import ActionType as A
from koordsched.cluster.events import ClusterEvent, EventResource
from koordsched.queue.groupindex import KeyedGroups
from koordsched.queue.hints import (
    ByKey,
    GroupBy,
    HintRegistration,
    HintTable,
    OtherNodeHint,
    QueueingHint,
    Scope,
    every_event,
)
from koordsched.queue.item import Place
from tests.queue.pods import Pod, Shape, make_queue, reject

QUEUE, SKIP = QueueingHint.QUEUE, QueueingHint.SKIP
NODE = ClusterEvent(ev.NODE, A.ADD)
TAINT = ClusterEvent(ev.NODE, A.UPDATE_NODE_TAINT)


class Hint:
    """A hint that answers as told and remembers whom it was asked about."""

    def __init__(self, answer: QueueingHint | Exception = SKIP) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def __call__(self, pod: Pod, old: Any, new: Any) -> QueueingHint:
        self.asked.append(pod.name)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.failing_hints
@pytest.mark.parametrize(
    ("unschedulable", "pending", "hints", "place"),
    [
        # One rejecting plugin.
        (["P"], [], {"P": SKIP}, Place.UNSCHEDULABLE),
        (["P"], [], {"P": QUEUE}, Place.BACKOFF),
        (["P"], [], {"P": None}, Place.BACKOFF),  # no hint: always
        (["P"], [], {"P": RuntimeError("broken")}, Place.BACKOFF),
        (["P"], [], {}, Place.UNSCHEDULABLE),  # did not register the event
        # Only rejecting plugins are asked.
        (["P"], [], {"Q": QUEUE}, Place.UNSCHEDULABLE),
        # Any of several.
        (["P", "Q"], [], {"P": SKIP, "Q": QUEUE}, Place.BACKOFF),
        (["P", "Q"], [], {"P": SKIP, "Q": SKIP}, Place.UNSCHEDULABLE),
        # A pending plugin's answer skips back-off, others' do not.
        ([], ["P"], {"P": QUEUE}, Place.ACTIVE),
        ([], ["P"], {"P": RuntimeError("broken")}, Place.ACTIVE),
        (["Q"], ["P"], {"P": SKIP, "Q": QUEUE}, Place.BACKOFF),
        (["Q"], ["P"], {"P": QUEUE, "Q": QUEUE}, Place.ACTIVE),
        (["Q"], ["P"], {"Q": QUEUE, "P": QUEUE}, Place.ACTIVE),
        (["Q"], ["P"], {"P": SKIP, "Q": SKIP}, Place.UNSCHEDULABLE),
    ],
)
@pytest.mark.parametrize("scope", [Scope.SHAPE, Scope.POD, GroupBy(lambda pod: pod.namespace)])
@pytest.mark.parametrize("replay", [False, True])
def test_answers_of_the_rejecting_plugins(
    unschedulable: list[str],
    pending: list[str],
    hints: dict[str, QueueingHint | Exception | None],
    place: Place,
    scope: Scope | GroupBy[Pod],
    replay: bool,
) -> None:
    taking = ClusterEvent(ev.NODE, A.ADD | A.UPDATE_NODE_TAINT)
    queue = make_queue(
        HintRegistration(plugin, taking, None if answer is None else Hint(answer), scope)
        for plugin, answer in hints.items()
    )
    queue.add(Pod("p"))
    queued = queue.pop()
    assert queued is not None
    if replay:
        queue.move_all(NODE)
    queue.add_unschedulable_if_not_present(queued, set(unschedulable), set(pending))
    if not replay:
        assert queued.place is Place.UNSCHEDULABLE
        queue.move_all(NODE)
    assert queued.place is place


def test_one_call_answers_for_all_equivalent_pods() -> None:
    hint = Hint(QUEUE)
    queue = make_queue([HintRegistration("P", NODE, hint, Scope.SHAPE)])
    pods = [Pod(f"p{i}", namespace=f"ns{i % 3}") for i in range(100)]
    for pod in pods:
        reject(queue, pod, "P")
    reject(queue, Pod("other", shape=Shape(name="other")), "P")
    assert queue.move_all(NODE) == 101
    assert len(hint.asked) == 2


@pytest.mark.parametrize(
    ("scope", "calls"),
    [(Scope.SHAPE, 1), (GroupBy(lambda pod: pod.namespace), 3), (GroupBy(lambda pod: pod.name), 30), (Scope.POD, 30)],
)
def test_scope_says_how_far_an_answer_holds(scope: Any, calls: int) -> None:
    hint = Hint(SKIP)
    queue = make_queue([HintRegistration("P", NODE, hint, scope), HintRegistration("Q", NODE, Hint(), Scope.SHAPE)])
    for i in range(30):
        reject(queue, Pod(f"p{i}", namespace=f"ns{i % 3}"), "P")
    assert queue.move_all(NODE) == 0
    assert len(hint.asked) == calls


def by_shape() -> KeyedGroups[Pod]:
    """An event offers names of shapes, "any" all."""
    return KeyedGroups(lambda pod: [[[pod.shape.name]]], lambda old, new: None if new == "any" else [new])


@pytest.mark.failing_hints
@pytest.mark.parametrize(
    ("offered", "asked"),
    [(["x"], ["x0"]), (["y", "x"], ["x0", "y0"]), (["z"], []), ("any", ["x0", "y0"]), (None, ["x0", "y0"])],
)
def test_an_index_says_which_groups_are_asked(offered: Any, asked: list[str]) -> None:
    hint = Hint(QUEUE)
    queue = make_queue([HintRegistration("P", NODE, hint, Scope.SHAPE, index=by_shape())])
    for shape in "xy":
        for i in range(3):
            reject(queue, Pod(f"{shape}{i}", shape=Shape(name=shape)), "P")
    # None has no names: an index that fails must not leave pods stuck.
    assert queue.move_all(NODE, None, offered) == 3 * len(asked)
    assert hint.asked == asked


def test_a_group_is_filed_as_long_as_it_has_pods() -> None:
    queue = make_queue([HintRegistration("P", NODE, Hint(QUEUE), Scope.SHAPE, index=(index := by_shape()))])
    x, y = (reject(queue, Pod(name, shape=Shape(name=name)), "P") for name in "xy")
    reject(queue, Pod("q", shape=Shape(name="x")), "Q")
    assert [*map(len, (index.concerned(None, ["x"]) or (), index.concerned(None, ["y"]) or ()))] == [1, 1]
    queue.delete(x.pod)
    queue.update(y.pod, Pod("y", shape=Shape(name="z")), [])
    assert [*map(len, (index.concerned(None, ["x", "y"]) or (), index.concerned(None, ["z"]) or ()))] == [0, 1]


@pytest.mark.failing_hints
def test_a_group_that_cannot_be_filed_is_asked_about_every_event() -> None:
    hint = Hint(QUEUE)
    index: KeyedGroups[Pod] = KeyedGroups(
        lambda pod: [[{"x": ["x"]}[pod.shape.name]]], lambda old, new: None if new == "any" else [new]
    )
    queue = make_queue([HintRegistration("P", NODE, hint, Scope.SHAPE, index=index)])
    x, y = (reject(queue, Pod(name, shape=Shape(name=name)), "P") for name in "xy")
    assert queue.move_all(NODE, None, "any") == 2
    hint.asked.clear()
    x, y = (reject(queue, Pod(name, shape=Shape(name=name)), "P") for name in "xy")
    assert queue.move_all(NODE, None, ["z"]) == 1
    assert hint.asked == ["y"]
    queue.delete(y.pod)
    assert queue.move_all(NODE, None, ["x"]) == 1
    assert x.place is Place.BACKOFF


def test_a_registration_without_an_index_has_all_groups_asked() -> None:
    first, second = Hint(SKIP), Hint(SKIP)
    indexed = HintRegistration("P", NODE, first, Scope.SHAPE, index=by_shape())
    queue = make_queue([indexed, HintRegistration("P", NODE, second, Scope.SHAPE)])
    reject(queue, Pod("x0", shape=Shape(name="x")), "P")
    queue.move_all(NODE, None, ["y"])
    assert second.asked == ["x0"]


def test_pods_of_one_shape_rejected_by_different_plugins_are_asked_apart() -> None:
    p, q = Hint(QUEUE), Hint(SKIP)
    queue = make_queue([HintRegistration("P", NODE, p, Scope.SHAPE), HintRegistration("Q", NODE, q, Scope.SHAPE)])
    by_p, by_q = reject(queue, Pod("a"), "P"), reject(queue, Pod("b"), "Q")
    assert queue.move_all(NODE) == 1
    assert (p.asked, q.asked) == (["a"], ["b"])
    assert (by_p.place, by_q.place) == (Place.BACKOFF, Place.UNSCHEDULABLE)


def test_equivalent_pods_that_wait_for_something_of_their_own_are_asked_apart() -> None:
    queue = make_queue([HintRegistration("P", NODE, Hint(QUEUE), Scope.SHAPE)])
    rejected, pending = reject(queue, Pod("a"), "P"), reject(queue, Pod("b"), pending=["P"])
    assert queue.move_all(NODE) == 2
    assert (rejected.place, pending.place) == (Place.BACKOFF, Place.ACTIVE)


def test_a_pod_that_changed_shape_no_longer_shares_the_answer() -> None:
    def only_y(pod: Pod, old: Any, new: Any) -> QueueingHint:
        return QUEUE if pod.shape.name == "y" else SKIP

    queue = make_queue([HintRegistration("P", NODE, only_y, Scope.SHAPE)])
    a, b = (reject(queue, Pod(name, shape=Shape(name="x")), "P") for name in ("a", "b"))
    queue.update(b.pod, Pod("b", shape=Shape(name="y")), [])
    assert queue.move_all(NODE) == 1
    assert (a.place, b.place) == (Place.UNSCHEDULABLE, Place.BACKOFF)


def test_a_pod_that_changed_its_claims_is_found_by_the_new_ones_only() -> None:
    queue = make_queue([HintRegistration("Volumes", CLAIM, None, uses_claim())])
    queued = reject(queue, Pod("a", claims=("old",)), "Volumes")
    queue.update(queued.pod, Pod("a", claims=("new",)), [])
    assert queue.move_all(CLAIM, None, "default/old") == 0
    assert queue.move_all(CLAIM, None, "default/new") == 1


CLAIM = ClusterEvent(ev.PERSISTENT_VOLUME_CLAIM, A.ADD)


def uses_claim() -> ByKey[Pod]:
    return ByKey(
        pod_keys=lambda pod: [f"{pod.namespace}/{claim}" for claim in pod.claims],
        event_keys=lambda old, new: [new],
    )


def test_keyed_hints_find_their_pods_without_asking_the_others() -> None:
    hint = Hint(QUEUE)
    queue = make_queue([HintRegistration("Volumes", CLAIM, hint, uses_claim())])
    for i in range(50):
        reject(queue, Pod(f"p{i}", claims=(f"data-{i}", "shared")), "Volumes")
    assert queue.move_all(CLAIM, None, "default/data-7") == 1
    assert hint.asked == ["p7"]
    assert queue.move_all(CLAIM, None, "other/data-8") == 0
    assert queue.move_all(CLAIM, None, "default/shared") == 49
    assert len(queue) == 50


def test_a_key_without_hint_is_enough() -> None:
    queue = make_queue([HintRegistration("Volumes", CLAIM, None, uses_claim())])
    uses, not_mine = reject(queue, Pod("a", claims=("x",)), "Volumes"), reject(queue, Pod("b"), "Volumes")
    queue.move_all(CLAIM, None, "default/x")
    assert (uses.place, not_mine.place) == (Place.BACKOFF, Place.UNSCHEDULABLE)


def test_keys_are_compared_in_replay_too() -> None:
    queue = make_queue([HintRegistration("Volumes", CLAIM, None, uses_claim())])
    places = []
    for claims in (("x",), ("y",)):
        queue.add(Pod(f"p-{claims[0]}", claims=claims))
        queued = queue.pop()
        assert queued is not None
        queue.move_all(CLAIM, None, "default/x")
        places.append(queue.add_unschedulable_if_not_present(queued, {"Volumes"}))
        queue.delete(queued.pod)
    assert places == [Place.BACKOFF, Place.UNSCHEDULABLE]


def named(name: str, fails: tuple[str, ...], key: Any = "k") -> Any:
    """The key; for `unhashable` one that no dictionary takes. Raises TypeError for those that fail."""
    if name in fails:
        raise TypeError(name)
    return [key] if name == "unhashable" else key


@pytest.mark.failing_hints
@pytest.mark.parametrize("bad", ["bad", "unhashable"])
def test_a_pod_whose_keys_are_unknown_is_asked_about_every_event(bad: str) -> None:
    hint = Hint(QUEUE)
    index: ByKey[Pod] = ByKey(lambda pod: [named(pod.name, ("bad",))], lambda old, new: [new])
    queue = make_queue([HintRegistration("Volumes", CLAIM, hint, index), HintRegistration("Other", NODE)])
    strange, good = reject(queue, Pod(bad), "Volumes"), reject(queue, Pod("good"), "Volumes")
    reject(queue, Pod("bad", namespace="another"), "Other")
    assert queue.move_all(CLAIM, None, "elsewhere") == 1
    assert (strange.place, good.place) == (Place.BACKOFF, Place.UNSCHEDULABLE)
    assert hint.asked == [bad]
    assert queue.move_all(CLAIM, None, "k") == 1
    queue.delete(strange.pod)
    assert queue.move_all(CLAIM, None, "k") == 0


@pytest.mark.failing_hints
@pytest.mark.parametrize("event", ["bad", "unhashable"])
def test_an_event_whose_keys_are_unknown_asks_all_pods_of_that_plugin(event: str) -> None:
    hint = Hint(QUEUE)
    index: ByKey[Pod] = ByKey(lambda pod: [pod.name], lambda old, new: [named(new, ("bad",))])
    queue = make_queue([HintRegistration("Volumes", CLAIM, hint, index), HintRegistration("Q", CLAIM, Hint(SKIP))])
    pods = [reject(queue, Pod(name), "Volumes") for name in "ab"]
    reject(queue, Pod("c"), "Q")
    assert queue.move_all(CLAIM, None, event) == 2
    assert (hint.asked, [queued.place for queued in pods]) == (["a", "b"], [Place.BACKOFF] * 2)


@pytest.mark.failing_hints
@pytest.mark.parametrize(("name", "event"), [("bad", "x"), ("good", "bad")])
def test_unknown_keys_count_as_the_same_for_pods_in_flight(name: str, event: str) -> None:
    index: ByKey[Pod] = ByKey(
        lambda pod: [named(pod.name, ("bad",))], lambda old, new: [named(new, ("bad",), key="another")]
    )
    queue = make_queue([HintRegistration("Volumes", CLAIM, None, index)])
    queue.add(Pod(name))
    queued = queue.pop()
    assert queued is not None
    queue.move_all(CLAIM, None, event)
    assert queue.add_unschedulable_if_not_present(queued, {"Volumes"}) is Place.BACKOFF


@pytest.mark.failing_hints
@pytest.mark.parametrize("bad", ["bad", "unhashable"])
def test_pods_whose_group_is_unknown_are_asked_on_their_own(bad: str) -> None:
    hint = Hint(QUEUE)
    scope: GroupBy[Pod] = GroupBy(lambda pod: named(pod.name, ("bad",)))
    queue = make_queue([HintRegistration("P", NODE, hint, scope)])
    for namespace in ("one", "two"):
        reject(queue, Pod(bad, namespace), "P")
        reject(queue, Pod("good", namespace), "P")
    assert queue.move_all(NODE) == 4
    assert hint.asked == [bad, "good", bad]


def test_an_index_shared_by_two_plugins_wakes_only_pods_of_the_one_that_asked() -> None:
    index = uses_claim()
    queue = make_queue(
        [
            HintRegistration("Volumes", CLAIM, None, index),
            HintRegistration("Zones", ClusterEvent(ev.PERSISTENT_VOLUME_CLAIM, A.DELETE), None, index),
        ]
    )
    zones = reject(queue, Pod("a", claims=("x",)), "Zones")
    volumes = reject(queue, Pod("b", claims=("x",)), "Volumes")
    assert queue.move_all(CLAIM, None, "default/x") == 1
    assert (zones.place, volumes.place) == (Place.UNSCHEDULABLE, Place.BACKOFF)


def test_a_keyed_answer_of_a_pending_plugin_outranks_the_groups() -> None:
    queue = make_queue(
        [
            HintRegistration("Volumes", CLAIM, None, uses_claim()),
            HintRegistration("P", CLAIM, Hint(QUEUE), Scope.SHAPE),
        ]
    )
    mine = reject(queue, Pod("a", claims=("x",)), "P", pending=["Volumes"])
    other = reject(queue, Pod("b", claims=("y",)), "P", pending=["Volumes"])
    assert queue.move_all(CLAIM, None, "default/x") == 2
    assert (mine.place, other.place) == (Place.ACTIVE, Place.BACKOFF)


OWN = ClusterEvent(ev.UNSCHEDULABLE_POD, A.UPDATE_POD_TOLERATION)


@pytest.mark.parametrize("scope", [Scope.OWN_POD, Scope.SHAPE, Scope.POD, GroupBy(lambda pod: 0), uses_claim()])
def test_own_changes_ask_hints_of_every_scope(scope: Any) -> None:
    hint = Hint(QUEUE)
    queue = make_queue([HintRegistration("P", ClusterEvent(ev.POD, A.UPDATE_POD_TOLERATION), hint, scope)])
    queued, twin = reject(queue, Pod("a"), "P"), reject(queue, Pod("b"), "P")
    assert queue.update(queued.pod, Pod("a", labels="new"), [OWN]) is Place.BACKOFF
    assert hint.asked == ["a"]
    assert twin.place is Place.UNSCHEDULABLE


def test_changes_of_other_objects_do_not_ask_own_pod_hints() -> None:
    hint = Hint(QUEUE)
    event = ClusterEvent(ev.POD, A.UPDATE_POD_TOLERATION)
    queue = make_queue([HintRegistration("P", event, hint, Scope.OWN_POD)])
    reject(queue, Pod("a"), "P")
    assert queue.move_all(ClusterEvent(ev.ASSIGNED_POD, A.UPDATE_POD_TOLERATION), Pod("x"), Pod("x")) == 0
    assert hint.asked == []


@pytest.mark.parametrize(
    ("registered", "woken"),
    [
        ([A.ADD], True),
        ([A.ADD | A.UPDATE_NODE_LABEL], True),
        ([A.ADD | A.UPDATE_NODE_TAINT], False),
        ([A.ADD, A.UPDATE_NODE_TAINT], False),
        ([A.UPDATE_NODE_LABEL], False),
        ([A.DELETE], False),
    ],
)
def test_taint_mitigation(registered: list[A], woken: bool) -> None:
    queue = make_queue(HintRegistration("P", ClusterEvent(ev.NODE, action), Hint(SKIP)) for action in registered)
    reject(queue, Pod("a"), "P")
    assert queue.move_all(TAINT) == woken


@pytest.mark.parametrize(
    ("event", "woken"),
    [
        (NODE, True),
        (TAINT, True),
        (ev.ASSIGNED_POD_DELETE, True),
        (ev.ASSIGNED_POD_UPDATE, True),
        (ClusterEvent(ev.STORAGE_CLASS, A.ADD), True),
        (ClusterEvent(EventResource("gadgets.v1.test.io"), A.ADD), False),
    ],
)
@pytest.mark.parametrize("wildcard", [False, True])
def test_plugins_without_events_get_all_standard_ones(event: ClusterEvent, woken: bool, wildcard: bool) -> None:
    everything = [HintRegistration[Pod]("P", ClusterEvent(ev.WILDCARD, A.ALL))]
    queue = make_queue(everything if wildcard else every_event("P"))
    reject(queue, Pod("a"), "P")
    assert queue.move_all(event) == woken


def test_a_wildcard_registration_keeps_its_action() -> None:
    queue = make_queue([HintRegistration("P", ClusterEvent(ev.WILDCARD, A.DELETE))])
    reject(queue, Pod("a"), "P")
    assert queue.move_all(NODE) == 0
    assert queue.move_all(ev.NODE_DELETE) == 1


def test_a_wildcard_registration_does_not_let_the_flush_touch_gated_pods() -> None:
    queue = make_queue([HintRegistration("G", ClusterEvent(ev.WILDCARD, A.ALL))], pre_enqueue={"G": lambda pod: "no"})
    queue.add(Pod("a"))
    assert queue.move_all(ev.UNSCHEDULABLE_TIMEOUT) == 0


def test_an_event_that_may_be_anything_wakes_all_that_wait() -> None:
    asked: list[str] = []

    def hint(pod: Pod, old: object, new: object) -> QueueingHint:
        asked.append(pod.name)
        return QueueingHint.SKIP

    queue = make_queue([HintRegistration("P", ev.NODE_ADD, hint)])
    waiting = [reject(queue, Pod(name), plugin) for name, plugin in (("a", "P"), ("b", "Other"))]
    assert queue.move_all(ev.UNSCHEDULABLE_TIMEOUT) == 2
    assert [queued.place for queued in waiting] == [Place.BACKOFF] * 2
    assert asked == []


@pytest.mark.failing_hints
def test_hint_errors_are_logged_and_observed(caplog: pytest.LogCaptureFixture) -> None:
    class Observer:
        def __init__(self) -> None:
            self.ticks = 0.0
            self.seen: Counter[tuple[str, str, str, float]] = Counter()

        def clock(self) -> float:
            self.ticks += 0.5
            return self.ticks

        def observe(self, plugin: str, event: str, hint: str, seconds: float) -> None:
            self.seen[plugin, event, hint, seconds] += 1

    observer = Observer()
    queue = make_queue(
        [
            HintRegistration("Bad", NODE, Hint(ValueError("boom")), Scope.SHAPE),
            HintRegistration("Yes", NODE, Hint(QUEUE), Scope.SHAPE),
            HintRegistration("No", NODE, Hint(SKIP), Scope.SHAPE),
        ],
        observer=observer,
    )
    for plugin in ("Bad", "Yes", "No"):
        reject(queue, Pod(plugin.lower()), plugin)
    with caplog.at_level(logging.ERROR):
        assert queue.move_all(NODE) == 2
    assert observer.seen == {
        ("Bad", "NodeAdd", "Error", 0.5): 1,
        ("Yes", "NodeAdd", "Queue", 0.5): 1,
        ("No", "NodeAdd", "QueueSkip", 0.5): 1,
    }
    assert "queueing hint of Bad failed for pod default/bad and event NodeAdd" in caplog.text


def test_matching_is_remembered() -> None:
    table = HintTable[Pod]([HintRegistration("P", NODE)])
    assert table.matching(NODE) is table.matching(ClusterEvent(ev.NODE, A.ADD))
    assert not table.matching(ev.NODE_DELETE)


@pytest.mark.parametrize(("scope", "woken"), [(Scope.SHAPE, {"a", "b"}), (Scope.POD, {"a"})])
def test_pods_that_wait_for_their_node_are_asked_about_other_nodes(scope: Scope, woken: set[str]) -> None:
    """Once for all of a group, where that is enough; otherwise each."""

    def helps(pod: Pod, old: Any, new: Any) -> QueueingHint:
        return QUEUE if pod.name == "a" else SKIP

    other = OtherNodeHint[Pod](node=lambda old, new: str(new), fn=lambda pod, old, new: SKIP)
    queue = make_queue(
        [HintRegistration("Fit", NODE, None, Scope.SHAPE, other), HintRegistration("Fit", NODE, helps, scope)]
    )
    waiting = [reject(queue, Pod(name, nominated_node="n"), "Fit") for name in ("a", "b")]
    queue.move_all(NODE, None, "m")
    assert {queued.pod.name for queued in waiting if queued.place is Place.BACKOFF} == woken


@pytest.mark.failing_hints
def test_an_event_whose_node_is_unknown_is_one_of_no_single_node() -> None:
    def broken(old: Any, new: Any) -> str:
        raise RuntimeError("broken")

    other = OtherNodeHint[Pod](node=broken, fn=lambda pod, old, new: SKIP)
    queue = make_queue([HintRegistration("Fit", NODE, None, Scope.SHAPE, other)])
    waiting = reject(queue, Pod("a", nominated_node="n"), "Fit")
    assert queue.move_all(NODE, None, "m") == 1
    assert waiting.place is Place.BACKOFF
