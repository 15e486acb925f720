"""What devices a node has, as decisions see it. Nodes that are equipped alike share one inventory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import count
from typing import NamedTuple
from weakref import WeakValueDictionary

from koordsched.plugins.shared.devices.partitions import Groups, Table, bits_of, built_in
from koordsched.plugins.shared.devices.resources import GPU, TYPES

NO_NUMA_NODE = -1
"""Instead of the NUMA node of a device that has none, or an unknown one."""

Labels = tuple[tuple[str, str], ...]


class VirtualFunctions(NamedTuple):
    """Virtual functions with the same labels: (bus id, minor) of each."""

    labels: Labels
    functions: tuple[tuple[str, int], ...]


class Place(NamedTuple):
    """One device. `amounts`: what it has of the resources of its type, ABSENT where it lists none, empty if the device
    is not healthy. `numa`, `pcie`: where it is; None where that is not reported."""

    minor: int
    amounts: tuple[int, ...]
    numa: int | None = None
    pcie: str | None = None
    labels: Labels = ()
    functions: tuple[VirtualFunctions, ...] = ()

    def is_in(self, numa_nodes: int) -> bool:
        """Whether the device is in one of the NUMA nodes of a bit set."""
        return self.numa is not None and self.numa >= 0 and bool(numa_nodes >> self.numa & 1)

    def serves(self, numa_nodes: int) -> bool:
        """Whether a pod on these NUMA nodes may have the device: one that is in no known NUMA node goes with any, one
        without topology with none."""
        return self.numa == NO_NUMA_NODE or self.is_in(numa_nodes)


class Equipment(NamedTuple):
    """All that decisions read of a node's Device and labels. `devices`: by position in TYPES, in the order of minors.

    `reported`: there is a Device, or was one since the node came. `table`: the partitions that the Device names, None
    if it has no table. `honours`, `well_planned`: what labels of the Device say. `vendor`, `model`, `node_honours`,
    `isolation`: what labels of the node say.
    """

    reported: bool = False
    devices: tuple[tuple[Place, ...], ...] = ((),) * len(TYPES)
    table: Table | None = None
    honours: bool = False
    well_planned: bool = False
    vendor: str = ""
    model: str = ""
    node_honours: bool = False
    isolation: str = ""


class Scope(NamedTuple):
    """GPUs that are close to each other. `level`: 1 the node, 2 a NUMA node, 3 a PCIe switch."""

    level: int
    minors: tuple[int, ...]
    bits: int
    children: tuple[Scope, ...] = ()


class Inventory:
    """An equipment, and what follows from it. `number` is unique and never reused."""

    __slots__ = ("__dict__", "__weakref__", "equipment", "number", "places")

    def __init__(self, equipment: Equipment, number: int) -> None:
        self.equipment = equipment
        self.number = number
        self.places: Mapping[str, Mapping[int, Place]] = {
            kind: {place.minor: place for place in devices}
            for kind, devices in zip(TYPES, equipment.devices, strict=True)
        }

    @cached_property
    def partitions(self) -> Mapping[int, Groups] | None:
        """By number of GPUs; None if there is no table."""
        table = self.equipment.table
        if table is None:
            table = built_in(self.equipment.vendor, self.equipment.model)
        return None if table is None else dict(table)

    @cached_property
    def honours(self) -> bool:
        """Whether whole GPUs are given out in partitions alone; the node's label says so where the Device has no
        table."""
        return self.equipment.honours if self.equipment.table is not None else self.equipment.node_honours

    @cached_property
    def numa_nodes(self) -> tuple[int, ...]:
        """The NUMA nodes in which any device is, ascending."""
        every = {place.numa for of_type in self.places.values() for place in of_type.values()}
        return tuple(sorted(numa for numa in every if numa is not None and numa >= 0))

    @cached_property
    def scopes(self) -> Scope | None:
        """The tree of scopes of the GPUs; None if it is not known where one of them is."""
        gpus = self.places[GPU].values()
        if not gpus or any(place.numa is None for place in gpus):
            return None
        numa_nodes: dict[int, dict[str, list[int]]] = {}
        for place in gpus:
            of_numa = numa_nodes.setdefault(place.numa if place.numa is not None else NO_NUMA_NODE, {})
            of_numa.setdefault(place.pcie or "", []).append(place.minor)
        children = []
        for _, switches in sorted(numa_nodes.items()):
            of_numa_node = tuple(_scope(3, minors) for _, minors in sorted(switches.items()))
            every = [minor for scope in of_numa_node for minor in scope.minors]
            children.append(_scope(2, every, of_numa_node))
        return _scope(1, [place.minor for place in gpus], tuple(children))

    def has_functions(self, kind: str) -> bool:
        """Whether any device of a type has virtual functions."""
        return any(place.functions for place in self.places[kind].values())


def _scope(level: int, minors: list[int], children: tuple[Scope, ...] = ()) -> Scope:
    ordered = tuple(sorted(minors))
    return Scope(level, ordered, bits_of(ordered), children)


class Inventories:
    """Interns inventories; one that no node has any more disappears by itself."""

    __slots__ = ("_known", "_numbers")

    def __init__(self) -> None:
        self._known: WeakValueDictionary[Equipment, Inventory] = WeakValueDictionary()
        self._numbers = count()

    def of(self, equipment: Equipment) -> Inventory:
        """The inventory of an equipment."""
        found = self._known.get(equipment)
        if found is None:
            found = self._known[equipment] = Inventory(equipment, next(self._numbers))
        return found
