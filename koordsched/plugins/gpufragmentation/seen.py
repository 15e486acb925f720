"""What pods on nodes request: the demand that is expected to continue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from koordsched.api.quantity import QuantityError
from koordsched.cluster.pod import Pod
from koordsched.cluster.resources import CPU
from koordsched.cluster.shape import PodShape
from koordsched.cluster.state import ClusterState
from koordsched.plugins.gpufragmentation.fleet import Task
from koordsched.plugins.gpufragmentation.worth import WHOLE
from koordsched.plugins.shared.devices.request import InvalidRequest, request_of
from koordsched.plugins.shared.devices.resources import CORE, GPU, MEMORY, RATIO


class Wanted:
    """What the pods of a shape ask for. `memory`: bytes of each GPU, where that is how they say it, else 0; then
    `share` of the task is of the compute units alone."""

    __slots__ = ("memory", "task")

    def __init__(self, shape: PodShape) -> None:
        cpu = shape.requests.get(CPU)
        self.task, self.memory = Task(cpu, 0, 0), 0
        try:
            asked = request_of(shape).types.get(GPU)
        except (InvalidRequest, QuantityError):
            return  # DeviceShare refuses them
        if asked is not None:
            share = max(asked.amounts[CORE], asked.amounts[RATIO], 0)
            self.memory = asked.amounts[MEMORY]
            self.task = Task(cpu, max(asked.number, 1), min(share, WHOLE))

    def task_on(self, memory: int) -> Task:
        """The task, on GPUs with this many bytes of memory."""
        task = self.task
        if not task.number:
            return task
        share = task.share
        if self.memory > 0:
            share = max(share, -(-self.memory * WHOLE // memory)) if memory else WHOLE
        return task._replace(share=min(max(share, 1), WHOLE))


class SeenPods:
    """Counts pods with GPUs on nodes by shape. `changed` is called with each that comes or goes."""

    facets = 0

    def __init__(self, cluster: ClusterState, changed: Callable[[], None]) -> None:
        self.pods: Counter[PodShape] = Counter()
        self._table = cluster.table
        self._changed = changed
        cluster.add_accountant(self)

    def wanted(self, shape: PodShape) -> Wanted:
        """What the pods of a shape ask for."""
        return shape.compiled(self, Wanted)

    def pod_added(self, row: int, pod: Pod) -> int:
        """See PodAccountant."""
        return self._count(pod, 1)

    def pod_removed(self, row: int, pod: Pod) -> int:
        """See PodAccountant."""
        return self._count(pod, -1)

    def _count(self, pod: Pod, sign: int) -> int:
        shape = pod.shape
        if self.wanted(shape).task.number:
            self.pods[shape] += sign
            if not self.pods[shape]:
                del self.pods[shape]
            if not self._table.hypothetical:
                self._changed()
        return 0
