"""Dry runs of earlier decisions that still hold.

A wave of preemptors of one shape asks the same of the same nodes; between two of them one node changes. Where a dry
run depends on nothing but the shape, the row and who is nominated there (see `lockstep`), its result is kept until
one of these changes.
"""

from __future__ import annotations

from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.framework.nominations import Nominations
from koordsched.plugins.preemption.candidates import Candidate

_Kept = dict[int, tuple[int, int, Candidate | int]]
"""Row -> its latest change, the latest change of nominations to its node, and the result."""


class RememberedRuns:
    """Results by shape and row; they go with the shape."""

    def __init__(self, table: NodeTable, nominations: Nominations) -> None:
        self._table = table
        self._nominations = nominations

    def of(self, pod: Pod, row: int) -> Candidate | int | None:
        """The result for the row, None if it has to be found anew.

        What is promised to the pod itself is different for other pods of its shape: that row is never remembered.
        """
        kept: _Kept = pod.shape.compiled(self, _nothing_kept)
        known = kept.get(row)
        if known is None or known[0] != self._table.log.changed_at(row):
            return None
        node = self._table.names[row]
        if known[1] != self._nominations.stamp_of(node) or node == self._nominations.node_of(pod.uid):
            return None
        return known[2]

    def keep(self, pod: Pod, row: int, result: Candidate | int) -> None:
        """Remembers a result, unless a victim has not started: such pods count as starting now."""
        node = self._table.names[row]
        if node == self._nominations.node_of(pod.uid):
            return
        if isinstance(result, Candidate) and any(victim.start_time is None for victim in result.victims):
            return
        kept: _Kept = pod.shape.compiled(self, _nothing_kept)
        kept[row] = (self._table.log.changed_at(row), self._nominations.stamp_of(node), result)


def _nothing_kept(shape: PodShape) -> _Kept:
    return {}
