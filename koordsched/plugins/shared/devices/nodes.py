"""Keeps the columns in step with nodes and with the reports of their agents."""

from __future__ import annotations

from functools import partial

from koordsched.api import core
from koordsched.cluster.events import ActionType, ClusterEvent, EventResource
from koordsched.cluster.state import ClusterState
from koordsched.framework.handle import WARNING, Handle
from koordsched.framework.timers import Timer
from koordsched.plugins.shared.devices import kinds
from koordsched.plugins.shared.devices.columns import DeviceColumns
from koordsched.plugins.shared.devices.inventory import Equipment
from koordsched.plugins.shared.devices.kinds import DEVICES, Device
from koordsched.plugins.shared.devices.reading import Reading, invalidated, read

DEVICES_CHANGED = ClusterEvent(
    EventResource("devices.v1alpha1.scheduling.koordinator.sh"), ActionType.UPDATE, "DevicesChanged"
)
"""Announced when the devices of a known node, or what may be allocated of them, have changed; comes with the row."""

NODE_EXPECTED_WITHIN = 60.0
"""Seconds. Nodes and Devices are watched apart from each other, so one of them may be seen first for a while."""

NOTHING_REPORTED = Reading(Equipment(), (), None)


class NodeDevices:
    """What is known of the devices of a node: the report as it was read, and problems that Events have reported.

    `missed`: the timer that went, or goes, off because there is a Device and no node.
    """

    __slots__ = ("deleted", "missed", "reading", "told")

    def __init__(self) -> None:
        self.reading = NOTHING_REPORTED
        self.deleted = False
        self.told: tuple[str, ...] = ()
        self.missed: Timer | None = None


class DeviceNodes:
    """One for all profiles."""

    def __init__(self, cluster: ClusterState, handle: Handle) -> None:
        self._cluster = cluster
        self._events, self._timers, self._clock = handle.events, handle.timers, handle.clock
        self.columns = cluster.shared(DeviceColumns)
        self._by_name: dict[str, NodeDevices] = {}
        self._name_of: dict[int, str] = {}
        """By row, as rows lose their names before they are removed."""
        cluster.read_annotations.add(kinds.GPU_PARTITIONS)
        cluster.table.on_node(self._node_changed)
        cluster.table.on_removal(self._node_removed)
        devices = cluster.objects.of(DEVICES)
        self._departed = devices.departed
        devices.subscribe(self._reported)

    def of_node(self, name: str) -> NodeDevices | None:
        """What is known of a node; None without node and report."""
        return self._by_name.get(name)

    def not_well_planned(self) -> list[str]:
        """The nodes whose Device says that their secondary devices are not well planned."""
        return [name for name, node in self._by_name.items() if node.reading.well_planned is False and not node.deleted]

    def _reported(self, old: Device | None, new: Device | None) -> None:
        device = new or old
        assert device is not None, "an event has an object"
        name = device.metadata.name
        node = self._by_name.setdefault(name, NodeDevices())
        row = self._cluster.table.row_of.get(name)
        if new is not None:
            node.reading, node.deleted = read(new), False
            self._departed.pop(("", name), None)
            if node.reading.problems and node.reading.problems != node.told:
                self._events.event(
                    DEVICES, new.metadata, WARNING, "InvalidDevice", "; ".join(node.reading.problems)[:1024]
                )
            node.told = node.reading.problems
            if row is None:
                self._expect(name, node)
        elif row is None:
            self._found(node)
            del self._by_name[name]
            return
        else:
            node.deleted = True
            self._departed["", name] = device
            node.reading = node.reading._replace(equipment=invalidated(node.reading.equipment), problems=())
        wire = self._cluster.table.nodes[row] if row is not None else None
        if row is not None and wire is not None and self._fill(row, wire, node):
            self._cluster.announce(DEVICES_CHANGED, None, row)

    def _expect(self, name: str, node: NodeDevices) -> None:
        """There is a Device and no node: waits for the node."""
        if node.missed is None:
            when = self._clock.monotonic() + NODE_EXPECTED_WITHIN
            node.missed = self._timers.at(when, partial(self._missing, name))

    @staticmethod
    def _found(node: NodeDevices) -> None:
        """There is a node, or no Device any more."""
        if node.missed is not None:
            node.missed.cancel()
            node.missed = None

    def _missing(self, name: str) -> None:
        device = self._cluster.objects.of(DEVICES).get("", name)
        if device is not None:
            message = f"there is no node {name}: the devices are not used"
            self._events.event(DEVICES, device.metadata, WARNING, "NodeNotFound", message)

    def _node_changed(self, row: int, wire: core.Node) -> None:
        name = wire.metadata.name
        new = row not in self._name_of
        self._name_of[row] = name
        node = self._by_name.setdefault(name, NodeDevices())
        self._found(node)
        changed = self._fill(row, wire, node)
        if changed and not new:  # that a node was added is announced when its pods are on it
            self._cluster.announce(DEVICES_CHANGED, None, row)

    def _node_removed(self, row: int) -> None:
        name = self._name_of.pop(row)
        node = self._by_name[name]
        if node.deleted or node.reading is NOTHING_REPORTED:
            del self._by_name[name]
            self._departed.pop(("", name), None)
        else:
            self._expect(name, node)

    def _fill(self, row: int, wire: core.Node, node: NodeDevices) -> bool:
        """The columns of a row; whether anything changed."""
        labels = wire.metadata.labels
        equipment = node.reading.equipment._replace(
            vendor=labels.get(kinds.GPU_VENDOR, ""),
            model=labels.get(kinds.GPU_MODEL, ""),
            node_honours=labels.get(kinds.GPU_PARTITION_POLICY) == kinds.HONOR,
            isolation=labels.get(kinds.GPU_ISOLATION_PROVIDER, ""),
        )
        columns = self.columns
        if equipment == columns.inventory(row).equipment:
            return False
        columns.set_inventory(row, columns.inventories.of(equipment))
        self._cluster.table.touch(row, columns.facets)
        return True
