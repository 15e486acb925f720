"""NodeName: a pod that names its node goes nowhere else (default-plugins spec 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.events import NODE, ActionType, ClusterEvent
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Handle
from koordsched.framework.interface import CycleState, PodFilter
from koordsched.framework.status import Code, Codes
from koordsched.plugins.shared.matching.rows import refused
from koordsched.queue.hints import HintRegistration, Scope

REASON = "node(s) didn't match the requested node name"


class NodeName(PodFilter):
    """Refuses the nodes that are not spec.nodeName, if the pod has one.

    Such a pod counts as placed and never comes to a scheduling cycle; only `explain` evaluates it, to show where
    else it would fit.
    """

    name = "NodeName"

    def __init__(self, args: None, handle: Handle) -> None:
        """Takes no arguments."""
        self._code = handle.reasons.intern(self.name, Code.UNRESOLVABLE, REASON)

    def skips(self, pod: Pod) -> bool:
        """Pods without a node name, which is to say all pending ones."""
        return not pod.node

    def filter(self, cycle: CycleState, pod: Pod, table: NodeTable, rows: RowArray) -> Codes | None:
        """Passes the named node only."""
        if not pod.node:
            return None
        return refused(np.asarray(rows != table.row_of.get(pod.node, -1)), self._code)

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """Every new node."""
        return [HintRegistration(self.name, ClusterEvent(NODE, ActionType.ADD), None, Scope.SHAPE)]
