"""NodeUnschedulable: no pod goes to a cordoned node unless it tolerates that (default-plugins spec 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from koordsched.api.core import Taint
from koordsched.cluster.changelog import Facet
from koordsched.cluster.events import NODE, POD, ActionType, ClusterEvent
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.framework.handle import Handle
from koordsched.framework.interface import ShapeFilter
from koordsched.framework.status import Code, Codes
from koordsched.plugins.shared.matching.rows import refused, refused_row, single
from koordsched.plugins.shared.matching.tolerations import NO_SCHEDULE, tolerations_of
from koordsched.queue.hints import HintRegistration, QueueingHint, Scope

REASON = "node(s) were unschedulable"
CORDON = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)
"""The taint that a toleration of cordoned nodes must match."""


class NodeUnschedulable(ShapeFilter):
    """Refuses nodes with spec.unschedulable."""

    name = "NodeUnschedulable"
    facets = int(Facet.TAINTS)

    def __init__(self, args: None, handle: Handle) -> None:
        """Takes no arguments."""
        self._code = handle.reasons.intern(self.name, Code.UNRESOLVABLE, REASON)

    def filter_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Codes | None:
        """Passes pods that tolerate the cordon taint everywhere."""
        row = single(rows)
        if row >= 0:
            cordoned = table.unschedulable.data[row]
            return refused_row(self._code) if cordoned and not shape.compiled(self, _tolerates) else None
        if shape.compiled(self, _tolerates):
            return None
        return refused(table.unschedulable.data[rows], self._code)

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """Nodes that become available, and the pod's own tolerations."""
        return [
            HintRegistration(
                self.name,
                ClusterEvent(NODE, ActionType.ADD | ActionType.UPDATE_NODE_TAINT),
                _after_node_change,
                Scope.SHAPE,
            ),
            HintRegistration(
                self.name, ClusterEvent(POD, ActionType.UPDATE_POD_TOLERATION), _after_pod_change, Scope.OWN_POD
            ),
        ]


def _tolerates(shape: PodShape) -> bool:
    return tolerations_of(shape).tolerate(CORDON)


def _after_node_change(pod: Pod, old: Any, new: Any) -> QueueingHint:
    available = new is not None and not new.spec.unschedulable and (old is None or old.spec.unschedulable)
    return QueueingHint.QUEUE if available else QueueingHint.SKIP


def _after_pod_change(pod: Pod, old: Any, new: Any) -> QueueingHint:
    if new is None or new.uid != pod.uid or not _tolerates(new.shape):
        return QueueingHint.SKIP
    return QueueingHint.QUEUE
