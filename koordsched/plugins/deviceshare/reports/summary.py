"""A node's devices as upstream's plugin shows them (deviceshare spec 5)."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from koordsched.framework.declaration import NotFound
from koordsched.plugins.deviceshare.plugin import DeviceShare
from koordsched.plugins.shared.devices.allocation import quantity_of
from koordsched.plugins.shared.devices.resources import ABSENT, NAMES, TYPES

Amounts = dict[str, int]
Detail = dict[str, dict[int, Amounts]]
"""By type and minor."""

_NODES_AT_ONCE = 10


def node_summary(plugin: DeviceShare, parameters: Mapping[str, str]) -> dict[str, Any]:
    """One node. Raises NotFound for one of which no device is known."""
    name = parameters["name"]
    row = plugin.table.row_of.get(name)
    if row is None or not plugin.knows(row):
        raise NotFound(f"cannot find node {name}")
    return _summary(plugin, row)


def all_summaries(plugin: DeviceShare, parameters: Mapping[str, str]) -> Generator[None, None, dict[str, Any]]:
    """All nodes of which devices are known, by name."""
    found = {}
    for number, (name, row) in enumerate(sorted(plugin.table.row_of.items())):
        if plugin.table.row_of.get(name) == row and plugin.knows(row):
            found[name] = _summary(plugin, row)
        if number % _NODES_AT_ONCE == _NODES_AT_ONCE - 1:
            yield
    return found


def _summary(plugin: DeviceShare, row: int) -> dict[str, Any]:
    total: Detail = {}
    free: Detail = {}
    used: Detail = {}
    for kind in TYPES:
        _of_type(plugin, kind, row, total, free, used)
    return {
        "deviceTotal": _shown(_sum(total)),
        "deviceFree": _shown(_sum(free)),
        "deviceUsed": _shown(_sum(used)),
        "deviceTotalDetail": _detail(total),
        "deviceFreeDetail": _detail(free),
        "deviceUsedDetail": _detail(used),
        "allocateSet": _allocations(plugin, row),
    }


def _of_type(plugin: DeviceShare, kind: str, row: int, total: Detail, free: Detail, used: Detail) -> None:
    columns, names = plugin.columns, NAMES[kind]
    given = columns.by_minor(columns.used[kind], kind, slice(row, row + 1))[0]
    places = columns.inventory(row).places[kind]
    busy = [minor for minor in range(len(given)) if given[minor].any()]
    for minor in sorted({*places, *busy}):
        offered = places[minor].amounts if minor in places else ()
        amounts = {name: amount for name, amount in zip(names, offered, strict=False) if amount != ABSENT}
        taken = {name: int(amount) for name, amount in zip(names, given[minor], strict=True) if amount}
        total.setdefault(kind, {})[minor] = amounts
        free.setdefault(kind, {})[minor] = {
            name: max(0, amounts.get(name, 0) - taken.get(name, 0)) for name in {**amounts, **taken}
        }
        if taken:
            used.setdefault(kind, {})[minor] = taken


def _sum(detail: Detail) -> Amounts:
    found: Amounts = {}
    for of_type in detail.values():
        for amounts in of_type.values():
            for name, amount in amounts.items():
                found[name] = found.get(name, 0) + amount
    return found


def _shown(amounts: Amounts) -> dict[str, str]:
    return {name: quantity_of(name, amount) for name, amount in sorted(amounts.items())}


def _detail(detail: Detail) -> dict[str, dict[str, dict[str, str]]]:
    return {
        kind: {str(minor): _shown(amounts) for minor, amounts in of_type.items()} for kind, of_type in detail.items()
    }


def _allocations(plugin: DeviceShare, row: int) -> dict[str, dict[str, dict[str, dict[str, str]]]]:
    found: dict[str, dict[str, dict[str, dict[str, str]]]] = {}
    for pod, given in plugin.allocations_on(row):
        for each in given:
            of_pod = found.setdefault(each.type, {}).setdefault(pod.title, {})
            of_pod[str(each.minor)] = _shown(dict(each.amounts))
    return found
