"""NodePorts: a host port is taken by one pod per node (default-plugins spec 3.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from koordsched.cluster.changelog import Facet
from koordsched.cluster.events import NODE, POD, ActionType, ClusterEvent
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.pod import Pod
from koordsched.cluster.ports import WILDCARD, HostPort, rows_in, shape_ports
from koordsched.cluster.shape import PodShape
from koordsched.framework.handle import Handle
from koordsched.framework.interface import PreFilterResult, ShapeFilter, ShapePreFilter
from koordsched.framework.status import SKIP, SUCCESS, Code, Codes, Status
from koordsched.plugins.shared.matching.rows import refused, refused_row, single
from koordsched.queue.hints import HintRegistration, QueueingHint, Scope

REASON = "node(s) didn't have free ports for the requested pod ports"


class NodePorts(ShapePreFilter, ShapeFilter):
    """Refuses nodes where one of the pod's host ports is taken."""

    name = "NodePorts"
    facets = int(Facet.PORTS)

    def __init__(self, args: None, handle: Handle) -> None:
        """Takes no arguments."""
        self._code = handle.reasons.intern(self.name, Code.UNSCHEDULABLE, REASON)

    def pre_filter_shape(self, shape: PodShape) -> PreFilterResult | Status:
        """SKIP without host ports."""
        return SUCCESS if shape_ports(shape) else SKIP

    def filter_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Codes | None:
        """Refuses by the ports in use."""
        taken = table.ports.conflicts(shape_ports(shape))
        if not taken:
            return None
        row = single(rows)
        if row >= 0:
            return refused_row(self._code) if any(row in on for on in taken) else None
        conflicts = np.zeros(table.size, dtype=np.bool_)
        conflicts[rows_in(taken)] = True
        return refused(conflicts[rows], self._code)

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """Every new node, and deleted pods that held one of the ports."""
        return [
            HintRegistration(self.name, ClusterEvent(NODE, ActionType.ADD), None, Scope.SHAPE),
            HintRegistration(self.name, ClusterEvent(POD, ActionType.DELETE), _after_pod_deleted, Scope.SHAPE),
        ]


def _after_pod_deleted(pod: Pod, old: Any, new: Any) -> QueueingHint:
    if old is None or not (old.node or old.nominated_node):
        return QueueingHint.SKIP
    freed = shape_ports(old.shape)
    shares = any(_conflict(wanted, port) for wanted in shape_ports(pod.shape) for port in freed)
    return QueueingHint.QUEUE if shares else QueueingHint.SKIP


def _conflict(a: HostPort, b: HostPort) -> bool:
    return a[1:] == b[1:] and (a[0] == b[0] or WILDCARD in (a[0], b[0]))
