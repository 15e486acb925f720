"""Pools of devices, and what of them a node sees (dra spec 3.6, pools for a node).

Only the highest generation of a pool in the cluster counts (B12: also where the older slices would be a complete pool).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

from koordsched.api.quantity import nano_value
from koordsched.plugins.dynamicresources.structured.devices import Model
from koordsched.plugins.dynamicresources.structured.features import Features
from koordsched.plugins.dynamicresources.structured.slices import Part, PooledDevice, PoolKey

Counters = dict[tuple[str, str], int]
"""Amounts of counters in billionths, by (set, counter)."""


_FEW = 4


class Condition(IntEnum):
    """Whether the devices of a pool may be given out."""

    USABLE = 0
    INCOMPLETE = 1
    INVALID = 2


class Pool:
    """All slices of a pool. `refresh` after changes of `parts`; the rest is about the current generation."""

    __slots__ = (
        "_by_node",
        "_features",
        "_nodes_of",
        "_of_all",
        "counters",
        "current",
        "generation",
        "key",
        "models",
        "named",
        "parts",
        "problem",
        "shared_parts",
        "total",
    )

    def __init__(self, key: PoolKey, features: Features) -> None:
        self.key = key
        self._features = features
        self.parts: dict[str, Part] = {}
        self.refresh()

    def facts(self) -> tuple[object, ...]:
        """What a change of one slice may change for the nodes that only see others."""
        return (self.generation, self.total, self.counters, self.problem)

    def refresh(self) -> None:
        """Works out the current generation from the slices."""
        self.generation = max((part.generation for part in self.parts.values()), default=0)
        current = sorted(
            (part for part in self.parts.values() if part.generation == self.generation), key=lambda part: part.name
        )
        self.total = len(current)
        usable = [part for part in current if not part.skipped]
        self._of_all = tuple(part for part in usable if part.counters)
        self.shared_parts = tuple(part for part in usable if part.shared)
        self.named = frozenset[str]().union(*(part.named for part in self.parts.values()))
        """The nodes that a slice names, also one of an older generation."""
        self._nodes_of: dict[str, list[str]] | None = None
        self._by_node: dict[str, list[Part]] = {}
        for part in usable:
            for name in part.named:
                self._by_node.setdefault(name, []).append(part)
        self._read_counters(usable)

    def _read_counters(self, parts: Iterable[Part]) -> None:
        self.counters: Counters = {}
        self.models: dict[str, list[Model]] = {}
        """Of devices by name, in pools with counters: there may be several of a name, on several nodes."""
        self.problem = ""
        """Why the pool is invalid for each node, "" if it is not."""
        if not self._features.partitionable_devices:
            return
        sets: dict[str, frozenset[str]] = {}
        for part in self._of_all:
            for each in part.counters:
                if each.name in sets:
                    self.problem = self.problem or f"duplicate counter set name {each.name}"
                    continue
                sets[each.name] = frozenset(each.counters)
                for name, counter in each.counters.items():
                    self.counters[each.name, name] = nano_value(counter.value)
        for part in parts:
            for device in part.devices:
                if device.equipment.model.counters:
                    self.models.setdefault(device.name, []).append(device.equipment.model)
                    self.problem = self.problem or _unknown_counter(device, sets)

    def seen_by(self, node: str, matched: frozenset[int]) -> tuple[Part, ...]:
        """The slices of the current generation that belong to the pool of a node, by name."""
        found = [part for part in self._by_node.get(node, ()) if part.is_reached(node, matched)]
        found += [part for part in self.shared_parts if node not in part.named and part.is_reached(node, matched)]
        return tuple(sorted((*found, *self._of_all), key=lambda part: part.name))

    def nodes_with(self, device: str) -> Iterable[str]:
        """The named nodes to which the use of a device makes a difference, and perhaps some more."""
        if self.models or len(self.named) <= _FEW:
            return self.named
        if self._nodes_of is None:
            self._nodes_of = {}
            for node, parts in self._by_node.items():
                for name in {each.name for part in parts for each in part.devices}:
                    self._nodes_of.setdefault(name, []).append(node)
            shared = {each.name for part in self.shared_parts for each in part.devices}
            for name in shared:
                self._nodes_of[name] = list(self.named)
        return self._nodes_of.get(device, ())

    @property
    def counter_parts(self) -> tuple[Part, ...]:
        """The slices with counters, which each node sees."""
        return self._of_all

    def condition(self, taken: Sequence[Part]) -> tuple[Condition, str]:
        """Whether the pool can be used by a node that sees these slices, and why it is invalid."""
        expected = taken[0].wire.spec.pool.resource_slice_count
        if expected not in (len(taken), self.total):
            return Condition.INCOMPLETE, ""
        names: set[str] = set()
        for part in taken:
            for device in part.devices:
                if device.name in names:
                    return Condition.INVALID, f"duplicate device name {device.name}"
                names.add(device.name)
        return (Condition.INVALID, self.problem) if self.problem else (Condition.USABLE, "")


def _unknown_counter(device: PooledDevice, sets: dict[str, frozenset[str]]) -> str:
    for each in device.wire.consumes_counters:
        known = sets.get(each.counter_set)
        if known is None:
            return f"counter set {each.counter_set} not found"
        for name in each.counters:
            if name not in known:
                return f"counter {name} not found in counter set {each.counter_set}"
    return ""
