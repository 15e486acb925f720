"""Reservations that take running pods over: in Reserve, and written in PreBind (reservation spec 3.7)."""

from __future__ import annotations

from koordsched.api.meta import ObjectMeta
from koordsched.cluster.builtinkinds import PODS
from koordsched.cluster.facts import PodFact
from koordsched.cluster.state import ClusterState
from koordsched.framework.handle import WriteFailed, Writes
from koordsched.framework.interface import CycleState
from koordsched.framework.status import SUCCESS, Code, Status
from koordsched.plugins.reservation.annotations import Allocated, allocated_text
from koordsched.plugins.reservation.kinds import RESERVATION_ALLOCATED
from koordsched.plugins.reservation.preallocation import NONE_MEETS, PreAllocatable


class TakeOver:
    """`allocated`: which Reservation a pod uses."""

    def __init__(self, cluster: ClusterState, writes: Writes, allocated: PodFact[Allocated]) -> None:
        self._cluster = cluster
        self._writes = writes
        self._allocated = allocated

    def take(self, cycle: CycleState, row: int, taking: PreAllocatable | None) -> Status:
        """The pods that were chosen on the row use the Reservation from now on."""
        if taking is None:
            return SUCCESS
        taken = taking.selected.get(row, [])
        if not taken and taking.required:
            return Status(Code.UNSCHEDULABLE, (NONE_MEETS,))
        used = Allocated(taking.info.name, taking.info.uid)
        for pod in taken:
            if self._cluster.assigned.get(pod.uid) is not None:
                self._cluster.allocate(self._cluster.assigned[pod.uid], self._allocated, used)
        if taken:
            cycle.state[self] = [pod.uid for pod in taken]
        return SUCCESS

    def give_back(self, cycle: CycleState) -> None:
        """They do not use it after all."""
        for uid in cycle.state.pop(self, ()):
            taken = self._cluster.assigned.get(uid)
            if taken is not None and self._allocated.of(taken) is not None:
                self._cluster.allocate(taken, self._allocated, None)

    def took(self, cycle: CycleState) -> bool:
        """Whether pods were taken in this cycle."""
        return self in cycle.state

    async def annotate(self, cycle: CycleState) -> Status:
        """Writes on each of them which Reservation it uses."""
        for uid in cycle.state[self]:
            taken = self._cluster.assigned.get(uid)
            used = self._allocated.of(taken) if taken is not None else None
            if taken is None or used is None:
                return Status(Code.ERROR, (f'pod "{uid}" not found',))
            meta = ObjectMeta(name=taken.name, namespace=taken.namespace, uid=taken.uid)
            annotations = {RESERVATION_ALLOCATED: allocated_text(*used)}
            try:
                await self._writes.merge(PODS, meta, {"metadata": {"annotations": annotations}})
            except WriteFailed as error:
                return Status(Code.ERROR, (str(error),))
        return SUCCESS
