"""How large a volume a CSI driver can still provision for each node, from CSIStorageCapacity objects.

Source: upstream `volumebinding/binder.go` hasEnoughCapacity; default-plugins spec 3.11.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from koordsched.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from koordsched.api.meta import LabelSelector
from koordsched.api.quantity import QuantityError, value
from koordsched.api.storage import CSIStorageCapacity
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.objects import Store
from koordsched.plugins.shared.matching.nodeselector import NodeSelectors
from koordsched.plugins.volumebinding.rowgroups import RowGroups

NOTHING = -1
"""Limit where no capacity is known: not even a volume of size 0 fits."""

Sizes = npt.NDArray[np.int64]

_SPARE = 64
"""There may be twice as many topologies as capacities, and this many more, before those of the past are forgotten."""


def limit_of(capacity: CSIStorageCapacity) -> int | None:
    """The largest volume in bytes: maximumVolumeSize, or else the whole capacity; None if neither is known."""
    quantity = capacity.maximum_volume_size if capacity.maximum_volume_size is not None else capacity.capacity
    try:
        return value(quantity) if quantity is not None else None
    except QuantityError:
        return None


class _ClassCapacity:
    """The capacities of one class. Those for a node topology that selects every node are kept apart."""

    def __init__(self, table: NodeTable, selectors: NodeSelectors) -> None:
        self._table = table
        self._selectors = selectors
        self._known: dict[tuple[str, str], tuple[NodeSelector | None, int]] = {}
        self._start_over()

    def _start_over(self) -> None:
        self._groups = RowGroups(self._table, self._selectors)
        self._limits: list[dict[tuple[str, str], int]] = []
        self._everywhere: dict[tuple[str, str], int] = {}
        self._stale = True
        self._version = -1
        self._by_group: Sizes = np.zeros(0, dtype=np.int64)
        self._where: dict[tuple[str, str], dict[tuple[str, str], int]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def put(self, key: tuple[str, str], topology: NodeSelector | None, limit: int) -> None:
        """A capacity object appeared; a topology of None is every node."""
        self._known[key] = topology, limit
        if topology is None:
            limits = self._everywhere
        else:
            number = self._groups.add(topology)
            while len(self._limits) <= number:
                self._limits.append({})
            limits = self._limits[number]
        limits[key] = limit
        self._where[key] = limits
        self._stale = True

    def drop(self, key: tuple[str, str]) -> None:
        """It is gone."""
        if self._known.pop(key, None) is None:
            return
        del self._where.pop(key)[key]
        self._stale = True
        # Drivers of local storage have a topology for every node, and nodes come and go.
        if len(self._groups) > 2 * len(self._known) + _SPARE:
            self._start_over()
            for other, (topology, limit) in self._known.items():
                self.put(other, topology, limit)

    def by_row(self) -> Sizes:
        """int64[rows]: the largest volume that can be had for the node of each row."""
        self._groups.refresh()
        if self._stale or self._version != self._groups.version:
            best = np.array([max(limits.values(), default=NOTHING) for limits in self._limits], dtype=np.int64)
            self._by_group = np.full(
                self._groups.count, max(self._everywhere.values(), default=NOTHING), dtype=np.int64
            )
            groups, selectors = self._groups.matches
            np.maximum.at(self._by_group, groups, best[selectors])
            self._version, self._stale = self._groups.version, False
        return self._by_group[self._groups.of_row]


class StorageCapacities:
    """All capacities, by class."""

    def __init__(self, table: NodeTable, capacities: Store[CSIStorageCapacity]) -> None:
        self._table = table
        self._selectors = NodeSelectors()
        self._classes: dict[str, _ClassCapacity] = {}
        capacities.subscribe(self._changed)

    def by_row(self, class_name: str) -> Sizes:
        """int64[rows]: the largest volume of the class that can be had for the node of each row, or NOTHING."""
        known = self._classes.get(class_name)
        return known.by_row() if known is not None else np.full(self._table.size, NOTHING, dtype=np.int64)

    def _changed(self, old: CSIStorageCapacity | None, new: CSIStorageCapacity | None) -> None:
        if old is not None and (known := self._classes.get(old.storage_class_name)) is not None:
            known.drop((old.metadata.namespace, old.metadata.name))
            if not len(known) and new is None:
                del self._classes[old.storage_class_name]
        if new is None or new.node_topology is None:
            return
        limit = limit_of(new)
        if limit is not None:
            known = self._classes.get(new.storage_class_name)
            if known is None:
                known = self._classes[new.storage_class_name] = _ClassCapacity(self._table, self._selectors)
            known.put((new.metadata.namespace, new.metadata.name), _as_node_selector(new.node_topology), limit)


def _as_node_selector(topology: LabelSelector) -> NodeSelector | None:
    """A label selector as a node selector; None if it selects everything."""
    if not topology.match_labels and not topology.match_expressions:
        return None
    requirements = [NodeSelectorRequirement(key, "In", (v,)) for key, v in sorted(topology.match_labels.items())]
    requirements += [NodeSelectorRequirement(e.key, e.operator, e.values) for e in topology.match_expressions]
    return NodeSelector((NodeSelectorTerm(tuple(requirements)),))
