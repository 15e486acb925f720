"""What the devices of one node have left for a pod (deviceshare spec 3.1, 3.3)."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import NamedTuple

from koordsched.plugins.shared.devices.columns import DeviceColumns
from koordsched.plugins.shared.devices.inventory import Inventory, Place
from koordsched.plugins.shared.devices.request import DeviceRequest
from koordsched.plugins.shared.devices.resources import ABSENT, GPU, MEMORY, NAMES, RATIO

Amounts = Sequence[int]
"""By resource, in the order of `NAMES`; ABSENT for what a device does not list."""

Free = Mapping[int, Amounts]
"""By minor."""

Required = Mapping[str, Mapping[int, Mapping[str, int]]]
"""By type and minor: only these devices may be given, and no more of them than this."""


class TypeSupply(NamedTuple):
    """The devices of one type that a pod may get, its candidates.

    `total`: of healthy ones; `free`: of all. `used`: bit set of the devices of which anything is in use, candidates or
    not. `known`: how many devices the node is known to have.
    """

    places: Mapping[int, Place]
    total: Free
    free: Free
    used: int
    known: int


class Supply(NamedTuple):
    """What one node has, by the types that a pod asks for. `taken`: the virtual functions of a device that pods hold,
    given its type and minor."""

    inventory: Inventory
    types: Mapping[str, TypeSupply]
    taken: Callable[[str, int], set[str]]


def fits(request: Amounts, free: Amounts) -> bool:
    """Whether a device has enough left; what it does not list is not asked of it (deviceshare spec 3.1)."""
    return all(wanted <= left or left == ABSENT for wanted, left in zip(request, free, strict=True))


def has_any(amounts: Amounts) -> bool:
    """Whether there is something of any resource."""
    return any(amount > 0 for amount in amounts)


class Supplies:
    """Reads the supply of rows from the columns.

    `improved`: of a GPU no more is left than both its memory and the share of it say, which upstream compares one by
    one; and pods that want PCIe switches for themselves get such, where upstream gives them any.
    """

    def __init__(self, columns: DeviceColumns, *, improved: bool) -> None:
        self.columns = columns
        self._improved = improved

    def of(self, request: DeviceRequest, row: int, numa_nodes: int = 0, required: Required | None = None) -> Supply:
        """The supply of a row. `numa_nodes`: the bit set of those that the devices must be in, 0 for any."""
        inventory = self.columns.inventory(row)
        return Supply(
            inventory,
            {
                kind: self._of_type(kind, row, inventory, request, numa_nodes, (required or {}).get(kind))
                for kind in request.types
            },
            lambda kind, minor: self.columns.taken(row, kind, minor),
        )

    def _of_type(
        self,
        kind: str,
        row: int,
        inventory: Inventory,
        request: DeviceRequest,
        numa_nodes: int,
        required: Mapping[int, Mapping[str, int]] | None,
    ) -> TypeSupply:
        places, width = inventory.places[kind], len(NAMES[kind])
        flat = self.columns.used[kind].data[row].tolist()
        used = {
            at // width: flat[at - at % width : at - at % width + width] for at, amount in enumerate(flat) if amount
        }
        selector = request.hint(kind).selector
        shared_switches: set[str | None] = set()
        if self._improved and request.hint(kind).exclusive_pcie:
            shared_switches = {None, *(places[minor].pcie for minor in used if minor in places)}
        total: dict[int, Amounts] = {}
        free: dict[int, Amounts] = {}
        in_use = 0
        anything = False
        for minor, place in places.items():
            left, partly = _left(place.amounts or (ABSENT,) * width, used.get(minor))
            if self._improved and kind == GPU:
                left = consistent(left, place.amounts)
            if required:
                if minor not in required:
                    continue
                left = _limited(kind, left, required[minor])
                partly = any(amount < there for amount, there in zip(left, place.amounts, strict=False))
            anything = anything or has_any(left)
            if numa_nodes and not place.serves(numa_nodes):
                continue
            if place.pcie in shared_switches:
                continue
            if selector is not None and not selector.matches(dict(place.labels)):
                continue
            free[minor] = left
            if place.amounts:
                total[minor] = place.amounts
            if partly:
                in_use |= 1 << minor
        if not anything:
            free, total, in_use = {}, {}, 0
        for minor in used:
            if minor not in free:
                in_use |= 1 << minor
        return TypeSupply(places, total, free, in_use, len(places) + sum(minor not in places for minor in used))


def only(supply: Supply, minors: Mapping[str, Container[int]]) -> Supply:
    """The supply with no other devices of these types; the others count as in use."""
    types = dict(supply.types)
    for kind, kept in minors.items():
        of_type = supply.types[kind]
        types[kind] = of_type._replace(
            total={minor: of_type.total[minor] for minor in of_type.total if minor in kept},
            free={minor: of_type.free[minor] for minor in of_type.free if minor in kept},
            used=of_type.used | sum(1 << minor for minor in of_type.places if minor not in kept),
        )
    return supply._replace(types=types)


def _left(total: Amounts, used: Amounts | None) -> tuple[Amounts, bool]:
    """(what is left, whether anything that the device lists is in use). Of a device in use that does not list a
    resource nothing is left of it once it was given out."""
    if used is None:
        return total, False
    partly = any(amount > 0 and less > 0 for amount, less in zip(total, used, strict=True))
    left = [
        max(0, amount - less) if amount != ABSENT else 0 if less and partly else ABSENT
        for amount, less in zip(total, used, strict=True)
    ]
    return left, partly


def _limited(kind: str, left: Amounts, limits: Mapping[str, int]) -> Amounts:
    """No more than the limits, and nothing of a resource without one; what is not left counts as in use."""
    return [
        min(amount, limits.get(name, 0)) if amount != ABSENT else ABSENT
        for name, amount in zip(NAMES[kind], left, strict=True)
    ]


def consistent(left: Amounts, total: Amounts) -> Amounts:
    """What is left of a GPU, its memory and the share of it cut to the smaller of both."""
    there = total[MEMORY] if total else ABSENT
    if there <= 0 or left[MEMORY] == ABSENT or left[RATIO] == ABSENT:
        return left
    found = list(left)
    found[RATIO] = min(left[RATIO], left[MEMORY] * 100 // there)
    found[MEMORY] = min(left[MEMORY], left[RATIO] * there // 100)
    return found
