"""NodeDeclaredFeatures: pods that need a feature of the node agent go where it is declared (default-plugins spec 3.13).

Source: component-helpers `nodedeclaredfeatures/features`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from koordsched.api.core import Node
from koordsched.cluster.changelog import Facet
from koordsched.cluster.events import NODE, POD, ActionType, ClusterEvent
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.framework.handle import Handle
from koordsched.framework.interface import PreFilterResult, ShapeFilter, ShapePreFilter
from koordsched.framework.status import SKIP, SUCCESS, Code, Codes, Status
from koordsched.plugins.shared.matching.lookup import ColumnLookup
from koordsched.plugins.shared.matching.rows import refused
from koordsched.queue.hints import HintRegistration, QueueingHint, Scope

REASON = "node(s) didn't match Pod's required features"

RESTART_ALL_CONTAINERS = "RestartAllContainersOnContainerExits"
USER_NAMESPACES_HOST_NETWORK = "UserNamespacesHostNetworkSupport"

_NONE: frozenset[str] = frozenset()


class NodeDeclaredFeatures(ShapePreFilter, ShapeFilter):
    """Refuses nodes whose status.declaredFeatures lack one that the pod's spec needs."""

    name = "NodeDeclaredFeatures"
    facets = int(Facet.FEATURES)

    def __init__(self, args: None, handle: Handle) -> None:
        """Takes no arguments."""
        self._code = handle.reasons.intern(self.name, Code.UNRESOLVABLE, REASON)
        table = handle.cluster.table
        self._declared = table.value_column(_NONE)
        table.on_node(self._store)

    def _store(self, row: int, node: Node) -> None:
        self._declared.set(row, frozenset(node.status.declared_features))

    def _compile(self, shape: PodShape) -> ColumnLookup[frozenset[str]]:
        needed = required_features(shape)
        return ColumnLookup(self._declared, lambda declared: not needed <= declared, np.bool_)

    def pre_filter_shape(self, shape: PodShape) -> PreFilterResult | Status:
        """SKIP if no feature is needed."""
        return SUCCESS if required_features(shape) else SKIP

    def filter_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Codes | None:
        """Refuses by the node's set of features."""
        lookup = shape.compiled(self, self._compile)
        lookup.refresh()
        return refused(lookup.verdicts.take(self._declared.ids.data[rows]), self._code)

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """Nodes that are new or declare other features, and the pod's own requirements."""
        return [
            HintRegistration(
                self.name,
                ClusterEvent(NODE, ActionType.ADD | ActionType.UPDATE_NODE_DECLARED_FEATURE),
                _after_node_change,
                Scope.SHAPE,
            ),
            HintRegistration(self.name, ClusterEvent(POD, ActionType.UPDATE), _after_pod_change, Scope.OWN_POD),
        ]


def required_features(shape: PodShape) -> frozenset[str]:
    """The features that a pod of this shape needs of its node."""
    spec = shape.spec
    needed = set()
    if any(
        rule.action == "RestartAllContainers"
        for container in (*spec.containers, *spec.init_containers)
        for rule in container.restart_policy_rules
    ):
        needed.add(RESTART_ALL_CONTAINERS)
    if spec.host_network and spec.host_users is False:
        needed.add(USER_NAMESPACES_HOST_NETWORK)
    return frozenset(needed)


def _after_node_change(pod: Pod, old: Any, new: Any) -> QueueingHint:
    if new is None or (old is not None and old.status.declared_features == new.status.declared_features):
        return QueueingHint.SKIP
    return QueueingHint.QUEUE


def _after_pod_change(pod: Pod, old: Any, new: Any) -> QueueingHint:
    if old is None or new is None or new.uid != pod.uid:
        return QueueingHint.SKIP
    changed = required_features(old.shape) != required_features(new.shape)
    return QueueingHint.QUEUE if changed else QueueingHint.SKIP
