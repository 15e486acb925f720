"""Explains with numbers why devices of a node suffice for a pod, or do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from koordsched.api.quantity import NANO, format_bytes
from koordsched.cluster.shape import PodShape
from koordsched.plugins.deviceshare.allocating import Allocating
from koordsched.plugins.deviceshare.compiled import CompiledRequests, PodRequest
from koordsched.plugins.deviceshare.generic import free_functions
from koordsched.plugins.deviceshare.reasons import (
    DESIGNATED_WITHOUT_NUMA_NODE,
    INSUFFICIENT_IN_NUMA_NODES,
    INSUFFICIENT_PARTITIONED_GPUS,
    INSUFFICIENT_PRIMARY,
    INSUFFICIENT_SCOPED_GPUS,
    ISOLATION,
    NO_MATCHED_TEMPLATE,
    NO_PARTITIONS,
    NO_SCOPES,
    NOT_JOINT,
    UNSUPPORTED_NUMBER,
    UNSUPPORTED_SHARED,
    no_functions,
    none_known,
)
from koordsched.plugins.deviceshare.supply import Amounts, Supply, TypeSupply, fits, has_any
from koordsched.plugins.shared.devices.allocation import quantity_of
from koordsched.plugins.shared.devices.columns import DeviceColumns
from koordsched.plugins.shared.devices.inventory import Inventory, Scope
from koordsched.plugins.shared.devices.partitions import Partition
from koordsched.plugins.shared.devices.request import GPUs, TopologyScope, TypeRequest
from koordsched.plugins.shared.devices.resources import ABSENT, GPU, NAMES

_SHOWN = 8
"""Devices, partitions, scopes or switches that are named one by one."""

_SCOPES = {
    TopologyScope.NODE: "the node",
    TopologyScope.NUMA_NODE: "a NUMA node",
    TopologyScope.PCIE: "a PCIe switch",
    TopologyScope.DEVICE: "a single device",
}


class _Devices(NamedTuple):
    """The devices of one type of a node, for one pod.

    `fitting`: minors of those that have enough left; `short`: minor -> what is missing; `sick`: minors of those that
    are not healthy; `others`: of those that the hint leaves out; `would_fit`: how many have enough without any pod.
    """

    fitting: list[int]
    short: dict[int, str]
    sick: list[int]
    others: list[int]
    would_fit: int


class Explainer:
    """Explains one profile's verdicts."""

    def __init__(self, columns: DeviceColumns, compiled: CompiledRequests, allocating: Allocating) -> None:
        self._columns = columns
        self._compiled = compiled
        self._allocating = allocating

    def explain(self, shape: PodShape, row: int) -> list[str]:
        """What the pod wants of each type, which devices are short of what, and which partitions are broken."""
        request = self._compiled.of(shape)
        if not request.types:
            return []
        inventory = self._columns.inventory(row)
        if not inventory.equipment.reported and not self._columns.holders.data.item(row):
            return ["the node has no Device object: the kubelet allocates devices"]
        supply = self._allocating.supply(request, row)
        found = {kind: _devices(kind, request, supply) for kind in request.types}
        lines: list[str] = []
        if request.designated is not None:
            lines.append("a scheduling hint designates " + ", ".join(f"{g.type} {g.minor}" for g in request.designated))
        for kind, asked in request.devices.types.items():
            lines.extend(_of_type(kind, asked, supply.types[kind], found[kind]))
        gpus = request.devices.gpus
        if gpus is not None and not gpus.shared and (gpus.honours or inventory.honours):
            lines.extend(_partitions(request.devices.types[GPU].number, gpus, inventory, supply.types[GPU]))
        if gpus is not None and gpus.scope > TopologyScope.NODE and inventory.scopes is not None:
            lines.extend(_scopes(gpus.scope, inventory.scopes, found[GPU]))
        if request.devices.same_pcie and len(request.devices.joint) > 1:
            lines.extend(_switches(request.devices.joint, supply, found))
        return lines

    def remedy(self, shape: PodShape, row: int, reasons: Sequence[str]) -> str:
        """What would have to change on a row that is refused for these reasons."""
        request = self._compiled.of(shape)
        reason = reasons[0] if reasons else ""
        if reason in _REMEDIES:
            return _REMEDIES[reason]
        if "does not support GPU Share" in reason:
            return "a request for whole GPUs, or a node whose GPUs may be shared"
        if not reason.startswith("Insufficient"):
            return "devices that the plugin can use"
        supply = self._allocating.supply(request, row)
        for kind, asked in request.devices.types.items():
            if reason in no_functions(kind).texts:
                return f"a node whose {kind} devices have virtual functions"
            if reason in none_known(kind).texts and not supply.types[kind].known:
                return f"a node with {kind} devices"
            found, number = _devices(kind, request, supply), asked.number or len(supply.types[kind].places)
            if found.would_fit < number:
                has = f"this one has {found.would_fit}"
                return f"a node with {_count(number, kind)} of {_wanted(kind, asked)} ({has})"
            if len(found.fitting) < number:
                return f"{_count(number - len(found.fitting), kind, 'more ')} with {_wanted(kind, asked)} free"
        if reason in INSUFFICIENT_SCOPED_GPUS.texts and request.devices.gpus is not None:
            return f"the GPUs free within {_SCOPES.get(request.devices.gpus.scope, 'the required scope')}"
        return "devices that match the joint allocation the pod asks for"


