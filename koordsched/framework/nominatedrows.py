"""Room of nominated pods: the verdict on their rows as if they were there already.

Hundreds of pods may be nominated while their victims terminate, and every cycle must respect all of them (core spec
3.6, step 6). Where only shape plugins take part, a verdict depends on the shape, the row and who is nominated there, so
it is kept until one of these changes. The set of these rows is updated change by change, so that a cycle only visits
what changed, not all nominated pods.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.nominations import Nominations
from koordsched.framework.plan import ShapePlan
from koordsched.framework.shapecache import ShapeCache
from koordsched.framework.status import Codes

Stamps = npt.NDArray[np.int64]

_PRIORITIES_KEPT = 16
_BUDGET = 16 << 20
"""Bytes of verdicts that may be kept."""
_NONE_LEFT = -1


class _Rows:
    """Where pods of some priority or more are nominated: per row the latest change of nominations to it, 0 if none."""

    __slots__ = ("stamps", "topology", "version")

    def __init__(self, stamps: Stamps, topology: int, version: int) -> None:
        self.stamps = stamps
        self.topology = topology
        self.version = version


class _Verdicts:
    """Of one shape, by row: the code, and the latest changes of the row and of nominations to it when it was found."""

    __slots__ = ("changed", "codes", "stamps")

    def __init__(self, size: int) -> None:
        self.changed = np.full(size, -1, dtype=np.int64)
        self.stamps: Stamps = np.zeros(size, dtype=np.int64)
        self.codes: Codes = np.zeros(size, dtype=np.int32)

    @property
    def nbytes(self) -> int:
        return self.changed.nbytes + self.stamps.nbytes + self.codes.nbytes


class NominatedRows:
    """The rows that other pods are nominated to, for the pods of one profile."""

    def __init__(self, cluster: ClusterState, nominations: Nominations) -> None:
        self._cluster = cluster
        self._nominations = nominations
        self._rows: OrderedDict[int, _Rows] = OrderedDict()
        self._verdicts = ShapeCache(lambda shape: _Verdicts(cluster.table.size), _BUDGET)

    def __len__(self) -> int:
        """How many pods are nominated, to whatever node."""
        return len(self._nominations)

    def nominated_on(self, row: int, pod: Pod) -> list[Pod]:
        """The pods of at least this pod's priority nominated to a row, itself left out."""
        node = self._cluster.table.names[row]
        return [other for other in self._nominations.nominated_on(node, pod.priority) if other.uid != pod.uid]

    def stamps(self, priority: int) -> Stamps:
        """By row, a number that is another one after every change of the nominations to it; 0 where no pod of at least
        this priority is nominated. Not to be changed by the caller.
        """
        nominations, table = self._nominations, self._cluster.table
        kept = self._rows.get(priority)
        if kept is not None:
            self._rows.move_to_end(priority)
            if kept.version == nominations.version and kept.topology == table.topology_version:
                return kept.stamps
        changed = nominations.changed_since(kept.version) if kept is not None else None
        if kept is None or changed is None or kept.topology != table.topology_version:
            stamps = np.zeros(table.size, dtype=np.int64)
            changed = nominations.nodes_nominated_at_least(priority)
            self._rows[priority] = kept = _Rows(stamps, table.topology_version, nominations.version)
            if len(self._rows) > _PRIORITIES_KEPT:
                self._rows.popitem(last=False)
        for node in changed:
            row = table.row_of.get(node)
            if row is not None:
                some = nominations.nominated_on(node, priority)
                kept.stamps[row] = nominations.stamp_of(node) if some else 0
        kept.version = nominations.version
        return kept.stamps

    def rows(self, pod: Pod) -> RowArray:
        """Rows to which pods of at least this pod's priority are nominated, itself perhaps included."""
        return np.flatnonzero(self.stamps(pod.priority))

    def codes(self, pod: Pod, plan: ShapePlan) -> tuple[RowArray, Codes]:
        """(rows, the verdict on each as if the pods nominated to it were there, by the shape plugins alone)."""
        stamps = self.stamps(pod.priority)
        rows = np.flatnonzero(stamps)
        if not len(rows):
            return rows, np.zeros(0, dtype=np.int32)
        table = self._cluster.table
        verdicts = self._verdicts.of(pod.shape, table.size)
        changed = table.log.latest[rows]
        stale = (verdicts.changed[rows] != changed) | (verdicts.stamps[rows] != stamps[rows])
        codes = verdicts.codes[rows]
        own = table.row_of.get(self._nominations.node_of(pod.uid))
        is_own = rows == own if own is not None else np.zeros(len(rows), dtype=np.bool_)
        asked = np.flatnonzero(stale | is_own)
        if len(asked):
            found = [self.nominated_on(row, pod) for row in rows[asked].tolist()]
            codes[asked] = self._evaluated(plan, rows[asked], found)
            kept = asked[~is_own[asked]]
            verdicts.codes[rows[kept]] = codes[kept]
            verdicts.stamps[rows[kept]] = stamps[rows[kept]]
            verdicts.changed[rows[kept]] = changed[kept]
            alone = codes == _NONE_LEFT
            if alone.any():
                rows, codes = rows[~alone], codes[~alone]
        return rows, codes

    def _evaluated(self, plan: ShapePlan, rows: RowArray, nominated: list[list[Pod]]) -> Codes:
        """The verdicts with these pods on the rows; every row is a dry run of its own, so all are asked at once.

        _NONE_LEFT where no other pod is nominated.
        """
        at: slice | RowArray = slice(int(rows[0]), int(rows[0]) + 1) if len(rows) == 1 else rows
        coming = [(row, other) for row, others in zip(rows.tolist(), nominated, strict=True) for other in others]
        with self._cluster.what_if(add=coming):
            codes: Codes = plan.filter_nodes(self._cluster.table, at)
        codes[[not others for others in nominated]] = _NONE_LEFT
        return codes
