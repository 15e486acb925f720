"""The decisions of another scheduler, as they appear in the watch of pods, and what we make of each."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator
from typing import NamedTuple, TypeVar, cast

from koordsched.api import core
from koordsched.api.meta import HasMetadata
from koordsched.client.clock import Clock
from koordsched.client.sink import ObjectKey, Sink
from koordsched.cluster.builtinkinds import PODS
from koordsched.cluster.pod import TERMINAL, Pod
from koordsched.plugins.shared.moments import moment
from koordsched.scheduling.queueprofile import equivalence_keys
from koordsched.scheduling.recording import Recorder
from koordsched.scheduling.scheduler import Scheduler
from koordsched.shadow.judgement import FAILED, Judgement, judge
from koordsched.shadow.metrics import ShadowMetrics
from koordsched.shadow.tally import Report, Tally, Waited
from koordsched.shadow.waiting import placeable

_log = logging.getLogger(__name__)

T = TypeVar("T", bound=HasMetadata)

PATIENCE = 10.0
"""Seconds that a pod has to wait before it counts as one that could have been placed: until then the other scheduler
may be about to place it."""

MOST_ATTEMPTS = 1_000
"""Attempts to place waiting pods in one look, at most: nothing else goes on meanwhile."""


class _Wait(NamedTuple):
    """When a pod began to wait for the scheduler: since it is known here, and by the time of day.

    `seen`: that happened during the trial.
    """

    monotonic: float
    wall: float
    seen: bool


class Shadow(Recorder):
    """Sees the pods on their way into the state of a scheduler that follows the cluster, and judges each that gets a
    node on the state just before."""

    def __init__(self, name: str, clock: Clock, metrics: ShadowMetrics) -> None:
        """`name`: the scheduler whose decisions are judged."""
        self.tally = Tally()
        self._name = name
        self._clock = clock
        self._metrics = metrics
        self._waits: dict[str, _Wait] = {}
        self._scheduler: Scheduler | None = None
        self._began = clock.wall()
        metrics.observe_waiting(lambda: len(self._waits), lambda: len(self.tally.waited))

    def begin(self, scheduler: Scheduler) -> None:
        """The scheduler has seen the whole cluster: from now on decisions are judged. Its only profile decides."""
        self._scheduler = scheduler
        self._profile = scheduler.profiles[self._name]
        self._equivalence = equivalence_keys(self._profile)
        self._began = self._clock.wall()

    def report(self) -> Report:
        """The trial so far."""
        nodes = self._scheduler.cluster.table.count if self._scheduler is not None else 0
        return self.tally.report(self._name, self._began, self._clock.wall(), nodes, len(self._waits))

    def look(self) -> None:
        """Looks at the pods that have waited for long: would they be placed now?"""
        scheduler = self._scheduler
        if scheduler is None:
            return
        latest = self._clock.monotonic() - PATIENCE
        refusal = scheduler.unreadable.refusal
        pods = [
            pod
            for pod in scheduler.pending_pods()
            if self._waits_since(pod, latest) and not pod.deleting and refusal(pod) is None
        ]
        if not pods:
            return
        pods.sort(key=lambda pod: (-pod.priority, pod.created or ""))
        nominator = scheduler.queue.nominator
        found = placeable(self._profile, scheduler.cluster, nominator, pods, self._equivalence, most=MOST_ATTEMPTS)
        for pod in pods:
            if pod.uid in found and pod.uid not in self.tally.waited:
                since, now = self._waits[pod.uid].wall, self._clock.wall()
                self.tally.waited[pod.uid] = Waited(pod.title, since, now, found[pod.uid], _message(pod))

    def _waits_since(self, pod: Pod, latest: float) -> bool:
        wait = self._waits.get(pod.uid)
        return wait is not None and wait.monotonic <= latest

    # --- the watch of pods ---------------------------------------------------------------------------

    def sink(self, path: str, sink: Sink[T], read: Container[str]) -> Sink[T]:
        """Of pods, one that looks at each first."""
        return cast(Sink[T], _PodSink(cast(Sink[core.Pod], sink), self)) if path == PODS.path else sink

    def seen(self, wire: core.Pod) -> None:
        """A pod as it is now; the state still has it as it was."""
        uid, spec = wire.metadata.uid, wire.spec
        if spec.node_name:
            if self._scheduler is not None:
                self._placed(self._scheduler, wire)
            self._forget(uid, spec.node_name)
        elif spec.scheduler_name == self._name and wire.status.phase not in TERMINAL and not spec.scheduling_gates:
            if uid not in self._waits:
                seen, now = self._scheduler is not None, self._clock.wall()
                since = now if seen else moment(wire.metadata.creation_timestamp) or now
                self._waits[uid] = _Wait(self._clock.monotonic(), since, seen)
        else:
            self._forget(uid, "")

    def gone(self, uid: str) -> None:
        """A pod is gone."""
        self._forget(uid, "")

    def _forget(self, uid: str, node: str) -> None:
        if self._waits.pop(uid, None) is not None:
            self.tally.ended(uid, node, self._clock.wall())

    def _placed(self, scheduler: Scheduler, wire: core.Pod) -> None:
        pod = scheduler.pending_pod(wire.metadata.uid)
        if pod is None:
            if wire.spec.scheduler_name == self._name and wire.metadata.uid not in scheduler.cluster.assigned:
                self.tally.unseen += 1
            return
        began = self._clock.monotonic()
        judgement = self._judge(scheduler, pod, wire.spec.node_name)
        deciding = self._clock.monotonic() - began
        wait = self._waits.get(pod.uid)
        binding = began - wait.monotonic if wait is not None and wait.seen else None
        self.tally.judged(pod.key, self._clock.wall(), judgement, deciding, binding)
        self._metrics.judged(judgement, deciding, binding)

    def _judge(self, scheduler: Scheduler, pod: Pod, node: str) -> Judgement:
        try:
            refusal = scheduler.unreadable.refusal(pod)
            if refusal is not None:
                return Judgement(FAILED, node, plugin=refusal.plugin, reason=refusal.message)
            return judge(self._profile, scheduler.cluster, pod, node)
        except Exception as error:
            # The pod has to get into the state all the same.
            _log.exception("pod %s cannot be evaluated", pod.title)
            return Judgement(FAILED, node, reason=f"{type(error).__name__}: {error}")


def _message(pod: Pod) -> str:
    """What the other scheduler says of a pod that waits."""
    condition = pod.wire.status.condition("PodScheduled") if pod.wire is not None else None
    return condition.message if condition is not None else ""


class _PodSink:
    """Shows pods to the trial before they go on."""

    def __init__(self, sink: Sink[core.Pod], shadow: Shadow) -> None:
        self._sink = sink
        self._shadow = shadow

    def upsert(self, obj: core.Pod, anew: bool = False) -> None:
        self._shadow.seen(obj)
        self._sink.upsert(obj, anew)

    def delete(self, obj: core.Pod) -> None:
        self._shadow.gone(obj.metadata.uid)
        self._sink.delete(obj)

    def delete_key(self, key: ObjectKey) -> None:
        self._shadow.gone(key.uid)
        self._sink.delete_key(key)

    def known(self) -> Iterator[ObjectKey]:
        return self._sink.known()