_REMEDIES = {
    INSUFFICIENT_PRIMARY.texts[0]: "a free device of the type that comes first in the joint allocation",
    INSUFFICIENT_IN_NUMA_NODES.texts[0]: "as many devices on its NUMA nodes as the pod wants",
    DESIGNATED_WITHOUT_NUMA_NODE.texts[0]: "a Device that reports the topology of the designated devices",
    INSUFFICIENT_PARTITIONED_GPUS.texts[0]: "a partition without GPUs that are in use or unhealthy",
    NO_PARTITIONS.texts[0]: "a partition table: the annotation gpu-partitions of the Device",
    UNSUPPORTED_NUMBER.texts[0]: "a number of GPUs for which there are partitions",
    NO_SCOPES.texts[0]: "a Device that reports the topology of all GPUs",
    UNSUPPORTED_SHARED.texts[0]: "a part of one GPU requested, or no required topology scope",
    NOT_JOINT.texts[0]: "free devices of all types on the same PCIe switches",
    NO_MATCHED_TEMPLATE.texts[0]: "a template for the node's model with exactly what the pod requests",
    ISOLATION: "the label koordinator.sh/gpu-isolation-provider of the pod on the node",
}


def _devices(kind: str, request: PodRequest, supply: Supply) -> _Devices:
    asked, hint, of_type = request.devices.types[kind], request.devices.hint(kind), supply.types[kind]
    found = _Devices([], {}, [], [], 0)
    would_fit = 0
    for minor, place in of_type.places.items():
        if not has_any(place.amounts):
            found.sick.append(minor)
            continue
        if hint.selector is not None and not hint.selector.matches(dict(place.labels)):
            found.others.append(minor)
            continue
        would_fit += fits(asked.amounts, place.amounts)
        left = of_type.free.get(minor)
        if left is None:
            # Nothing is left of any device, or the switch is not free as a whole.
            found.short[minor] = "nothing left for this pod"
        elif not fits(asked.amounts, left) or not has_any(left):
            found.short[minor] = _missing(kind, asked.amounts, left)
        elif hint.function_selector is not None and not free_functions(
            place, hint.function_selector, supply.taken(kind, minor)
        ):
            found.short[minor] = "no virtual function left"
        else:
            found.fitting.append(minor)
    return found._replace(would_fit=would_fit)


def _missing(kind: str, asked: Amounts, left: Amounts) -> str:
    short = [
        f"{_short(name)} {quantity_of(name, max(0, free))}"
        for name, wanted, free in zip(NAMES[kind], asked, left, strict=True)
        if wanted > 0 and free != ABSENT and wanted > free
    ]
    return ", ".join(short) + " left" if short else "nothing left"


