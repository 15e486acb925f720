"""The network topology of a cluster: the tree as of now, and the pods that have a selector."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import Facet
from koordsched.cluster.columns import LabelColumn
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.state import ClusterState
from koordsched.config.feature_gates import NETWORK_TOPOLOGY_MANAGER
from koordsched.plugins.coscheduling.kinds import NETWORK_TOPOLOGY_INDEX, NETWORK_TOPOLOGY_SPEC
from koordsched.plugins.coscheduling.topology.kinds import (
    CLUSTER_NETWORK_TOPOLOGIES,
    DEFAULT,
    ClusterNetworkTopology,
)
from koordsched.plugins.coscheduling.topology.layers import Layers, MalformedTopology, layers_of
from koordsched.plugins.coscheduling.topology.selected import SelectedPods
from koordsched.plugins.coscheduling.topology.tree import Amounts, Tree, build

NO_TOPOLOGY = "no cluster network topology"
"""What pods with a gathering are refused with while there is no tree."""

OFF = "the network topology manager is off (--enable-network-topology-manager)"
MISSING = f"there is no ClusterNetworkTopology named {DEFAULT}"


def network_topology(cluster: ClusterState, features: Collection[str]) -> NetworkTopology:
    """The one of the cluster, which all profiles share. To be called in the constructor of a plugin."""
    enabled = NETWORK_TOPOLOGY_MANAGER in features
    return cluster.shared(lambda state: NetworkTopology(state, enabled=enabled), key=NetworkTopology)


class _Seen(NamedTuple):
    """What a tree was made of. `ids`: of each label, the column with the number of the value of each row."""

    topology: int
    columns: tuple[LabelColumn, ...]
    serials: tuple[int, ...]
    ids: tuple[npt.NDArray[np.int32], ...]


class NetworkTopology:
    """One per cluster. `version` grows when there is another tree.

    The tree is made anew at the first call after nodes came or went, a label of a layer changed, or the object did.
    """

    def __init__(self, cluster: ClusterState, *, enabled: bool) -> None:
        self.enabled = enabled
        self.version = 0
        self._table = cluster.table
        cluster.read_annotations |= {NETWORK_TOPOLOGY_SPEC, NETWORK_TOPOLOGY_INDEX}
        self._store = None
        self._selected = None
        if enabled:
            self._store = cluster.objects.of(CLUSTER_NETWORK_TOPOLOGIES)
            self._store.restrict("", DEFAULT)
            self._selected = cluster.shared(SelectedPods)
        self._object: ClusterNetworkTopology | None = None
        self._layers: Layers | None = None
        self._problem = MISSING if enabled else OFF
        self._tree: Tree | None = None
        self._seen: _Seen | None = None
        self._labels_read = -1
        self._store_read = -1

    @property
    def object(self) -> ClusterNetworkTopology | None:
        """The ClusterNetworkTopology, if there is one."""
        return self._store.get("", DEFAULT) if self._store is not None else None

    @property
    def names(self) -> list[str]:
        """The name of the node on each row of the table."""
        return self._table.names

    @property
    def problem(self) -> str:
        """Why there is no tree; "" if there is one."""
        self._read_object()
        return self._problem

    @property
    def warnings(self) -> tuple[str, ...]:
        """What works in the object, but is hardly meant."""
        self._read_object()
        return self._layers.warnings if self._layers is not None else ()

    def tree(self) -> Tree | None:
        """The tree as of now; None if there is none. The same object until it changes."""
        self._read_object()
        if self._layers is None:
            return None
        if self._tree is None or self._changed(self._layers):
            self._tree = build(self._layers, self._table)
            self._seen = _seen(self._layers, self._table)
            self._labels_read = self._table.log.serial
            self.version += 1
        return self._tree

    def existing(self, selector: str) -> Amounts | None:
        """int64[rows]: the pods with this selector on each row, assumed ones included; None without a selector."""
        if not selector or self._selected is None:
            return None
        return self._selected.on_rows(selector, self._table.size)

    def _read_object(self) -> None:
        if self._store is None or self._store_read == self._store.version:
            return
        self._store_read = self._store.version
        found = self.object
        if found is not None and self._object is not None and found.spec == self._object.spec:
            self._object = found  # the status, mostly
            return
        self._object = found
        self._tree = self._layers = None
        self._problem = MISSING
        self.version += 1
        if found is not None:
            try:
                self._layers, self._problem = layers_of(found), ""
            except MalformedTopology as error:
                self._problem = str(error)

    def _changed(self, layers: Layers) -> bool:
        seen, table = self._seen, self._table
        if seen is None or seen.topology != table.topology_version:
            return True
        if len(table.log.since(self._labels_read, Facet.LABELS, table.size)):
            now = _seen(layers, table)
            if now.serials != seen.serials or not all(a is b for a, b in zip(now.columns, seen.columns, strict=True)):
                return True
            if not all(np.array_equal(a, b) for a, b in zip(now.ids, seen.ids, strict=True)):
                return True
        self._labels_read = table.log.serial
        return False


def _seen(layers: Layers, table: NodeTable) -> _Seen:
    columns = tuple(table.label_column(key) for keys in layers.keys for key in keys)
    return _Seen(
        table.topology_version,
        columns,
        tuple(column.serial for column in columns),
        tuple(column.ids.data[: table.size].copy() for column in columns),
    )
