"""A cluster on simulated time: the engine places pods, they run and end, and nodes report what is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

import numpy as np

from bench.loadaware.workload import NODE_CPU, Burst, Manifest, node_manifest
from koordsched.config.resolving import Resolved
from koordsched.fakecluster.hollow.collectpolicy import collect_policy, default_spec
from koordsched.fakecluster.hollow.curves import Usage
from koordsched.fakecluster.hollow.nodeload import NodeLoad, PodLoad
from koordsched.fakecluster.hollow.podusage import stated_usage
from koordsched.fakecluster.hollow.traces import Traces
from koordsched.fakecluster.hollow.usage import Share
from koordsched.plugins import IN_TREE
from koordsched.scheduling.offline import OfflineScheduler

STEP_SECONDS = 15.0
"""What happens in between happens at the end of the step."""
INTERVAL_SECONDS = 60.0
"""Between two reports of a node."""
FULL_PERCENT = 80
_START = 1_800_000_000.0
_SPEC = default_spec(round(INTERVAL_SECONDS))


class _Clock:
    def __init__(self) -> None:
        self.now = _START

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


@dataclass(frozen=True)
class Moment:
    """The nodes at one time. Percentages are of a node's CPU, of what its pods want to use, so they may exceed 100."""

    minutes: float
    highest: float
    p95: float
    p50: float
    over: int
    """Nodes above 80 %."""
    missing: float
    """Cores that pods want to use and their nodes do not have, all nodes together."""
    running: int
    pending: int


@dataclass
class _Node:
    name: str
    load: NodeLoad
    due: float
    usages: dict[str, tuple[Usage, float]] = field(default_factory=dict)
    """By uid: what a pod uses, and when it started."""


class Simulation:
    """One configuration with one workload. Its first profile is the one that places the pods."""

    def __init__(self, resolved: Resolved, nodes: int, workload: Sequence[Burst], seed: int) -> None:
        self._clock = _Clock()
        self._offline = OfflineScheduler(resolved, IN_TREE, (), clock=self._clock, rng=Random(seed))
        self._bursts = list(workload)
        self._policy = collect_policy(_SPEC)
        self._traces = Traces(None)
        self._nodes: dict[str, _Node] = {}
        self._ends: list[tuple[float, str, str]] = []
        """When pods end: (time, uid, node)."""
        self._lifetimes: dict[str, tuple[Manifest, float]] = {}
        """Of pending pods, by namespace/name."""
        for number in range(nodes):
            manifest = node_manifest(number)
            name = manifest["metadata"]["name"]
            self._offline.add(manifest)
            load = NodeLoad(_START, _START)
            load.cpu_capacity = NODE_CPU * 1000
            self._nodes[name] = _Node(name, load, _START + INTERVAL_SECONDS * (1 + number / nodes))

    def run(self, seconds: float) -> list[Moment]:
        """Lets so much time pass; returns a moment per minute."""
        moments = []
        for step in range(1, round(seconds / STEP_SECONDS) + 1):
            self._clock.now = _START + step * STEP_SECONDS
            self._offline.timers.run()
            self._end_pods()
            self._report()
            self._create_pods()
            self._place_pods()
            if self._clock.now % 60 == 0:
                moments.append(self._moment())
        return moments

    def _end_pods(self) -> None:
        now = self._clock.now
        while self._ends and self._ends[0][0] <= now:
            _, uid, name = heappop(self._ends)
            node = self._nodes[name]
            load = node.load.pods[uid]
            load.stop(now)
            load.gone = True
            del node.usages[uid]
            self._offline.cluster.remove_pod(uid)
            self._offline.cluster.pod_gone(uid)

    def _report(self) -> None:
        now = self._clock.now
        for node in self._nodes.values():
            if node.due > now:
                continue
            node.due += INTERVAL_SECONDS
            status = node.load.status(now, self._policy)
            if status is not None:
                self._offline.add(
                    {
                        "apiVersion": "slo.koordinator.sh/v1alpha1",
                        "kind": "NodeMetric",
                        "metadata": {"name": node.name, "uid": node.name},
                        "spec": _SPEC,
                        "status": status,
                    }
                )

    def _create_pods(self) -> None:
        while self._bursts and _START + self._bursts[0].at <= self._clock.now:
            for manifest, lifetime in self._bursts.pop(0).pods:
                pod = self._offline.add(manifest)
                assert pod is not None
                self._lifetimes[pod.key] = manifest, lifetime

    def _place_pods(self) -> None:
        now = self._clock.now
        refused: set[str] = set()
        for key in self._offline.queue_order():
            manifest, lifetime = self._lifetimes[key]
            metadata = manifest["metadata"]
            if metadata["labels"]["app"] in refused:
                # One like it has just been refused: nothing has changed since but for the worse.
                continue
            placed = self._offline.schedule(key)
            if not placed.node:
                refused.add(metadata["labels"]["app"])
                continue
            del self._lifetimes[key]
            node, uid = self._nodes[placed.node], metadata["uid"]
            usage = stated_usage(manifest, Share(), self._traces)
            node.usages[uid] = usage, now
            load = node.load.pods[uid] = PodLoad(metadata["namespace"], metadata["name"])
            load.priority, load.qos = "koord-prod", "LS"
            load.run(now, now, usage)
            heappush(self._ends, (now + lifetime, uid, placed.node))

    def _moment(self) -> Moment:
        times = np.array([self._clock.now])
        wanted = np.array(
            [
                sum(float(np.sum(usage.cpu.at(times, start))) for usage, start in node.usages.values())
                for node in self._nodes.values()
            ]
        )
        percent = wanted / (NODE_CPU * 10)
        p50, p95 = np.percentile(percent, [50, 95])
        return Moment(
            minutes=(self._clock.now - _START) / 60,
            highest=float(percent.max()),
            p95=float(p95),
            p50=float(p50),
            over=int((percent > FULL_PERCENT).sum()),
            missing=float(np.maximum(0, wanted / 1000 - NODE_CPU).sum()),
            running=sum(len(node.usages) for node in self._nodes.values()),
            pending=len(self._lifetimes),
        )
