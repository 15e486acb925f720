"""Room promised to nominated pods: the verdict on their rows as if they were there already.

Hundreds of pods may be nominated while their victims go, and every cycle has to respect all of them (core spec 3.6,
step 6). Where only NODE plugins take part, a verdict depends on the shape, the row and who is nominated there, so it
is kept until one of these changes.
"""

from __future__ import annotations

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.cluster.state import ClusterState
from koordsched.framework.nominations import Nominations
from koordsched.framework.plan import ShapePlan
from koordsched.framework.status import Codes

Promised = list[tuple[int, list[Pod]]]
"""Rows, and the pods nominated to them that the pod in question has to respect."""

_Kept = dict[int, tuple[int, int, int]]
"""Row -> its latest change, the latest change of nominations to its node, and the verdict."""


class Promises:
    """The rows promised to others, for the pods of one profile."""

    def __init__(self, cluster: ClusterState, nominations: Nominations) -> None:
        self._cluster = cluster
        self._nominations = nominations

    def nominated_on(self, row: int, pod: Pod) -> list[Pod]:
        """The pods of at least this pod's priority nominated to a row, itself left out."""
        node = self._cluster.table.names[row]
        return [other for other in self._nominations.nominated_on(node, pod.priority) if other.uid != pod.uid]

    def rows(self, pod: Pod) -> set[int]:
        """Rows to which pods of at least this pod's priority are nominated, itself perhaps included."""
        row_of = self._cluster.table.row_of
        nodes = self._nominations.nodes_nominated_at_least(pod.priority)
        return {row for node in nodes if (row := row_of.get(node)) is not None}

    def to_others(self, pod: Pod) -> Promised:
        """The promised rows with those nominated there."""
        return [(row, others) for row in self.rows(pod) if (others := self.nominated_on(row, pod))]

    def codes(self, pod: Pod, plan: ShapePlan) -> list[tuple[int, int]]:
        """(row, code) of every promised row, as if the nominated pods were there, by the NODE plugins alone."""
        table, nominations = self._cluster.table, self._nominations
        nodes = nominations.nodes_nominated_at_least(pod.priority)
        if not nodes:
            return []
        own = nominations.node_of(pod.uid)
        kept: _Kept = pod.shape.compiled(self, _nothing_kept)
        found: list[tuple[int, int]] = []
        stale: Promised = []
        changed_at = table.log.changed_at
        row_of = table.row_of
        for node in nodes:
            row = row_of.get(node)
            if row is None:
                continue
            if node != own:
                known = kept.get(row)
                if known is not None and known[0] == changed_at(row) and known[1] == nominations.stamp_of(node):
                    found.append((row, known[2]))
                    continue
            others = self.nominated_on(row, pod)
            if others:
                stale.append((row, others))
        for row, code in self._evaluated(plan, stale):
            found.append((row, code))
            node = table.names[row]
            if node != own:
                kept[row] = (changed_at(row), nominations.stamp_of(node), code)
        return found

    def _evaluated(self, plan: ShapePlan, promised: Promised) -> list[tuple[int, int]]:
        """Every row is a world of its own, so all are asked at once."""
        if not promised:
            return []
        rows = [row for row, _ in promised]
        at: slice | RowArray = slice(rows[0], rows[0] + 1) if len(rows) == 1 else np.array(rows, dtype=np.intp)
        with self._cluster.what_if(add=[(row, other) for row, others in promised for other in others]):
            codes: Codes = plan.filter_nodes(self._cluster.table, at)
        return list(zip(rows, codes.tolist(), strict=True))


def _nothing_kept(shape: PodShape) -> _Kept:
    return {}
