"""Equivalent pods in a small world: a refusal that is taken over is true, and no pod rests that there is room for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from koordsched.cluster import events as ev
from koordsched.cluster.events import ActionType as A
from koordsched.cluster.events import ClusterEvent
from koordsched.queue.equivalence import Refusal
from koordsched.queue.hints import GroupBy, HintRegistration, HintTable, QueueingHint, Scope
from koordsched.queue.item import Place, QueuedPod
from koordsched.queue.queue import QueueProfile, SchedulingQueue
from tests.depth import examples
from tests.queue.pods import PROFILE, Clock, Pod, Shape, priority_sort

Kind = tuple[str, str]
"""Name of the shape, labels: what there is room for, or not."""

_LABEL = ClusterEvent(ev.NODE, A.UPDATE_NODE_LABEL)
_TAINT = ClusterEvent(ev.NODE, A.UPDATE_NODE_TAINT)


def _kind(pod: Pod) -> Kind:
    return pod.shape.name, pod.labels


def _concerns(pod: Pod, old: Any, new: Any) -> QueueingHint:
    return QueueingHint.QUEUE if new == _kind(pod) else QueueingHint.SKIP


_KIND: GroupBy[Pod] = GroupBy(lambda pod: pod.labels)

HINTS: list[HintRegistration[Pod]] = [
    HintRegistration("Room", ClusterEvent(ev.NODE, A.ADD), _concerns, _KIND),
    HintRegistration("Room", _TAINT, None, Scope.SHAPE),
    # Its answer is the same for all equivalent pods, which it does not say.
    HintRegistration("Picky", ClusterEvent(ev.NODE, A.ADD), _concerns, Scope.POD),
    HintRegistration("Picky", _TAINT, None, Scope.SHAPE),
    HintRegistration("Taints", _TAINT, None, Scope.SHAPE),
    *(
        HintRegistration(plugin, ClusterEvent(ev.POD, A.UPDATE_POD_LABEL), None, Scope.OWN_POD)
        for plugin in ("Room", "Picky", "Taints")
    ),
]

#: Mostly the kind that there are many of from the beginning.
kinds = st.sampled_from([("x", "a")] * 5 + [("x", "b"), ("y", "a")])


class TwinMachine(RuleBasedStateMachine):
    """Room comes and goes, with the events that hints wait for; pods come, change, go, and are tried."""

    @initialize()
    def begin(self) -> None:
        self.clock = Clock(1000.0)
        self.held: set[str] = set()
        self.queue: SchedulingQueue[Pod] = SchedulingQueue(
            {
                PROFILE: QueueProfile(
                    HintTable(HINTS),
                    {"Gate": lambda pod: "held" if pod.claims[0] in self.held else None},
                    lambda pod: (pod.namespace, pod.labels, pod.priority),
                )
            },
            clock=self.clock,
            sort_key=priority_sort,
            is_pending=lambda pod: True,
            max_unschedulable=1e9,
        )
        self.room: Counter[Kind] = Counter()
        self.tainted = False
        self.refusing = "Room"
        self.pods: dict[str, Pod] = {}
        self.out: list[QueuedPod[Pod]] = []
        """Popped, not evaluated yet: a cycle that waits for an extender."""
        self.placed: list[QueuedPod[Pod]] = []
        self.sequence = 0
        # Some equivalent pods rest already, none of them backing off.
        self.arrive(("x", "a"), 4, 0)
        self.schedule(4)
        self.pass_time(12.0)

    # --- the world

    def _fits(self, pod: Pod) -> bool:
        return not self.tainted and self.room[_kind(pod)] > 0

    @rule(kind=kinds, amount=st.integers(1, 3))
    def grow(self, kind: Kind, amount: int) -> None:
        self.room[kind] += amount
        self.queue.move_all(ev.NODE_ADD, None, kind)

    @rule(kind=kinds)
    def shrink(self, kind: Kind) -> None:
        self.room[kind] = 0

    @rule()
    def taint(self) -> None:
        self.tainted = not self.tainted
        self.queue.move_all(_TAINT, None, None)

    @rule(plugin=st.sampled_from(["Room", "Picky"]))
    def refuse_otherwise(self, plugin: str) -> None:
        """The same lack of room is another plugin's business; that alone helps nobody."""
        self.refusing = plugin

    @rule(claim=st.sampled_from(["c0", "c1"]))
    def hold_or_release(self, claim: str) -> None:
        if claim in self.held:
            self.held.remove(claim)
            self.queue.activate([pod for pod in self.pods.values() if claim in pod.claims])
        else:
            self.held.add(claim)

    # --- pods

    @rule(kind=kinds, count=st.integers(1, 4), priority=st.sampled_from([0, 0, 1]))
    def arrive(self, kind: Kind, count: int, priority: int) -> None:
        for _ in range(count):
            self.sequence += 1
            pod = Pod(
                f"p{self.sequence}",
                priority=priority,
                shape=Shape(name=kind[0]),
                labels=kind[1],
                claims=(f"c{self.sequence % 4}",),
            )
            self.pods[pod.uid] = pod
            self.queue.add(pod)

    def _pick(self, data: st.DataObject) -> Pod:
        """Any pod, or one that is about to be tried."""
        soon = sorted(q.pod.uid for q in self.queue if q.place in (Place.ACTIVE, Place.BACKOFF))
        return self.pods[data.draw(st.sampled_from(soon or sorted(self.pods)) | st.sampled_from(sorted(self.pods)))]

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), labels=st.sampled_from(["a", "b"]), node=st.sampled_from(["", "", "", "n1"]))
    def change(self, data: st.DataObject, labels: str, node: str) -> None:
        old = self._pick(data)
        new = replace(old, labels=labels, nominated_node=node)
        self.pods[new.uid] = new
        action = A.UPDATE if labels == old.labels else A.UPDATE_POD_LABEL
        self.queue.update(old, new, [ClusterEvent(ev.UNSCHEDULABLE_POD, action)])

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        pod = self._pick(data)
        del self.pods[pod.uid]
        self.queue.delete(pod)

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def activate(self, data: st.DataObject) -> None:
        self.queue.activate([self._pick(data)])

    # --- the scheduler

    @rule()
    def pop(self) -> None:
        queued = self.queue.pop()
        if queued is not None:
            self.out.append(queued)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), error=st.sampled_from([False, False, False, True]))
    def finish(self, data: st.DataObject, error: bool) -> None:
        self._evaluate(self.out.pop(data.draw(st.integers(0, len(self.out) - 1))), error)

    def _try_next(self) -> bool:
        queued = self.queue.pop()
        if queued is None:
            return False
        known = self.queue.refusal_of_equivalent(queued)
        if known is None:
            self._evaluate(queued, False)
        else:
            assert not self._fits(queued.pod), "a refusal was taken over that is not true"
            self.queue.add_unschedulable_if_not_present(queued, known.plugins, known.pending, refusal=known)
        return True

    def _evaluate(self, queued: QueuedPod[Pod], error: bool) -> None:
        pod = queued.pod
        if pod.uid not in self.pods:
            self.queue.done(pod.uid)
        elif error:
            self.queue.add_unschedulable_if_not_present(queued)
        elif self._fits(pod):
            self.room[_kind(pod)] -= 1
            self.queue.placed(queued)
            self.placed.append(queued)
        else:
            plugins = frozenset({"Taints"} if self.tainted else {self.refusing})
            refusal = Refusal("", plugins, frozenset()) if not pod.nominated_node else None
            self.queue.add_unschedulable_if_not_present(queued, plugins, refusal=refusal)

    @rule(most=st.integers(1, 20))
    def schedule(self, most: int) -> None:
        for _ in range(most):
            if not self._try_next():
                break

    @precondition(lambda self: self.placed)
    @rule(data=st.data(), bound=st.booleans())
    def bind(self, data: st.DataObject, bound: bool) -> None:
        queued = self.placed.pop(data.draw(st.integers(0, len(self.placed) - 1)))
        pod = queued.pod
        if bound or pod.uid not in self.pods:
            self.queue.done(pod.uid)
            self.pods.pop(pod.uid, None)
            return
        self.room[_kind(pod)] += 1
        self.queue.move_all(ev.NODE_ADD, None, _kind(pod))
        self.queue.add_unschedulable_if_not_present(queued)

    @rule(seconds=st.sampled_from([0.1, 0.9, 1.0, 5.0, 12.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        self.queue.timers.run()

    @rule()
    def settle(self) -> None:
        """Everything under way ends; then nobody rests for whom there is room."""
        while self.out:
            self._evaluate(self.out.pop(), False)
        while self.placed:
            queued = self.placed.pop()
            self.queue.done(queued.pod.uid)
            self.pods.pop(queued.pod.uid, None)
        for _ in range(10_000):
            if not self._try_next():
                if self.queue.timers.next_deadline() is None or not self.queue.pending()["backoff"]:
                    break
                self.clock.now += 11
                self.queue.timers.run()
            while self.placed:
                queued = self.placed.pop()
                self.queue.done(queued.pod.uid)
                del self.pods[queued.pod.uid]
        resting = [queued for queued in self.queue if queued.place is Place.UNSCHEDULABLE]
        assert [queued for queued in resting if self._fits(queued.pod)] == []
        assert self.queue.pending()["active"] == self.queue.pending()["backoff"] == 0

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            self.settle()

    # --- always

    @invariant()
    def every_pod_is_in_exactly_one_place(self) -> None:
        if not hasattr(self, "queue"):
            return
        in_queue = [queued.pod.uid for queued in self.queue]
        under_way = [queued.pod.uid for queued in (*self.out, *self.placed)]
        assert len(set(in_queue)) == len(in_queue) == len(self.queue) == sum(self.queue.pending().values())
        assert not set(in_queue) & set(under_way)
        assert set(self.pods) <= {*in_queue, *under_way}
        assert {uid for uid in in_queue if uid not in self.pods} == set()
        assert all(self.queue.get(queued.key) is queued for queued in self.queue)

    @invariant()
    def what_they_wait_for_is_counted(self) -> None:
        if not hasattr(self, "queue"):
            return
        waiting = Counter(plugin for queued in self.queue for plugin in queued.unschedulable_plugins)
        assert +Counter({plugin: n for (plugin, _), n in self.queue.counters.unschedulable.items()}) == waiting


class TestTwins(TwinMachine.TestCase):
    settings = settings(max_examples=examples(200), stateful_step_count=50, deadline=None)


@pytest.mark.slow
class TestTwinsAtLength(TwinMachine.TestCase):
    settings = settings(max_examples=4000, stateful_step_count=60, deadline=None)
