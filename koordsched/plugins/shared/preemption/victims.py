"""The pods on each row, most important first, as arrays: those that may have to be evicted for a pod of higher
priority.

A row is read again only when its pods changed, so that a decision costs no walk over pods. The pods below some
priority are the end of a row's list, whatever the priority.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import Facet, RowArray
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.turns import STEP, Turns
from koordsched.plugins.shared.preemption.candidates import NOT_STARTED, started_at
from koordsched.plugins.shared.preemption.kinds import KindArray, PodKinds

Mask = npt.NDArray[np.bool_]

_PRIORITIES_KEPT = 16
_KINDS_SPARE = 4096
"""With this many kinds besides two for each pod on a node, most are of deleted pods: everything is read again."""
_BYTES_SPARE = 16 << 20
"""Or with so much of shapes that no pod on a node has any more."""
_NEVER = -1


@dataclass(slots=True, eq=False)
class PotentialVictims:
    """The pods on some rows that may have to go, in the order in which they are put back.

    `kinds`: int32[depth, rows], 0 beyond the last of a row; `counts`: how many each row has; `starts`: float64[depth,
    rows], when they started, NOT_STARTED if they did not.
    """

    rows: RowArray
    kinds: KindArray
    counts: npt.NDArray[np.intp]
    starts: npt.NDArray[np.float64]

    def reordered(self, order: npt.NDArray[np.intp]) -> PotentialVictims:
        """The same pods, those of each row in the order that its column gives."""
        take = np.take_along_axis
        return PotentialVictims(
            self.rows, take(self.kinds, order, axis=0), self.counts, take(self.starts, order, axis=0)
        )


def victim_table(cluster: ClusterState, spares: Callable[[Pod], bool] | None = None) -> VictimTable:
    """The one of the cluster for this rule of what pods are spared."""
    return cluster.shared(lambda state: VictimTable(state, spares), key=(VictimTable, spares))


class VictimTable:
    """One per cluster, and rule of what pods are spared."""

    def __init__(self, cluster: ClusterState, spares: Callable[[Pod], bool] | None = None) -> None:
        """`spares`: pods that are never victims."""
        self._cluster = cluster
        self._spares = spares
        self._forget()

    def may_leave(self, pod: Pod, holders: Container[str] = ()) -> bool:
        """Whether a pod on a node may be a victim, and it would help: what it uses is not another's, or one of these
        holds that.
        """
        if pod.virtual or (self._spares is not None and self._spares(pod)):
            return False
        holder = self._cluster.holder_of(pod)
        return holder is None or holder in holders

    def _forget(self) -> None:
        size = self._cluster.table.size
        self.kinds = PodKinds()
        self._look_at = _BYTES_SPARE
        self._pods: list[list[Pod]] = []
        self._read_at = np.full(size, _NEVER, dtype=np.int64)
        self._depths = np.zeros(size, dtype=np.intp)
        self._kinds: KindArray = np.zeros((1, size), dtype=np.int32)
        self._starts = np.zeros((1, size), dtype=np.float64)
        self._firsts: OrderedDict[int, tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]] = OrderedDict()

    def _forget_the_gone(self) -> None:
        """Afterwards `kinds` is another object: take it after the potential victims whose kinds it is to explain."""
        if len(self.kinds) > _KINDS_SPARE + 2 * len(self._cluster.assigned):
            self._forget()
        elif self.kinds.nbytes > self._look_at:
            there = {pod.shape for pod in self._cluster.assigned.values()}
            known = (pod.shape for pod in self.kinds.examples if pod is not None)
            if sum(shape.nbytes for shape in known if shape not in there) > _BYTES_SPARE:
                self._forget()
            else:
                self._look_at = self.kinds.nbytes + max(_BYTES_SPARE, self.kinds.nbytes // 4)

    # --- reading rows ------------------------------------------------------------------------------

    def _refresh(self, rows: RowArray, now: float) -> None:
        table = self._cluster.table
        self._forget_the_gone()
        if table.size > len(self._depths):
            self._grow(len(self._kinds), table.size)
        log = table.log
        stamps = np.maximum(log.stamps(Facet.RESOURCES)[rows], log.stamps(Facet.FACTS)[rows])
        stale = self._read_at[rows] != stamps
        if stale.any():
            self._read(rows[stale], stamps[stale], now)

    def _grow(self, depth: int, size: int) -> None:
        """Makes room for pods per row, and rows."""
        before_depth, before = self._kinds.shape
        if size > before:
            self._read_at = np.concatenate((self._read_at, np.full(size - before, _NEVER, dtype=np.int64)))
            self._depths = np.concatenate((self._depths, np.zeros(size - before, dtype=np.intp)))
            self._firsts.clear()
        kinds = np.zeros((depth, size), dtype=np.int32)
        kinds[:before_depth, :before] = self._kinds
        starts = np.zeros((depth, size), dtype=np.float64)
        starts[:before_depth, :before] = self._starts
        self._kinds, self._starts = kinds, starts

    def _read(self, rows: RowArray, stamps: npt.NDArray[np.int64], now: float) -> None:
        listed: list[Pod] = []
        depths: list[int] = []
        for row in rows.tolist():
            pods = [pod for pod in self._cluster.pods_on(row).values() if self.may_leave(pod)]
            listed.extend(pods)
            depths.append(len(pods))
        number_of = self.kinds.of
        kinds = np.array([number_of(pod) for pod in listed], dtype=np.int32)
        starts = np.array([started_at(pod) for pod in listed], dtype=np.float64)
        counts = np.array(depths, dtype=np.intp)
        position = np.repeat(np.arange(len(rows)), counts)
        # Pods that have not started count as starting now: after all others, unless some are to start in the future.
        ahead = np.bincount(position[(starts > now) & (starts < NOT_STARTED)], minlength=len(rows)) > 0
        since = np.where(ahead[position] & (starts == NOT_STARTED), now, starts)
        going = np.array([pod.deleting for pod in listed], dtype=np.bool_) & (starts == NOT_STARTED)
        order = np.lexsort((going, since, -self.kinds.priorities[kinds], position))
        stamps[ahead] = _NEVER
        self._keep(rows, counts, [listed[k] for k in order.tolist()], kinds[order], starts[order])
        self._read_at[rows] = stamps

    def _keep(
        self,
        rows: RowArray,
        counts: npt.NDArray[np.intp],
        pods: list[Pod],
        kinds: KindArray,
        starts: npt.NDArray[np.float64],
    ) -> None:
        """Stores the pods of the rows, which come one after the other; `counts`: how many each has."""
        while len(self._pods) < len(self._depths):
            self._pods.append([])
        deepest = int(counts.max(initial=0))
        if deepest > len(self._kinds):
            self._grow(max(deepest, 2 * len(self._kinds)), self._kinds.shape[1])
        ends = np.cumsum(counts)
        for row, start, end in zip(rows.tolist(), (ends - counts).tolist(), ends.tolist(), strict=True):
            self._pods[row] = pods[start:end]
        at = np.arange(len(kinds)) - np.repeat(ends - counts, counts), np.repeat(rows, counts)
        self._kinds[:, rows] = 0
        self._kinds[at] = kinds
        self._starts[at] = starts
        self._depths[rows] = counts
        for _, read in self._firsts.values():
            read[rows] = _NEVER

    def read(self, rows: RowArray, now: float) -> Turns[None]:
        """Reads all that changed on these rows, in steps: what is asked about them next takes little time."""
        for at in range(0, len(rows), STEP):
            self._refresh(rows[at : at + STEP], now)
            yield

    # --- those below a priority --------------------------------------------------------------------

    def _first(self, rows: RowArray, priority: int, now: float) -> npt.NDArray[np.intp]:
        """Per row, where the pods of lower priority begin."""
        self._refresh(rows, now)
        kept = self._firsts.get(priority)
        if kept is None:
            size = len(self._depths)
            kept = np.zeros(size, dtype=np.intp), np.full(size, _NEVER, dtype=np.int64)
            self._firsts[priority] = kept
            if len(self._firsts) > _PRIORITIES_KEPT:
                self._firsts.popitem(last=False)
        else:
            self._firsts.move_to_end(priority)
        firsts, read = kept
        unknown = rows[read[rows] == _NEVER]
        if len(unknown):
            depth = int(self._depths[unknown].max())
            kinds = self._kinds[:depth, unknown]
            firsts[unknown] = np.count_nonzero((kinds > 0) & (self.kinds.priorities[kinds] >= priority), axis=0)
            read[unknown] = 0
        return firsts[rows]

    def counts(self, rows: RowArray, priority: int, now: float) -> npt.NDArray[np.intp]:
        """How many pods of lower priority each row has."""
        first = self._first(rows, priority, now)
        return self._depths[rows] - first

    def potential(self, rows: RowArray, priority: int, now: float) -> PotentialVictims:
        """The pods of lower priority, most important first."""
        first = self._first(rows, priority, now)
        counts = self._depths[rows] - first
        depth = int(counts.max(initial=0))
        steps = np.arange(depth)[:, None]
        beyond = steps >= counts
        at = np.where(beyond, 0, first + steps)
        kinds = self._kinds[at, rows]
        kinds[beyond] = 0
        return PotentialVictims(rows, kinds, counts, self._starts[at, rows])

    def pods(self, row: int, priority: int, now: float) -> list[Pod]:
        """The pods of lower priority on a row, most important first."""
        return self.pods_of(np.array([row]), priority, now)[0]

    def pods_of(self, rows: RowArray, priority: int, now: float) -> list[list[Pod]]:
        """The same for each of these rows."""
        firsts, listed = self._first(rows, priority, now).tolist(), self._pods
        # A pod whose assumption was confirmed is another object, and the row is the same.
        newest = self._cluster.pods_on
        return [
            [newest(row)[pod.uid] for pod in listed[row][first:]]
            for row, first in zip(rows.tolist(), firsts, strict=True)
        ]

    def lasting(self, rows: RowArray) -> Mask:
        """Where the order of the pods stays what it is until they change; of rows that were asked about just now."""
        lasting: Mask = self._read_at[rows] != _NEVER
        return lasting

    def potential_victims_of(self, rows: RowArray, lists: Sequence[Sequence[Pod]]) -> PotentialVictims:
        """These pods of each row, in this order."""
        depth = max(map(len, lists), default=0)
        kinds = np.zeros((depth, len(lists)), dtype=np.int32)
        starts = np.zeros((depth, len(lists)), dtype=np.float64)
        self._forget_the_gone()
        number_of = self.kinds.of
        for i, pods in enumerate(lists):
            kinds[: len(pods), i] = [number_of(pod) for pod in pods]
            starts[: len(pods), i] = [started_at(pod) for pod in pods]
        return PotentialVictims(rows, kinds, np.array([len(pods) for pods in lists], dtype=np.intp), starts)
