"""Dry runs of earlier decisions that still hold.

A wave of preemptors of one shape asks the same of the same nodes; between two of them one node changes. Where a dry
run depends on nothing but the shape, the row, who is nominated there and the budgets of the pods there, its result is
kept until one of these changes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.framework.nominations import Nominations
from koordsched.framework.shapecache import ShapeCache
from koordsched.plugins.shared.preemption.candidates import VERDICT, Verdicts
from koordsched.plugins.shared.preemption.victims import Mask

_BUDGET = 64 << 20
"""Bytes that may be kept."""
_NEVER = -1
NO_BUDGET = 0
"""Instead of the version of the budgets, where they protect no pod."""

_STAMPS = np.dtype([("changed", np.int64), ("nominations", np.int64), ("budgets", np.int64)])
Stamps = npt.NDArray[np.void]


class _Runs:
    """Of one shape, by row. `victims`: bool[depth, rows], in the order of importance."""

    __slots__ = ("stamps", "verdicts", "victims")

    def __init__(self, size: int) -> None:
        self.stamps: Stamps = np.zeros(size, dtype=_STAMPS)
        self.stamps["changed"] = _NEVER
        self.verdicts: Verdicts = np.zeros(size, dtype=VERDICT)
        self.victims: Mask = np.zeros((1, size), dtype=np.bool_)

    def reach(self, depth: int) -> None:
        """Makes room for this many pods per row."""
        if depth > len(self.victims):
            more = np.zeros((depth - len(self.victims), self.victims.shape[1]), dtype=np.bool_)
            self.victims = np.concatenate((self.victims, more))

    @property
    def nbytes(self) -> int:
        return self.stamps.nbytes + self.verdicts.nbytes + self.victims.nbytes


class RememberedRuns:
    """Results by shape and row."""

    def __init__(self, table: NodeTable, nominations: Nominations) -> None:
        self._table = table
        self._nominations = nominations
        self._runs = ShapeCache(lambda shape: _Runs(table.size), _BUDGET)

    def stamps(self, pod: Pod, nominations: npt.NDArray[np.int64], budgets: npt.NDArray[np.int64]) -> Stamps:
        """By row, what a dry run for the pod depends on. `nominations`: the stamps of nominations; `budgets`:
        their version or NO_BUDGET.

        The pod's own nomination is different for other pods of its shape: that row is never remembered.
        """
        table = self._table
        stamps: Stamps = np.zeros(table.size, dtype=_STAMPS)
        stamps["changed"] = table.log.latest[: table.size]
        stamps["budgets"] = budgets
        stamps["nominations"] = nominations
        own = table.row_of.get(self._nominations.node_of(pod.uid))
        if own is not None:
            stamps["changed"][own] = _NEVER
        return stamps

    def of(self, pod: Pod, rows: RowArray, stamps: Stamps) -> tuple[Mask, Verdicts]:
        """(bool[rows]: of which rows the result is known, the results)."""
        runs = self._of(pod)
        given = stamps[rows]
        known: Mask = (runs.stamps[rows] == given) & (given["changed"] != _NEVER)
        return known, runs.verdicts[rows]

    def victims(self, pod: Pod, row: int) -> list[int]:
        """The victims on a row whose result is known: positions among the pods of lower priority."""
        return np.flatnonzero(self._of(pod).victims[:, row]).tolist()

    def keep(self, pod: Pod, rows: RowArray, stamps: Stamps, verdicts: Verdicts, victims: Mask) -> None:
        """Remembers results. `victims`: bool[depth, rows], in the order of importance."""
        runs = self._of(pod)
        before = runs.nbytes
        runs.reach(len(victims))
        runs.stamps[rows] = stamps[rows]
        runs.verdicts[rows] = verdicts
        runs.victims[:, rows] = False
        runs.victims[: len(victims), rows] = victims
        self._runs.resized(runs.nbytes - before)

    def _of(self, pod: Pod) -> _Runs:
        return self._runs.of(pod.shape, self._table.size)
