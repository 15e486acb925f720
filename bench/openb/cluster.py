"""The machines of the traces, on which the engine places one task after the other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random

from bench.openb.manifests import machine, pod
from bench.openb.traces import Machine, TraceTask
from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.pod import Pod
from koordsched.config.resolving import Resolved
from koordsched.engine.attempt import Attempt
from koordsched.plugins import IN_TREE
from koordsched.scheduling.offline import OfflineScheduler

_START = 1_800_000_000.0
PER_SECOND = 25
"""Tasks that come in a second of simulated time. Plugins that do something at a later time have it done by then."""


class _Clock:
    now = _START

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


class Cluster:
    """Attempt, Filter, Score and Reserve of the first profile. `cpu_seconds`: spent in decisions so far, and in what
    plugins do between them; `decisions`: how many.
    """

    def __init__(self, resolved: Resolved, every: Sequence[Machine], rng: Random) -> None:
        self._clock = _Clock()
        self._rng = rng
        state = (thing for one in every for thing in machine(one))
        self._offline = OfflineScheduler(resolved, IN_TREE, state, clock=self._clock, rng=rng)
        self._scheduler = resolved.profiles[0].scheduler_name
        self.cpu_seconds = 0.0
        self.decisions = 0

    def place(self, task: TraceTask) -> Pod | None:
        """The pod on its node; None, and the task is forgotten, if it fits nowhere."""
        self.decisions += 1
        offline = self._offline
        waiting = offline.cluster.pods.build(convert(pod(task, f"t{self.decisions}", self._scheduler), core.Pod))
        began = time.thread_time()
        if self.decisions % PER_SECOND == 0:
            self._clock.now += 1
            offline.timers.run()
        attempt = Attempt(offline.profiles[self._scheduler], offline.cluster, waiting)
        verdicts = attempt.filter()
        placed = bool(verdicts.feasible) and offline.take(attempt, attempt.choose(self._rng).row)[0].ok
        self.cpu_seconds += time.thread_time() - began
        return waiting if placed else None

    def remove(self, task: TraceTask, place: Pod) -> None:
        """A pod that was placed has ended."""
        self._offline.cluster.remove_pod(place.uid)
        self._offline.cluster.pod_gone(place.uid)
