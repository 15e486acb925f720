"""The queue does, step by step, what the plain model of the spec does."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from koordsched.cluster import events as ev
from koordsched.cluster.events import ActionType as A
from koordsched.cluster.events import ClusterEvent, EventResource
from koordsched.queue.hints import ByKey, GroupBy, HintRegistration, QueueingHint, Scope
from koordsched.queue.item import Place, QueuedPod
from koordsched.queue.queue import SchedulingQueue
from tests.depth import examples
from tests.queue.model import Item, Model, Rule
from tests.queue.pods import PROFILE, Clock, Pod, Shape, make_queue

RELEASES = EventResource("releases.v1.test.io")

# One plugin per way of registering, each with its rule for the model. An object of an event is a short string.


def _fits(pod: Pod, old: Any, new: Any) -> bool:
    return str(new).startswith(pod.shape.name)


def _same_namespace(pod: Pod, old: Any, new: Any) -> bool:
    return getattr(old or new, "namespace", "") == pod.namespace


def _unlucky(pod: Pod, old: Any, new: Any) -> bool:
    if new == "raise":
        raise ArithmeticError("broken hint")
    return bool(new == pod.name)


def _hint(answer: Any) -> Any:
    return lambda pod, old, new: QueueingHint.QUEUE if answer(pod, old, new) else QueueingHint.SKIP


_CLAIMS: ByKey[Pod] = ByKey(lambda pod: pod.claims, lambda old, new: [new] if isinstance(new, str) else new.claims)
_NODE = ClusterEvent(ev.NODE, A.ADD | A.UPDATE_NODE_ALLOCATABLE)
_POD = ClusterEvent(ev.POD, A.DELETE | A.UPDATE_POD_LABEL)
_TOLERATION = ClusterEvent(ev.POD, A.UPDATE_POD_TOLERATION | A.UPDATE_POD_LABEL)
_CLAIM = ClusterEvent(ev.PERSISTENT_VOLUME_CLAIM, A.ALL)
_LABEL = ClusterEvent(ev.NODE, A.UPDATE_NODE_LABEL)
_RELEASE = ClusterEvent(RELEASES, A.ALL)
_ELIMINATED = ClusterEvent(ev.POD, A.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)

HINTS: list[HintRegistration[Pod]] = [
    HintRegistration("Fit", _NODE, _hint(_fits), Scope.SHAPE),
    HintRegistration("Fit", ClusterEvent(ev.POD, A.DELETE), None),
    HintRegistration("Spread", _POD, _hint(_same_namespace), GroupBy(lambda pod: pod.namespace)),
    HintRegistration("Taints", _TOLERATION, None, Scope.OWN_POD),
    HintRegistration("Volumes", _CLAIM, None, _CLAIMS),
    HintRegistration("Volumes", _LABEL, _hint(_fits), Scope.SHAPE),
    HintRegistration("Picky", _LABEL, _hint(_unlucky), Scope.POD),
    HintRegistration("Picky", _CLAIM, _hint(_unlucky), _CLAIMS),
    HintRegistration("SchedulingGates", _ELIMINATED, None, Scope.OWN_POD),
    HintRegistration("Release", _RELEASE, None, Scope.SHAPE),
]


def _shares_claim(pod: Pod, new: Any) -> bool:
    return new in pod.claims if isinstance(new, str) else bool(set(pod.claims) & set(new.claims))


RULES: list[Rule] = [
    ("Fit", _NODE, lambda pod, old, new, own: _fits(pod, old, new)),
    ("Fit", ClusterEvent(ev.POD, A.DELETE), lambda pod, old, new, own: True),
    # Fit waits for new nodes and not for taints: mitigation.
    ("Fit", ClusterEvent(ev.NODE, A.UPDATE_NODE_TAINT), lambda pod, old, new, own: True),
    ("Spread", _POD, lambda pod, old, new, own: _same_namespace(pod, old, new)),
    ("Taints", _TOLERATION, lambda pod, old, new, own: own),
    ("Volumes", _CLAIM, lambda pod, old, new, own: own or _shares_claim(pod, new)),
    ("Volumes", _LABEL, lambda pod, old, new, own: _fits(pod, old, new)),
    ("Picky", _LABEL, lambda pod, old, new, own: _unlucky(pod, old, new)),
    ("Picky", _CLAIM, lambda pod, old, new, own: (own or _shares_claim(pod, new)) and _unlucky(pod, old, new)),
    ("SchedulingGates", _ELIMINATED, lambda pod, old, new, own: own),
    ("Release", _RELEASE, lambda pod, old, new, own: True),
]

PLUGINS = ["Fit", "Spread", "Taints", "Volumes", "Picky"]

pods = st.builds(
    Pod,
    name=st.sampled_from([f"p{i}" for i in range(5)]),
    namespace=st.sampled_from(["a", "b"]),
    priority=st.integers(0, 2),
    shape=st.builds(Shape, scheduler_name=st.sampled_from([PROFILE] * 19 + ["other"]), name=st.sampled_from("xy")),
    claims=st.sampled_from([(), ("c1",), ("c1", "c2")]),
    gates=st.sampled_from([(), (), (), ("g",)]),
)
COMBINATIONS = [frozenset(chosen) for size in (1, 2) for chosen in combinations(PLUGINS, size)]
rejections = st.sampled_from(COMBINATIONS)
pendings = st.sampled_from([frozenset[str]()] * 10 + COMBINATIONS)
happenings = st.one_of(
    st.tuples(
        st.sampled_from(
            [
                ev.NODE_ADD,
                ClusterEvent(ev.NODE, A.UPDATE_NODE_ALLOCATABLE),
                ClusterEvent(ev.NODE, A.UPDATE_NODE_TAINT),
                _LABEL,
                ClusterEvent(ev.NODE, A.UPDATE_NODE_CONDITION),
                ClusterEvent(RELEASES, A.UPDATE),
            ]
        ),
        st.none(),
        st.sampled_from(["x", "y", "z", "raise", "p0", "p1"]),
    ),
    st.tuples(
        st.sampled_from([ClusterEvent(ev.PERSISTENT_VOLUME_CLAIM, a) for a in (A.ADD, A.UPDATE)]),
        st.none(),
        st.sampled_from(["c1", "c2", "c3"]),
    ),
    st.tuples(st.just(ev.ASSIGNED_POD_DELETE), pods, st.none()),
    st.tuples(st.just(ClusterEvent(ev.ASSIGNED_POD, A.UPDATE_POD_LABEL)), pods, pods),
    st.tuples(st.just(ev.ASSIGNED_POD_UPDATE), pods, pods),
)
OWN = [A.UPDATE_POD_LABEL, A.UPDATE_POD_TOLERATION, A.UPDATE]


class QueueMachine(RuleBasedStateMachine):
    """Everything that can happen to the queue, in any order."""

    @initialize(start=st.sampled_from([0.0, 1000.0, 1000.7]))
    def begin(self, start: float) -> None:
        self.clock = Clock(start)
        self.held: set[str] = set()

        def gates(pod: Pod) -> str | None:
            return "gated" if pod.gates else None

        def release(pod: Pod) -> str | None:
            return "held" if pod.name in self.held else None

        self.queue: SchedulingQueue[Pod] = make_queue(
            HINTS, clock=self.clock, pre_enqueue={"SchedulingGates": gates, "Release": release}
        )
        self.model = Model(
            RULES,
            [("SchedulingGates", lambda pod: not pod.gates), ("Release", lambda pod: pod.name not in self.held)],
            PROFILE,
            start,
        )
        #: The newest version of every pod that exists.
        self.pods: dict[str, Pod] = {}
        #: Popped pods that have not come back, also when `done` was called for them.
        self.out: list[tuple[QueuedPod[Pod], Item]] = []
        self.sequence = 0

    def _pick(self, data: st.DataObject) -> Pod:
        return self.pods[data.draw(st.sampled_from(sorted(self.pods)))]

    @rule(pod=pods)
    def add(self, pod: Pod) -> None:
        if pod.key in self.pods:
            pod = replace(pod, uid=self.pods[pod.key].uid, shape=self.pods[pod.key].shape)
        else:
            self.sequence += 1
            pod = replace(pod, uid=f"uid-{self.sequence}")
        self.pods[pod.key] = pod
        self.queue.add(pod)
        self.model.add(pod)

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), actions=st.lists(st.sampled_from(OWN), max_size=2, unique=True))
    def update(self, data: st.DataObject, actions: list[A]) -> None:
        old = self._pick(data)
        if old.shape.scheduler_name != PROFILE:
            return
        new = replace(old, labels=f"{old.labels}+", claims=data.draw(st.sampled_from([old.claims, ("c2",)])))
        events = [ClusterEvent(ev.UNSCHEDULABLE_POD, action) for action in actions]
        if old.gates and data.draw(st.booleans()):
            new = replace(new, gates=())
            events.append(ClusterEvent(ev.UNSCHEDULABLE_POD, A.UPDATE_POD_SCHEDULING_GATES_ELIMINATED))
        self.pods[new.key] = new
        self.queue.update(old, new, events)
        self.model.update(old, new, events)

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        pod = self._pick(data)
        del self.pods[pod.key]
        self.queue.delete(pod)
        self.model.delete(pod)

    @rule()
    def pop(self) -> None:
        queued, item = self.queue.pop(), self.model.pop()
        assert (queued is None) == (item is None)
        if queued is not None and item is not None:
            assert queued.pod is item.pod
            assert (queued.attempts, queued.initial_attempt_timestamp) == (item.attempts, item.first)
            self.out.append((queued, item))

    @precondition(lambda self: self.out)
    @rule(data=st.data(), rejecting=st.one_of(st.just(frozenset()), rejections), pending=pendings)
    def fail(self, data: st.DataObject, rejecting: frozenset[str], pending: frozenset[str]) -> None:
        queued, item = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        if self.pods.get(queued.key, queued.pod).uid != queued.pod.uid:
            # The scheduler drops a pod that was replaced by another of its name.
            self.queue.done(queued.pod.uid)
            self.model.done(item.pod.uid)
            return
        if queued.place is Place.NOWHERE and queued.key not in self.pods:
            return
        self.queue.add_unschedulable_if_not_present(queued, rejecting, pending)
        self.model.fail(item, set(rejecting), set(pending))

    @rule(rejecting=rejections, pending=pendings)
    def fail_all(self, rejecting: frozenset[str], pending: frozenset[str]) -> None:
        """Everything that can be popped is tried once and rejected."""
        for queued in [queued for queued in iter(self.queue.pop, None) if queued is not None]:
            item = self.model.pop()
            assert item is not None
            assert queued.pod is item.pod
            self.queue.add_unschedulable_if_not_present(queued, rejecting, pending)
            self.model.fail(item, set(rejecting), set(pending))
        assert self.model.pop() is None

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        queued, _ = data.draw(st.sampled_from(self.out))
        self.queue.done(queued.pod.uid)
        self.model.done(queued.pod.uid)

    @rule(
        happening=happenings,
        max_priority=st.sampled_from([None, None, 0, 1]),
        exclude=st.sampled_from([None, None, "uid-1", "uid-2"]),
    )
    def move_all(self, happening: tuple[ClusterEvent, Any, Any], max_priority: int | None, exclude: str | None) -> None:
        self.queue.move_all(*happening, max_priority=max_priority, exclude_uid=exclude)
        self.model.move_all(*happening, max_priority, exclude)

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def activate(self, data: st.DataObject) -> None:
        pod = self._pick(data)
        self.queue.activate([pod])
        self.model.activate(pod, ev.FORCE_ACTIVATE)

    @rule(name=st.sampled_from(["p0", "p1", "p2"]))
    def hold_or_release(self, name: str) -> None:
        self.held ^= {name}

    @rule(seconds=st.sampled_from([0.1, 0.37, 1.0, 2.5, 7.0, 31.0, 200.0]))
    def pass_time(self, seconds: float) -> None:
        """Time passes; the timers run when the queue says so, as the scheduler's loop runs them."""
        until = self.clock.now + seconds
        while (deadline := self.queue.timers.next_deadline()) is not None and deadline <= until:
            assert deadline > self.clock.now - 1e-9
            self.clock.now = max(deadline, self.clock.now)
            self.queue.timers.run()
            self.model.tick(self.clock.now, ev.UNSCHEDULABLE_TIMEOUT)
        self.clock.now = self.model.now = until

    @invariant()
    def every_pod_is_where_the_model_has_it(self) -> None:
        if not hasattr(self, "queue"):
            return
        model = self.model
        expected = {item.pod.uid: item for item in model.items}
        actual = {queued.pod.uid: queued for queued in self.queue}
        assert len(actual) == len(self.queue) == sum(self.queue.pending().values())
        assert actual.keys() == expected.keys()
        for uid, queued in actual.items():
            item = expected[uid]
            assert queued.pod is item.pod
            assert (queued.place.value, queued.gating_plugin) == (item.place, item.gate)
            assert (queued.unschedulable_plugins, queued.pending_plugins) == (item.rejecting, item.pending)
            assert (queued.unschedulable_count, queued.consecutive_errors) == (item.rejections, item.errors)
            assert (queued.timestamp, queued.flushed) == (item.timestamp, item.flushed)
            assert self.queue.get(queued.key) is queued

    @invariant()
    def orders_and_counters_agree(self) -> None:
        if not hasattr(self, "queue"):
            return
        model = self.model
        in_order = [*model.active(), *model.backing_off("backoff"), *model.backing_off("error-backoff")]
        queued = list(self.queue)
        assert [q.pod.uid for q in queued[: len(in_order)]] == [item.pod.uid for item in in_order]
        places = Counter(item.place for item in model.items)
        assert self.queue.pending() == {
            "active": places["active"],
            "backoff": places["backoff"] + places["error-backoff"],
            "unschedulable": places["unschedulable"],
            "gated": places["gated"],
        }
        assert +Counter(self.queue.counters.incoming) == model.incoming
        assert +Counter({plugin: n for (plugin, _), n in self.queue.counters.unschedulable.items()}) == (
            model.rejected_by()
        )
        assert +Counter(self.queue.in_flight_events()) == model.events_in_flight()

    @invariant()
    def nothing_is_lost(self) -> None:
        """A pod of ours that exists is queued, or popped and not yet back."""
        if not hasattr(self, "queue"):
            return
        out = {queued.pod.uid for queued, _ in self.out}
        for pod in self.pods.values():
            if pod.shape.scheduler_name == PROFILE:
                queued = self.queue.get(pod.key)
                assert (queued is not None and queued.pod.uid == pod.uid) or pod.uid in out


class TestQueueAgainstModel(QueueMachine.TestCase):
    # The same histories in every run; the slow one below searches.
    settings = settings(max_examples=examples(200), stateful_step_count=50, deadline=None, derandomize=True)


@pytest.mark.slow
class TestQueueAgainstModelAtLength(QueueMachine.TestCase):
    settings = settings(max_examples=4000, stateful_step_count=60, deadline=None)
