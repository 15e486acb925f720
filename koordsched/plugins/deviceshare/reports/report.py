"""A node, device by device, and all nodes with devices in a line each, as values."""

from __future__ import annotations

from collections.abc import Generator

import msgspec

from koordsched.framework.declaration import NotFound, finished
from koordsched.plugins.deviceshare.plugin import DeviceShare
from koordsched.plugins.shared.devices.resources import ABSENT, GPU_MEMORY, NAMES, TYPES

_NODES_AT_ONCE = 40

FREE, PARTLY, FULL, UNHEALTHY, OVERCOMMITTED = "free", "partly", "full", "unhealthy", "overcommitted"
"""What a device is; the last: pods were given more than there is."""


class AmountReport(msgspec.Struct, rename="camel"):
    """What a device has of a resource, and what of it is left."""

    resource: str
    has: int
    left: int


class PodReport(msgspec.Struct, rename="camel"):
    """What a pod was given of a device."""

    pod: str
    amounts: dict[str, int]
    functions: list[str]
    template: str = ""


class DeviceReport(msgspec.Struct, rename="camel"):
    """One device. `numa_node`: -1 if it is not known, None without topology."""

    type: str
    minor: int
    state: str
    numa_node: int | None
    pcie: str
    amounts: list[AmountReport]
    pods: list[PodReport]


class TypeCount(msgspec.Struct, rename="camel"):
    """How many devices of a type a node has, and of these are free, partly given out, and unhealthy."""

    type: str
    devices: int
    free: int
    partly: int
    unhealthy: int
    overcommitted: int


class NodeLine(msgspec.Struct, rename="camel"):
    """One node. `report`: `valid`, `invalid` (parts cannot be used), `deleted`, or `none`."""

    node: str
    report: str
    vendor: str
    model: str
    partitions: str
    types: list[TypeCount]
    problems: list[str]


class Overview(msgspec.Struct, rename="camel"):
    """All nodes of which devices are known, by name."""

    nodes: list[NodeLine]


class NodeReport(msgspec.Struct, rename="camel"):
    """One node with its devices."""

    node: NodeLine
    devices: list[DeviceReport]


def overview(plugin: DeviceShare) -> Overview:
    """All nodes."""
    return finished(overviewing(plugin))


def overviewing(plugin: DeviceShare) -> Generator[None, None, Overview]:
    """The same, step by step."""
    found = []
    for number, (name, row) in enumerate(sorted(plugin.table.row_of.items())):
        if plugin.table.row_of.get(name) == row and plugin.knows(row):
            found.append(_line(plugin, name, row, _devices(plugin, row)))
        if number % _NODES_AT_ONCE == _NODES_AT_ONCE - 1:
            yield
    return Overview(found)


def report_on(plugin: DeviceShare, name: str) -> NodeReport:
    """One node. Raises NotFound for one that is unknown, or without devices."""
    row = plugin.table.row_of.get(name)
    if row is None:
        raise NotFound(f'node "{name}" not found')
    if not plugin.knows(row):
        raise NotFound(f'node "{name}" has no Device object, and no pod was given devices there')
    devices = _devices(plugin, row)
    return NodeReport(_line(plugin, name, row, devices), devices)


def _line(plugin: DeviceShare, name: str, row: int, devices: list[DeviceReport]) -> NodeLine:
    inventory, known = plugin.columns.inventory(row), plugin.nodes.of_node(name)
    equipment = inventory.equipment
    problems = list(known.reading.problems) if known is not None else []
    report = "valid" if equipment.reported else "none"
    if known is not None and known.deleted:
        report = "deleted"
    elif problems:
        report = "invalid"
    partitions = ""
    if inventory.partitions is not None:
        partitions = "honored" if inventory.honours else "preferred"
    types = []
    for kind in TYPES:
        states = [device.state for device in devices if device.type == kind]
        if states:
            counts = (states.count(state) for state in (FREE, PARTLY, UNHEALTHY, OVERCOMMITTED))
            types.append(TypeCount(kind, len(states), *counts))
    return NodeLine(name, report, equipment.vendor, equipment.model, partitions, types, problems)


def _devices(plugin: DeviceShare, row: int) -> list[DeviceReport]:
    columns, inventory = plugin.columns, plugin.columns.inventory(row)
    holders: dict[tuple[str, int], list[PodReport]] = {}
    for pod, given in plugin.allocations_on(row):
        for each in given:
            functions = [bus_id for bus_id, _ in each.functions]
            report = PodReport(pod.title, dict(each.amounts), functions, each.template)
            holders.setdefault((each.type, each.minor), []).append(report)
    found = []
    for kind in TYPES:
        used = columns.by_minor(columns.used[kind], kind, slice(row, row + 1))[0].tolist()
        held = {minor for of_type, minor in holders if of_type == kind}
        for minor in sorted({*inventory.places[kind], *held}):
            place = inventory.places[kind].get(minor)
            offered = place.amounts if place is not None else ()
            amounts = [
                AmountReport(name, there, there - taken)
                for name, there, taken in zip(NAMES[kind], offered, used[minor], strict=False)
                if there != ABSENT
            ]
            pods = sorted(holders.get((kind, minor), []), key=lambda report: report.pod)
            found.append(
                DeviceReport(
                    kind,
                    minor,
                    _state(amounts, used[minor], len(pods)),
                    place.numa if place is not None else None,
                    (place.pcie or "") if place is not None else "",
                    amounts,
                    pods,
                )
            )
    return found


def _state(amounts: list[AmountReport], used: list[int], pods: int) -> str:
    if not any(amount.has > 0 for amount in amounts):
        return UNHEALTHY
    if any(amount.left < -_rounding(amount, pods) for amount in amounts):
        return OVERCOMMITTED
    if not any(used):
        return FREE
    touched = [amount for amount in amounts if amount.has and amount.left != amount.has]
    return FULL if touched and all(amount.left <= 0 for amount in touched) else PARTLY


def _rounding(amount: AmountReport, pods: int) -> int:
    """What rounded shares of memory may add up to: less than one per cent for each pod."""
    return amount.has // 100 * pods if amount.resource == GPU_MEMORY else 0
