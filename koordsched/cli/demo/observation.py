"""What any client can see of the pods: a watch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from koordsched.api import core
from koordsched.api.meta import controller_of
from koordsched.api.quantity import NANO
from koordsched.cli.workloads import workload_of
from koordsched.client.sink import ObjectKey
from koordsched.cluster.pod import TERMINAL
from koordsched.cluster.resources import effective_requests


@dataclass(slots=True)
class Tally:
    """The pods of one workload. `pending`: (reason, message) of the condition -> how many; `starting` are on a node."""

    running: int = 0
    succeeded: int = 0
    starting: int = 0
    waiting: int = 0
    pending: Counter[tuple[str, str]] = field(default_factory=Counter)
    nodes: set[str] = field(default_factory=set)
    zones: Counter[str] = field(default_factory=Counter)

    @property
    def placed(self) -> int:
        """Pods that have, or had, a node."""
        return self.running + self.succeeded + self.starting

    @property
    def pods(self) -> int:
        """All of them."""
        return self.placed + self.waiting + self.pending.total()


class Observation:
    """The sink of a reflector over all pods. Times are those of `clock`, in seconds."""

    def __init__(self, clock: Callable[[], float], zones: Mapping[str, str]) -> None:
        self._clock = clock
        self.zones = zones
        self._pods: dict[str, core.Pod] = {}
        self._seen: dict[str, float] = {}
        self._placed: dict[str, float] = {}
        self.changes = 0

    # --- sink ------------------------------------------------------------------------------------

    def upsert(self, obj: core.Pod, anew: bool = False) -> None:
        """A pod is new or changed."""
        uid, now = obj.metadata.uid, self._clock()
        self._pods[uid] = obj
        self._seen.setdefault(uid, now)
        if obj.spec.node_name:
            self._placed.setdefault(uid, now)
        self.changes += 1

    def delete(self, obj: core.Pod) -> None:
        """A pod is gone."""
        self._drop(obj.metadata.uid)

    def delete_key(self, key: ObjectKey) -> None:
        """The same, known by name."""
        self._drop(key.uid)

    def known(self) -> Iterator[ObjectKey]:
        """The pods that are there."""
        held = [pod.metadata for pod in self._pods.values()]
        return (ObjectKey(meta.namespace, meta.name, meta.uid) for meta in held)

    def _drop(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self.changes += 1

    # --- what it comes to ------------------------------------------------------------------------

    def tallies(self) -> dict[str, Tally]:
        """Workload -> its pods, in the order in which they appeared."""
        found: dict[str, Tally] = {}
        for pod in self._pods.values():
            _count(found.setdefault(_workload(pod), Tally()), pod, self.zones)
        return found

    def requested_cpu(self, node: str) -> float:
        """CPUs that the pods on a node request which have not ended."""
        held = [pod for pod in self._pods.values() if pod.spec.node_name == node and pod.status.phase not in TERMINAL]
        return sum(map(_cpu, held))

    def requested_by(self, name: str) -> float:
        """CPUs that a pod requests, which is known by namespace/name; 0 without such a pod."""
        return sum(_cpu(pod) for pod in self._pods.values() if f"{pod.metadata.namespace}/{pod.metadata.name}" == name)

    def placing(self, workload: str) -> tuple[int, float]:
        """How many pods of the workload were placed, and the seconds from its first pod to its last placement."""
        uids = [uid for uid, pod in self._pods.items() if _workload(pod) == workload]
        placed = [self._placed[uid] for uid in uids if uid in self._placed]
        if not placed:
            return 0, 0.0
        return len(placed), max(placed) - min(self._seen[uid] for uid in uids)


def _cpu(pod: core.Pod) -> float:
    return effective_requests(pod.spec).get("cpu", 0) / NANO


def _workload(pod: core.Pod) -> str:
    meta = pod.metadata
    return workload_of(meta.namespace, meta.name, controller_of(meta), meta.labels)


def _count(tally: Tally, pod: core.Pod, zones: Mapping[str, str]) -> None:
    node = pod.spec.node_name
    if node:
        tally.nodes.add(node)
        if zone := zones.get(node):
            tally.zones[zone] += 1
        if pod.status.phase == "Running":
            tally.running += 1
        elif pod.status.phase == "Succeeded":
            tally.succeeded += 1
        else:
            tally.starting += 1
        return
    condition = pod.status.condition("PodScheduled")
    if condition is not None and condition.status == "False":
        tally.pending[condition.reason, condition.message] += 1
    else:
        tally.waiting += 1
