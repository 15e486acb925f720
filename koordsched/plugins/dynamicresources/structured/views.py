"""What a node sees of a pool: the devices that it can reach, and which of them are in use, as bits.

What decisions depend on is interned without names: the `Shape` of the devices, and a number for the state they are in.
So nodes that are equipped alike and in the same state get the same answers.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import count
from weakref import WeakValueDictionary

from koordsched.plugins.dynamicresources.structured.devices import Equipment
from koordsched.plugins.dynamicresources.structured.inuse import PoolInUse
from koordsched.plugins.dynamicresources.structured.pools import Condition, Counters, Pool
from koordsched.plugins.dynamicresources.structured.slices import Part

_STATES_KEPT = 1 << 16


class Shape:
    """Devices in the order in which they are tried, whether they may be given out, and the counters that they share."""

    __slots__ = ("__weakref__", "condition", "counters", "equipment", "number")

    def __init__(
        self,
        number: int,
        equipment: tuple[Equipment, ...],
        condition: Condition,
        counters: Mapping[tuple[str, str], int],
    ) -> None:
        self.number = number
        self.equipment = equipment
        self.condition = condition
        self.counters = counters


class Inventory:
    """The shapes of all pools of a node in order. `own`: which of them name the node."""

    __slots__ = ("__weakref__", "number", "own", "shapes")

    def __init__(self, number: int, shapes: tuple[Shape, ...], own: tuple[bool, ...]) -> None:
        self.number = number
        self.shapes = shapes
        self.own = own


class Interned:
    """Shapes, inventories and states that were seen. Numbers are never reused; 0 is the state of nothing in use."""

    __slots__ = ("_inventories", "_numbers", "_shapes", "_states")

    def __init__(self) -> None:
        self._numbers = count(1)
        self._shapes: WeakValueDictionary[Hashable, Shape] = WeakValueDictionary()
        self._inventories: WeakValueDictionary[Hashable, Inventory] = WeakValueDictionary()
        self._states: dict[Hashable, int] = {}

    def shape(self, equipment: tuple[Equipment, ...], condition: Condition, counters: Counters) -> Shape:
        """The shape of a pool."""
        key = (tuple(each.number for each in equipment), condition, tuple(sorted(counters.items())))
        found = self._shapes.get(key)
        if found is None:
            found = self._shapes[key] = Shape(next(self._numbers), equipment, condition, counters)
        return found

    def inventory(self, shapes: tuple[Shape, ...], own: tuple[bool, ...]) -> Inventory:
        """The inventory of a node. `own`: which of the pools name the node, so that their states are found apart."""
        key = (tuple(shape.number for shape in shapes), own)
        found = self._inventories.get(key)
        if found is None:
            found = self._inventories[key] = Inventory(next(self._numbers), shapes, own)
        return found

    def state(self, key: Hashable) -> int:
        """The number of a state."""
        if not key:
            return 0
        found = self._states.get(key)
        if found is None:
            if len(self._states) >= _STATES_KEPT:
                self._states.clear()
            found = self._states[key] = next(self._numbers)
        return found


class Shared:
    """What is in use of a device that is shared: the number of shares, and what they consume in billionths."""

    __slots__ = ("consumed", "number")

    def __init__(self, number: int, consumed: dict[str, int]) -> None:
        self.number = number
        self.consumed = consumed


class View:
    """A pool as a node, or nodes that reach the same of it, see it. `problem`: why it is invalid."""

    __slots__ = (
        "_interned",
        "conditional",
        "counters_used",
        "devices",
        "pool",
        "problem",
        "shape",
        "shared",
        "slots",
        "state",
        "used",
    )

    def __init__(
        self, pool: Pool, parts: tuple[Part, ...], node: str, matched: frozenset[int], interned: Interned
    ) -> None:
        self.pool = pool
        self._interned = interned
        self.devices = tuple(
            device
            for part in parts
            for device in part.devices
            if device.reach is None or device.reach.includes(node, matched)
        )
        self.conditional = any(device.equipment.model.conditional for part in parts for device in part.devices)
        condition, self.problem = pool.condition(parts)
        equipment = tuple(device.equipment for device in self.devices)
        counted = any(each.model.counters for each in equipment)
        self.shape = interned.shape(equipment, condition, pool.counters if counted else {})
        self.slots = {device.name: slot for slot, device in enumerate(self.devices)}
        self.used = 0
        self.shared: dict[int, Shared] = {}
        self.counters_used: Counters = {}
        self.state = 0

    @property
    def order(self) -> tuple[bool, tuple[str, str]]:
        """Sorts the pools of a node: those with devices that need binding conditions come last."""
        return (self.conditional, self.pool.key)

    def count_all(self, in_use: PoolInUse | None) -> None:
        """Reads the use of all devices."""
        self.used, self.shared = 0, {}
        if in_use is not None:
            for name in in_use.devices:
                self._count(in_use, name)
        self._count_counters(in_use)
        self._number()

    def count_one(self, in_use: PoolInUse | None, device: str) -> bool:
        """Reads the use of a device again. Returns whether the state is another one now."""
        before = self.state
        self._count(in_use, device)
        self._count_counters(in_use)
        self._number()
        return self.state != before

    def _count(self, in_use: PoolInUse | None, name: str) -> None:
        slot = self.slots.get(name)
        if slot is None:
            return
        shares = in_use.share_ids(name) if in_use is not None else frozenset()
        # A device that was shared and is not any more is in use as long as it has shares.
        whole = in_use is not None and (name in in_use.exclusive or (bool(shares) and not self._is_multi(slot)))
        self.used = self.used | 1 << slot if whole else self.used & ~(1 << slot)
        if in_use is not None and shares:
            self.shared[slot] = Shared(len(shares), in_use.consumed(name))
        else:
            self.shared.pop(slot, None)

    def _is_multi(self, slot: int) -> bool:
        return self.devices[slot].equipment.model.multi

    def _count_counters(self, in_use: PoolInUse | None) -> None:
        if not self.shape.counters:
            return
        self.counters_used = {}
        models = self.pool.models
        for name in in_use.devices if in_use is not None else ():
            for model in models.get(name, ()):
                for key, amount in model.counters:
                    self.counters_used[key] = self.counters_used.get(key, 0) + amount

    def _number(self) -> None:
        if not self.used and not self.shared and not self.counters_used:
            self.state = 0
            return
        shared = tuple(
            (slot, each.number > 0, tuple(sorted(each.consumed.items()))) for slot, each in sorted(self.shared.items())
        )
        self.state = self._interned.state((self.used, shared, tuple(sorted(self.counters_used.items()))))