def _short(resource: str) -> str:
    return resource.rpartition("/")[2]


def _count(number: int, kind: str, more: str = "") -> str:
    return f"{number} {more}{kind} device{'s' if number > 1 else ''}"


def _wanted(kind: str, asked: TypeRequest) -> str:
    amounts = zip(NAMES[kind], asked.amounts, strict=True)
    return ", ".join(f"{_short(name)} {quantity_of(name, amount)}" for name, amount in amounts if amount)


def _of_type(kind: str, asked: TypeRequest, supply: TypeSupply, found: _Devices) -> Iterator[str]:
    number = str(asked.number) if asked.number else "every one"
    said = f"{kind}: wants {number} with {_wanted(kind, asked)} free; "
    said += f"{len(found.fitting)} of {len(supply.places)} have that"
    if found.sick:
        said += f"; not healthy: {_list(found.sick)}"
    if found.others:
        said += f"; not selected by the hint: {_list(found.others)}"
    yield said
    yield from _first((f"{kind} {minor}: {text}" for minor, text in found.short.items()), len(found.short), "devices")


def _partitions(number: int, gpus: GPUs, inventory: Inventory, supply: TypeSupply) -> Iterator[str]:
    if inventory.partitions is None or number not in inventory.partitions:
        yield f"no partitions of {number} GPU{'s' if number > 1 else ''}"
        return
    groups = inventory.partitions[number]
    partitions = [partition for group in groups for partition in group]

    def state(partition: Partition) -> str:
        used = [minor for minor in partition.minors if supply.used >> minor & 1]
        places = [(minor, supply.places.get(minor)) for minor in partition.minors]
        sick = [minor for minor, place in places if place is None or not has_any(place.amounts)]
        why = [f"{_list(used)} in use"] * bool(used) + [f"{_list(sick)} not healthy"] * bool(sick)
        if gpus.bandwidth is not None and (partition.bandwidth is None or partition.bandwidth < gpus.bandwidth):
            has = "unknown" if partition.bandwidth is None else format_bytes(partition.bandwidth // NANO)
            why.append(f"bandwidth {has}, not {format_bytes(gpus.bandwidth // NANO)}")
        if gpus.restricted and partition not in groups[0]:
            why.append("ignored: its allocationScore is not the lowest")
        return f"partition {_list(partition.minors)}: {', '.join(why) or 'free'}"

    yield from _first(map(state, partitions), len(partitions), "partitions")


def _scopes(level: TopologyScope, tree: Scope, found: _Devices) -> Iterator[str]:
    scopes = [tree]
    while scopes and scopes[0].level < level:
        scopes = [child for scope in scopes for child in scope.children]
    fitting = set(found.fitting)
    lines = (f"gpu {_list(scope.minors)}: {len(fitting.intersection(scope.minors))} of them" for scope in scopes)
    yield f"all within {_SCOPES[level]}:"
    yield from _first(lines, len(scopes), "scopes")


def _switches(joint: Sequence[str], supply: Supply, found: dict[str, _Devices]) -> Iterator[str]:
    """How many devices of each type have enough left, by PCIe switch."""
    counts: dict[str, dict[str, int]] = {}
    for kind in joint:
        for minor, place in supply.types[kind].places.items():
            of_switch = counts.setdefault(place.pcie or "-", dict.fromkeys(joint, 0))
            of_switch[kind] += minor in found[kind].fitting
    lines = (
        f"PCIe switch {switch}: " + ", ".join(f"{count} {kind}" for kind, count in of_switch.items())
        for switch, of_switch in sorted(counts.items())
    )
    yield from _first(lines, len(counts), "PCIe switches")


def _first(lines: Iterator[str], count: int, what: str) -> Iterator[str]:
    for _, line in zip(range(_SHOWN), lines, strict=False):
        yield line
    if count > _SHOWN:
        yield f"and {count - _SHOWN} more {what}"


def _list(minors: Sequence[int]) -> str:
    return ",".join(map(str, minors))
