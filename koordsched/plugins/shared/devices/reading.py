"""Reads a Device (deviceshare spec 2.1, 3.1)."""

from __future__ import annotations

from typing import NamedTuple

from koordsched.api.core import Quantities
from koordsched.api.quantity import LIMIT, QuantityError, value
from koordsched.plugins.shared.devices import kinds, partitions
from koordsched.plugins.shared.devices.inventory import Equipment, Place, VirtualFunctions
from koordsched.plugins.shared.devices.kinds import Device, DeviceInfo
from koordsched.plugins.shared.devices.resources import ABSENT, DEPRECATED, MAX_MINORS, NAMES, TYPES

_MOST = LIMIT >> 8
"""More of a resource is not offered: a node has up to 128 devices, whose sum must stay within 64 bits."""


class Reading(NamedTuple):
    """`equipment`: without what the labels of the node say; `problems`: what could not be used, for the node's Events;
    `well_planned`: the label, None if it is not set."""

    equipment: Equipment
    problems: tuple[str, ...]
    well_planned: bool | None


def read(device: Device) -> Reading:
    """What decisions read of a Device. What cannot be used is left out and named."""
    problems: list[str] = []
    places: dict[str, dict[int, Place]] = {kind: {} for kind in TYPES}
    for at, info in enumerate(device.spec.devices):
        if info.type not in places:
            problems.append(f"devices[{at}]: unknown type {info.type[:64]!r}")
            continue
        minor = info.minor
        if minor is None:
            problems.append(f"devices[{at}]: a {info.type} without minor counts as minor 0")
            minor = 0
        if not 0 <= minor < MAX_MINORS:
            problems.append(f"devices[{at}]: {info.type} {minor} is ignored: minors are 0 to {MAX_MINORS - 1}")
            continue
        if minor in places[info.type]:
            problems.append(f"devices[{at}]: {info.type} {minor} occurs twice: the last one counts")
        places[info.type][minor] = _place(info, minor, f"devices[{at}]", problems)
    table = None
    text = device.metadata.annotations.get(kinds.GPU_PARTITIONS)
    if text is not None:
        try:
            table = partitions.parse(text)
        except (ValueError, RecursionError) as error:
            problems.append(f"annotation {kinds.GPU_PARTITIONS}: {error}")
    labels = device.metadata.labels
    planned = {"true": True, "false": False}.get(labels.get(kinds.SECONDARY_DEVICE_WELL_PLANNED, ""))
    equipment = Equipment(
        reported=True,
        devices=tuple(tuple(place for _, place in sorted(places[kind].items())) for kind in TYPES),
        table=table,
        honours=labels.get(kinds.GPU_PARTITION_POLICY) == kinds.HONOR,
        well_planned=planned is True,
    )
    return Reading(equipment, tuple(problems), planned)


def _place(info: DeviceInfo, minor: int, path: str, problems: list[str]) -> Place:
    topology = info.topology
    return Place(
        minor,
        _amounts(info.type, info.resources, path, problems) if info.health else (),
        None if topology is None else topology.node_id,
        None if topology is None else topology.pcie_id,
        tuple(sorted(info.labels.items())),
        tuple(
            VirtualFunctions(tuple(sorted(group.labels.items())), tuple((vf.bus_id, vf.minor) for vf in group.vfs))
            for group in info.vf_groups
        ),
    )


def _amounts(kind: str, quantities: Quantities, path: str, problems: list[str]) -> tuple[int, ...]:
    found = [ABSENT] * len(NAMES[kind])
    renamed = {DEPRECATED[name]: quantity for name, quantity in quantities.items() if name in DEPRECATED}
    for at, name in enumerate(NAMES[kind]):
        quantity = quantities.get(name, renamed.get(name))
        if quantity is None:
            continue
        try:
            found[at] = min(max(0, value(quantity)), _MOST)
        except QuantityError as error:
            problems.append(f"{path}: {name}: {error}")
            found[at] = 0
    return tuple(found) if any(amount != ABSENT for amount in found) else ()


def invalidated(equipment: Equipment) -> Equipment:
    """The same without a healthy device: this counts after the Device was deleted, until it returns."""
    devices = tuple(tuple(place._replace(amounts=()) for place in of_type) for of_type in equipment.devices)
    return equipment._replace(devices=devices)
