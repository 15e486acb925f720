"""In-tree volumes on nodes where a CSI driver has taken their plugin over: there the driver's topology label counts.

Source: csi-translation-lib `plugins/in_tree_volume.go`, upstream `volumebinding/binder.go` tryTranslatePVToCSI.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from koordsched.api.core import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from koordsched.api.storage import CSINode, PersistentVolume
from koordsched.cluster.columns import Column
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.objects import Store

MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"
"""Annotation of a CSINode: in-tree plugins, separated by commas."""

ZONE_KEYS = {
    "kubernetes.io/aws-ebs": "topology.ebs.csi.aws.com/zone",
    "kubernetes.io/gce-pd": "topology.gke.io/zone",
    "kubernetes.io/cinder": "topology.cinder.csi.openstack.org/zone",
}
"""In-tree plugin -> the zone label of the CSI driver. Drivers that use the general labels are left out."""

_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_BETA_ZONE, _BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"


class MigratedPlugins:
    """For each plugin of ZONE_KEYS, the nodes whose CSINode says that it was taken over there."""

    def __init__(self, table: NodeTable, csi_nodes: Store[CSINode]) -> None:
        self._table = table
        self._csi_nodes = csi_nodes
        self._known = table.column(np.bool_, fill=False)
        self._columns = {plugin: table.column(np.bool_, fill=False) for plugin in ZONE_KEYS}
        table.on_node(self._node_changed)
        csi_nodes.subscribe(self._csi_node_changed)

    def on(self, plugin: str) -> Column:
        """bool[rows]."""
        return self._columns[plugin]

    def _node_changed(self, row: int, node: Node) -> None:
        if not self._known.data[row]:
            self._known.data[row] = True
            self._store(row, self._csi_nodes.get("", node.metadata.name))

    def _csi_node_changed(self, old: CSINode | None, new: CSINode | None) -> None:
        changed = new or old
        assert changed is not None, "a change has an object"
        row = self._table.row_of.get(changed.metadata.name)
        if row is not None:
            self._store(row, new)

    def _store(self, row: int, csi_node: CSINode | None) -> None:
        listed = csi_node.metadata.annotations.get(MIGRATED_PLUGINS, "") if csi_node is not None else ""
        plugins = listed.split(",")
        for plugin, column in self._columns.items():
            column.data[row] = plugin in plugins


def plugin_of(volume: PersistentVolume) -> str | None:
    """The in-tree plugin of a volume, if it is one of ZONE_KEYS."""
    spec = volume.spec
    if spec.aws_elastic_block_store is not None:
        return "kubernetes.io/aws-ebs"
    if spec.gce_persistent_disk is not None:
        return "kubernetes.io/gce-pd"
    return "kubernetes.io/cinder" if spec.cinder is not None else None


def translated(volume: PersistentVolume, plugin: str) -> NodeSelector | None:
    """The volume's node affinity in terms of the driver: zones from the affinity, or else from its labels."""
    affinity = volume.spec.node_affinity
    required = affinity.required if affinity is not None else None
    terms = required.node_selector_terms if required is not None else ()
    zone, region = _general_keys(volume, terms)
    key = ZONE_KEYS[plugin]
    if any(e.values for term in terms for e in term.match_expressions if e.key == zone):
        terms = _renamed(terms, zone, key)
    elif zones := sorted({z.strip() for z in volume.metadata.labels.get(zone, "").split("__")} - {""}):
        pin = NodeSelectorRequirement(key, "In", tuple(zones))
        terms = tuple(
            replace(term, match_expressions=(*term.match_expressions, pin)) for term in terms or (NodeSelectorTerm(),)
        )
    elif required is None:
        return None
    if region == _BETA_REGION:
        terms = _renamed(terms, _BETA_REGION, _REGION)
    return NodeSelector(terms)


def _general_keys(volume: PersistentVolume, terms: tuple[NodeSelectorTerm, ...]) -> tuple[str, str]:
    """The zone and region keys that the volume uses, in its affinity if any, otherwise among its labels."""
    used = {e.key for term in terms for e in term.match_expressions}
    for keys in (used, volume.metadata.labels):
        if _ZONE in keys:
            return _ZONE, _REGION
        if _BETA_ZONE in keys:
            return _BETA_ZONE, _BETA_REGION
    return _ZONE, _REGION


def _renamed(terms: tuple[NodeSelectorTerm, ...], old: str, new: str) -> tuple[NodeSelectorTerm, ...]:
    return tuple(
        replace(
            term,
            match_expressions=tuple(replace(e, key=new) if e.key == old else e for e in term.match_expressions),
        )
        for term in terms
    )
