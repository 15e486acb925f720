"""A cluster on simulated time: the engine places pods; they run, or fail where the node is broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random

from bench.breaker.workload import LARGE, Manifest, Wish, node_manifest, pod_manifest
from koordsched.api import podstates
from koordsched.api.decoding import convert
from koordsched.config.resolving import Resolved
from koordsched.plugins import IN_TREE
from koordsched.plugins.shared.moments import moment_text
from koordsched.scheduling.offline import OfflineScheduler

START_SECONDS = 1.0
"""From a pod's binding until its container runs, or fails."""
ERROR = "CreateContainerError"
_EPOCH = 1_800_000_000.0


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return _EPOCH + self.now


@dataclass(frozen=True)
class Moment:
    """The pods at one time. `failures`: how often one failed to start, on all broken nodes together, until then."""

    minutes: float
    wanted: int
    running: int
    failures: int


@dataclass(frozen=True)
class Outcome:
    """A run. Times in seconds."""

    moments: list[Moment]
    """One for every ten seconds."""
    failures: dict[str, int]
    """By broken node, how often a pod failed to start there."""
    large: float | None
    """When all pods of the Deployment that came at once had run for the first time; None if they never did."""
    everything: float | None
    """From the moment when the last pod was wanted until all ran; None if they never did."""
    mean_wait: float
    """From the moment when a pod was wanted until it ran, or until the end."""


class Simulation:
    """One configuration with one workload. Its first profile is the one that places the pods."""

    def __init__(
        self, resolved: Resolved, nodes: int, broken: int, workload: Sequence[Wish], give_up: float, seed: int
    ) -> None:
        """`broken`: so many of the nodes; `give_up`: seconds after which a pod that fails is replaced."""
        self._clock = _Clock()
        self._scheduler = resolved.profiles[0].scheduler_name
        self._offline = OfflineScheduler(resolved, IN_TREE, (), clock=self._clock, rng=Random(seed))
        self._wishes = list(workload)
        self._arrived = 0
        self._give_up = give_up
        self._served: dict[int, float] = {}
        """By number of the wish: when a pod of it ran."""
        self._wish_of: dict[str, int] = {}
        """By key of a pod."""
        self._events: list[tuple[float, int, str, str]] = []
        """What is to come: (time, serial, key of the pod, its node); a start first, then the end of one that failed."""
        self._failing: dict[str, str] = {}
        self._manifests: dict[str, Manifest] = {}
        self._serial = 0
        for number in range(nodes):
            self._offline.add(node_manifest(number))
        names = [node_manifest(number)["metadata"]["name"] for number in range(nodes)]
        self._failures = dict.fromkeys(sorted(Random(seed).sample(names, broken)), 0)

    def run(self, seconds: int) -> Outcome:
        """Lets so much time pass, second by second."""
        moments = []
        for second in range(seconds + 1):
            self._clock.now = float(second)
            self._happen()
            self._offline.timers.run()
            self._arrive()
            self._place()
            if second and second % 10 == 0:
                failures = sum(self._failures.values())
                moments.append(Moment(second / 60, self._arrived, len(self._served), failures))
        return self._outcome(moments, float(seconds))

    def _arrive(self) -> None:
        while self._arrived < len(self._wishes) and self._wishes[self._arrived].at <= self._clock.now:
            self._create(self._arrived)
            self._arrived += 1

    def _create(self, wish: int) -> None:
        self._serial += 1
        manifest = pod_manifest(self._wishes[wish].deployment, self._serial, self._scheduler)
        pod = self._offline.add(manifest)
        assert pod is not None
        self._manifests[pod.key], self._wish_of[pod.key] = manifest, wish

    def _place(self) -> None:
        for key in self._offline.queue_order():
            placed = self._offline.schedule(key)
            if placed.node:
                self._later(START_SECONDS, key, placed.node)

    def _later(self, seconds: float, key: str, node: str) -> None:
        self._serial += 1
        heappush(self._events, (self._clock.now + seconds, self._serial, key, node))

    def _happen(self) -> None:
        while self._events and self._events[0][0] <= self._clock.now:
            _, _, key, node = heappop(self._events)
            if key in self._failing:
                self._replace(key)
            else:
                self._start(key, node)

    def _start(self, key: str, node: str) -> None:
        now = moment_text(self._clock.wall())
        container = {"name": "main", "image": "app:1", "restartCount": 0, "state": {"running": {"startedAt": now}}}
        status = {"phase": "Running", "startTime": now, "containerStatuses": [container]}
        if node in self._failures:
            self._failures[node] += 1
            self._failing[key] = node
            container["state"] = {"waiting": {"reason": ERROR}}
            status["phase"] = "Pending"
            self._later(self._give_up, key, node)
        else:
            self._served[self._wish_of[key]] = self._clock.now
        manifest = self._manifests[key]
        thing = {**manifest, "spec": {**manifest["spec"], "nodeName": node}, "status": status}
        # Offline, states of containers are not read otherwise.
        cluster = self._offline.cluster
        cluster.set_pod(cluster.pods.build(convert(thing, podstates.Pod)))

    def _replace(self, key: str) -> None:
        """The pod is deleted, and its Deployment makes another one."""
        del self._failing[key]
        uid = self._manifests.pop(key)["metadata"]["uid"]
        self._offline.cluster.remove_pod(uid)
        self._offline.cluster.pod_gone(uid)
        self._create(self._wish_of.pop(key))

    def _outcome(self, moments: list[Moment], end: float) -> Outcome:
        served, wanted = self._served, self._wishes[: self._arrived]
        waits = [served.get(number, end) - wish.at for number, wish in enumerate(wanted)]
        large = [served.get(number) for number, wish in enumerate(wanted) if wish.deployment == LARGE]
        ran = [at for at in large if at is not None]
        last = max(served.values(), default=0.0) - max((wish.at for wish in wanted), default=0.0)
        return Outcome(
            moments=moments,
            failures=self._failures,
            large=max(ran, default=0.0) if len(ran) == len(large) else None,
            everything=max(last, 0.0) if len(served) == len(wanted) else None,
            mean_wait=sum(waits) / max(len(waits), 1),
        )
