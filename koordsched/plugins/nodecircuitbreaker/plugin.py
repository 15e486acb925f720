"""The plugin: keeps pods from nodes whose breaker is open, and lets one at a time try those that are half-open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from koordsched.cluster.events import NODE, ActionType, ClusterEvent
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.framework.handle import Handle
from koordsched.framework.interface import CycleState, Reserve, ShapeFilter
from koordsched.framework.status import SUCCESS, Code, Codes, Status
from koordsched.plugins.nodecircuitbreaker.args import NodeCircuitBreakerArgs
from koordsched.plugins.nodecircuitbreaker.breakers import PASSABLE, Breakers
from koordsched.plugins.nodecircuitbreaker.record import OPEN, PROBED
from koordsched.queue.hints import HintRegistration, QueueingHint, Scope

IS_OPEN = "node(s) had an open circuit breaker"
IS_PROBED = "node(s) had a half-open circuit breaker and a pod on trial"


class NodeCircuitBreaker(ShapeFilter, Reserve):
    """Refuses with UNRESOLVABLE: evicting pods does not repair a node.

    Pods of DaemonSets pass, and are no probes: what a node lacks may be one of them, such as its network.
    """

    name = "NodeCircuitBreaker"
    facets: int

    def __init__(self, args: NodeCircuitBreakerArgs, handle: Handle) -> None:
        self._handle = handle
        self.breakers = Breakers.shared(args, handle)
        self.facets = self.breakers.facet
        handle.cluster.shape_facts.declare(owner_kinds=["DaemonSet"])
        reasons = handle.reasons
        self._open = reasons.intern(self.name, Code.UNRESOLVABLE, IS_OPEN)
        self._probed = reasons.intern(self.name, Code.UNRESOLVABLE, IS_PROBED)

    def filter_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Codes | None:
        """By the state of the breaker alone."""
        if not self.breakers.records or _passes(shape):
            return None
        states = self.breakers.state.data[rows]
        codes = (states == OPEN) * np.int32(self._open) + (states == PROBED) * np.int32(self._probed)
        return codes if codes.any() else None

    def reserve(self, cycle: CycleState, pod: Pod, row: int) -> Status:
        """On a half-open node the pod is the probe, unless it never starts: a virtual one."""
        if _passes(pod.shape):
            return SUCCESS
        if not (self.breakers.admits(row) if pod.virtual else self.breakers.begin_probe(pod, row)):
            # The state changed while an extender was asked. The pod is tried again at once, because other nodes may
            # fit.
            self._handle.activate((pod,))
            is_open = self.breakers.state.data.item(row) == OPEN
            return Status(Code.UNSCHEDULABLE, (IS_OPEN if is_open else IS_PROBED,))
        return SUCCESS

    def unreserve(self, cycle: CycleState, pod: Pod, row: int) -> None:
        """It is not."""
        self.breakers.end_probe(pod.uid)

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """New nodes, and nodes that accept pods again.

        Also if they have no room: the attempt shows what refuses the pod there, whose events wake it from then on.
        """
        return [
            HintRegistration(self.name, PASSABLE, self._after_passable, Scope.SHAPE),
            HintRegistration(
                self.name, ClusterEvent(NODE, ActionType.ADD | ActionType.UPDATE_NODE_TAINT), None, Scope.SHAPE
            ),
        ]

    def _after_passable(self, pod: Pod, old: Any, node: str) -> QueueingHint:
        return QueueingHint.QUEUE if node in self._handle.cluster.table.row_of else QueueingHint.SKIP


def _passes(shape: PodShape) -> bool:
    return "DaemonSet" in shape.meta.owner_kinds
