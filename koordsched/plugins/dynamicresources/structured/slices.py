"""A ResourceSlice as it is kept: its devices, and which nodes can reach them (dra spec 3.6, pools for a node)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec

from koordsched.api.core import NodeSelector
from koordsched.api.resource import Device, ResourceSlice
from koordsched.plugins.dynamicresources.structured.devices import DeviceTypes, Equipment
from koordsched.plugins.dynamicresources.structured.features import Features
from koordsched.plugins.dynamicresources.structured.nodeselection import CompiledSelector

PoolKey = tuple[str, str]
"""Driver and name of a pool."""


class Reach(NamedTuple):
    """Which nodes can reach something: the one of that name, all, or those that a selector matches; or none."""

    node: str = ""
    everyone: bool = False
    selector: KnownSelector | None = None

    def includes(self, node: str, matched: frozenset[int]) -> bool:
        """Whether a node is meant. `matched`: the numbers of the selectors that match it."""
        if self.selector is not None:
            return self.selector.number in matched
        return self.everyone or (self.node != "" and self.node == node)


class KnownSelector:
    """A node selector that slices or devices have; equal ones are one object."""

    __slots__ = ("__weakref__", "compiled", "number")

    def __init__(self, number: int, selector: NodeSelector) -> None:
        """Raises SelectorError."""
        self.number = number
        self.compiled = CompiledSelector(selector)


class Selectors:
    """All node selectors of slices, by their content. `added` is called with each new one."""

    __slots__ = ("_added", "_known", "_numbers")

    def __init__(self, added: Callable[[KnownSelector], None]) -> None:
        self._known: WeakValueDictionary[bytes, KnownSelector] = WeakValueDictionary()
        self._numbers = count()
        self._added = added

    def of(self, selector: NodeSelector) -> KnownSelector:
        """Raises SelectorError if the selector cannot be parsed."""
        key = msgspec.json.encode(selector)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = KnownSelector(next(self._numbers), selector)
            self._added(found)
        return found

    def __iter__(self) -> Iterator[KnownSelector]:
        """Those in use."""
        return iter(list(self._known.values()))


class PooledDevice(NamedTuple):
    """A device of a slice. `reach` is its own where the slice leaves the selection to its devices."""

    name: str
    equipment: Equipment
    wire: Device
    part: Part
    reach: Reach | None


class Part:
    """What a slice contributes to its pool. `named`: the nodes that it, or a device of it, names; `shared`: how others
    reach it; both are empty with counters, which each node sees. `skipped`: a gate hides it, and it only counts.
    """

    __slots__ = ("counters", "devices", "generation", "key", "name", "named", "reach", "shared", "skipped", "wire")

    def __init__(self, wire: ResourceSlice, types: DeviceTypes, selectors: Selectors, features: Features) -> None:
        """Raises SelectorError."""
        spec = wire.spec
        self.wire = wire
        self.name = wire.metadata.name
        self.key: PoolKey = (spec.driver, spec.pool.name)
        self.generation = spec.pool.generation
        self.counters = spec.shared_counters
        self.skipped = not features.partitionable_devices and (
            spec.per_device_node_selection is not None or bool(spec.shared_counters)
        )
        by_device = bool(spec.per_device_node_selection)
        self.reach = Reach()
        if not by_device:
            self.reach = _reach(spec.node_name, spec.all_nodes, spec.node_selector, selectors)
        self.devices = tuple(
            PooledDevice(
                device.name,
                types.of(spec.driver, device),
                device,
                self,
                _reach(device.node_name, device.all_nodes, device.node_selector, selectors) if by_device else None,
            )
            for device in spec.devices
        )
        reaches = [each.reach for each in self.devices if each.reach is not None] if by_device else [self.reach]
        if spec.shared_counters:
            reaches = []  # each node takes them
        self.named = frozenset(reach.node for reach in reaches if reach.node)
        self.shared = tuple({reach for reach in reaches if reach.everyone or reach.selector is not None})

    def is_reached(self, node: str, matched: frozenset[int]) -> bool:
        """Whether a node can reach the slice: at least one of its devices, where these are selected one by one."""
        if self.skipped:
            return False
        if self.counters:
            return True
        if self.reach.includes(node, matched):
            return True
        return any(each.reach is not None and each.reach.includes(node, matched) for each in self.devices)


def _reach(node: str | None, everyone: bool | None, selector: NodeSelector | None, known: Selectors) -> Reach:
    if node:
        return Reach(node)
    if everyone:
        return Reach(everyone=True)
    if selector is not None:
        return Reach(selector=known.of(selector))
    return Reach()
