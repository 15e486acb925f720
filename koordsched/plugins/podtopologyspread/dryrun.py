"""Hard constraints in many dry runs at once (see `framework.dryruns`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.columns import ABSENT
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.framework.dryruns import Amounts, FilterDryRun, Tally
from koordsched.framework.status import PASS, Codes
from koordsched.plugins.podtopologyspread.constraints import Constraint
from koordsched.plugins.shared.podcounts.index import PodIndex
from koordsched.plugins.shared.podcounts.query import PodQuery


class SpreadDryRun(FilterDryRun):
    """One tally per constraint: the pods it counts. `skew` and `label` are the codes of its two refusals."""

    def __init__(self, constraints: Sequence[Constraint], pod: Pod, index: PodIndex, *, skew: int, label: int) -> None:
        self._pod = pod
        self._index = index
        self._skew = np.int32(skew)
        self._label = np.int32(label)
        self._constraints = constraints
        self.tallies = [_tally(constraint.query) for constraint in constraints]

    def filter(self, table: NodeTable, rows: RowArray, changes: Sequence[Amounts]) -> Codes | None:
        """For each row the first constraint that it violates."""
        self._index.topology.refresh()
        codes: Codes = np.zeros(len(rows), dtype=np.int32)
        for constraint, change in zip(self._constraints, changes, strict=True):
            ids = table.label_column(constraint.key).ids.data.take(rows)
            found: Codes = np.zeros(len(rows), dtype=np.int32)
            domains = constraint.domains(self._index)
            if domains is not None:
                own, lowest = domains.in_dry_runs(ids, rows, change)
                if len(domains.present) < constraint.min_domains:
                    lowest = np.zeros_like(lowest)
                itself = 1 if constraint.selects(self._pod.labels.labels) else 0
                found[own > constraint.max_skew + lowest - itself] = self._skew
            found[ids == ABSENT] = self._label
            codes = np.where(codes == PASS, found, codes)
        return codes


def _tally(query: PodQuery | None) -> Tally:
    """The pods that a query counts; terminating ones are left out."""

    def count(pod: Pod) -> int:
        return int(query is not None and not pod.deleting and query.matches(pod.namespace, pod.labels.labels))

    return Tally((SpreadDryRun, query), count)
