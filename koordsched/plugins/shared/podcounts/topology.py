"""What of the nodes decides about domains: when labels and taints changed, and which nodes count for which pods."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakValueDictionary

import msgspec
import numpy as np

from koordsched.api.core import Node, Taint, Toleration
from koordsched.cluster.changelog import Facet
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.shape import PodShape
from koordsched.cluster.state import ClusterState
from koordsched.plugins.shared.matching.lookup import ColumnLookup
from koordsched.plugins.shared.matching.nodeselector import NodeSelectors, RequiredNodes
from koordsched.plugins.shared.matching.rows import Mask
from koordsched.plugins.shared.matching.tolerations import Tolerations, keeps_away

_LABELS, _TAINTS = int(Facet.LABELS), int(Facet.TAINTS)


class Topology:
    """Counts the changes of node labels and taints, so that what follows from them is derived once per change.

    `labels`, `taints`: grow with every change; valid after `refresh`.
    """

    def __init__(self, cluster: ClusterState) -> None:
        self.table = cluster.table
        self.labels = 0
        self.taints = 0
        self._serial = 0
        self._selectors = NodeSelectors()
        self._eligible: WeakValueDictionary[tuple[object, ...], EligibleNodes] = WeakValueDictionary()
        self._encode = msgspec.json.Encoder().encode
        self.everywhere = EligibleNodes(self, (), None, None)
        """All nodes."""

    def refresh(self) -> None:
        """Looks at what happened since the last call."""
        log = self.table.log
        if log.serial == self._serial:
            return
        changed = log.since(self._serial, _LABELS | _TAINTS, self.table.size)
        self._serial = log.serial
        if not isinstance(changed, list):
            if len(changed):
                self.labels += 1
                self.taints += 1
            return
        for _, facets in changed:
            self.labels += bool(facets & _LABELS)
            self.taints += bool(facets & _TAINTS)

    def eligible(
        self, keys: Sequence[str], shape: PodShape, *, honor_affinity: bool, honor_taints: bool
    ) -> EligibleNodes:
        """The nodes that have all these label keys and that the pod's own selector, or its tolerations, admit."""
        spec = shape.spec
        affinity = spec.affinity.node_affinity if spec.affinity is not None else None
        required = affinity.required if affinity is not None else None
        by_affinity = honor_affinity and bool(spec.node_selector or required is not None)
        identity = (
            tuple(sorted(set(keys))),
            self._encode((spec.node_selector, required)) if by_affinity else b"",
            self._encode(spec.tolerations) if honor_taints else None,
        )
        found = self._eligible.get(identity)
        if found is None:
            nodes = self._selectors.required_by(spec) if by_affinity else None
            found = EligibleNodes(self, identity[0], nodes, spec.tolerations if honor_taints else None)
            self._eligible[identity] = found
        return found


class EligibleNodes:
    """A set of nodes that follows their labels and taints.

    `mask`: bool[rows]; `version` grows when the mask, or anything else about labels, may have changed. Valid
    after `refresh`.
    """

    __slots__ = ("__weakref__", "_keys", "_nodes", "_taints", "_topology", "mask", "version")

    def __init__(
        self,
        topology: Topology,
        keys: tuple[str, ...],
        nodes: RequiredNodes | None,
        tolerations: tuple[Toleration, ...] | None,
    ) -> None:
        self._topology = topology
        self._keys = keys
        self._nodes = nodes
        self._taints: ColumnLookup[tuple[Taint, ...]] | None = None
        if tolerations is not None:
            own = Tolerations(tolerations)
            self._taints = ColumnLookup(topology.table.taints, lambda taints: not keeps_away(own, taints), np.bool_)
        self.mask: Mask = np.zeros(0, dtype=np.bool_)
        self.version = (-1, -1)

    def refresh(self) -> None:
        """Brings the mask up to date; `Topology.refresh` comes first."""
        topology = self._topology
        version = (topology.labels, topology.taints if self._taints is not None else 0)
        if version == self.version:
            return
        self.version = version
        self.mask = self._compute(topology.table)

    def selects(self, node: Node) -> bool:
        """Whether the pod's own selector, if it counts here, admits a node as the watch delivered it."""
        return self._nodes is None or self._nodes.matches(node)

    def _compute(self, table: NodeTable) -> Mask:
        rows = table.all_rows
        mask: Mask = table.alive.data[rows].copy()
        for key in self._keys:
            mask &= table.label_column(key).ids.data[rows] != 0
        if self._nodes is not None:
            mask &= self._nodes.mask(table, rows)
        if self._taints is not None:
            self._taints.refresh()
            mask &= self._taints.verdicts.take(table.taint_set.data[rows])
        return mask
