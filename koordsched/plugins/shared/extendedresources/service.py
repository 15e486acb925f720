"""Extended resources that nodes get from DRA instead of from a device plugin, for all plugins that count resources.

NodeResourcesFit and NodeResourcesBalancedAllocation read what DynamicResources knows: which class stands for a
resource, and how many devices of it nodes have.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from koordsched.cluster.builtinkinds import DEVICE_CLASSES
from koordsched.cluster.changelog import Facet
from koordsched.cluster.nodetable import Rows
from koordsched.cluster.state import ClusterState
from koordsched.framework.handle import Handle
from koordsched.plugins.shared.extendedresources.classes import ClassesByResource, may_have_class

GATE = "DRAExtendedResource"

Amounts = npt.NDArray[np.int64]
"""int64[rows]."""


class DeviceCounts(Protocol):
    """How many devices nodes have of the class of a resource, and how many of these are in use.

    An implementation touches a row in the facet RESOURCES when its answer about the row changes.
    """

    def track(self, resource: str) -> None:
        """From now on, the resource will be asked about."""

    def on_rows(self, resource: str, rows: Rows) -> tuple[Amounts, Amounts]:
        """(devices of the class, those in use) on each row; 0 for what no class stands for."""

    def on_row(self, resource: str, row: int) -> tuple[int, int]:
        """The same for one row."""


class ExtendedResources:
    """One per cluster: `ExtendedResources.shared(handle)`. `classes` follows the DeviceClasses of the cluster.

    When a resource gains or loses its class, rows without a device plugin for it are touched in the facet RESOURCES,
    so that cached verdicts are asked for again.
    """

    def __init__(self, cluster: ClusterState) -> None:
        self.classes = ClassesByResource()
        self._cluster = cluster
        self._table = cluster.table
        self._counts: DeviceCounts | None = None
        self._scored: dict[str, None] = {}
        self._had_class: set[str] = set()
        self.classes.on_change(self._class_of_resource_changed)
        cluster.table.served_otherwise = self.classes
        cluster.objects.of(DEVICE_CLASSES).subscribe(self.classes.class_changed)

    @staticmethod
    def shared(handle: Handle) -> ExtendedResources | None:
        """Those of the cluster; None while the feature gate is off."""
        if GATE not in handle.features:
            return None
        return handle.cluster.shared(ExtendedResources)

    def count_with(self, counts: DeviceCounts) -> None:
        """DynamicResources says who counts devices."""
        self._counts = counts
        for resource in self._scored:
            counts.track(resource)

    def scored(self, resource: str) -> ScoredDevices | None:
        """For a resource that a configuration has scored; None if no class can stand for it."""
        if not may_have_class(resource):
            return None
        self._scored[resource] = None
        if self._counts is not None:
            self._counts.track(resource)
        return ScoredDevices(self, resource)

    @property
    def counts(self) -> DeviceCounts | None:
        """The devices of nodes; None if no profile has DynamicResources."""
        return self._counts

    def _class_of_resource_changed(self, resource: str) -> None:
        has = resource in self.classes
        if has == (resource in self._had_class):
            return  # another class, or a changed one: no plugin that counts resources takes note
        (self._had_class.add if has else self._had_class.discard)(resource)
        index = self._table.resource_names.index.get(resource)
        if index is None or index >= len(self._table.allocatable):
            return  # neither pods nor nodes name it
        rows = self._table.all_rows
        absent = (self._table.allocatable[index].data[rows] == 0) & self._table.alive.data[rows]
        self._table.touch_rows(np.flatnonzero(absent), Facet.RESOURCES)
        self._cluster.overcommitments.resource_changed(index)


class ScoredDevices:
    """What scoring reads of a resource: on nodes without a device plugin, the devices of its class."""

    __slots__ = ("_extended", "_resource")

    def __init__(self, extended: ExtendedResources, resource: str) -> None:
        self._extended = extended
        self._resource = resource

    @property
    def counts(self) -> DeviceCounts | None:
        """None while there is nothing to read."""
        return self._extended.counts if self._resource in self._extended.classes else None

    def amounts(self, rows: Rows, capacity: Amounts, used: Amounts) -> tuple[Amounts, Amounts]:
        """Capacity and use on each row, where they are those of the node table unless devices are there instead."""
        counts = self.counts
        if counts is None or capacity.all():
            return capacity, used
        devices, in_use = counts.on_rows(self._resource, rows)
        instead = (capacity == 0) & (devices > 0)
        return np.where(instead, devices, capacity), np.where(instead, in_use, used)

    def amounts_on(self, row: int, capacity: int, used: int) -> tuple[int, int]:
        """The same for one row."""
        counts = self.counts
        if counts is None or capacity:
            return capacity, used
        devices, in_use = counts.on_row(self._resource, row)
        return (devices, in_use) if devices > 0 else (capacity, used)


def scored_devices(extended: ExtendedResources | None, resources: Iterable[str]) -> dict[str, ScoredDevices]:
    """Those of the resources that a configuration has scored, without those that no class can stand for."""
    if extended is None:
        return {}
    return {resource: devices for resource in resources if (devices := extended.scored(resource)) is not None}
