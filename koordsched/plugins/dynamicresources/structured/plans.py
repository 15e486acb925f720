"""What a demand makes of an inventory: which devices each request could have, worked out as far as a search asks.

Devices are positions: those of all usable pools of a node in the order in which they are tried. Sets of devices are
ints, a bit per position.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from koordsched.api.quantity import nano_value
from koordsched.plugins.dynamicresources.structured.capacity import Amount, consumption
from koordsched.plugins.dynamicresources.structured.constraints import Value, value_of
from koordsched.plugins.dynamicresources.structured.devices import Equipment
from koordsched.plugins.dynamicresources.structured.failures import SearchExpired
from koordsched.plugins.dynamicresources.structured.features import Features
from koordsched.plugins.dynamicresources.structured.pools import Condition
from koordsched.plugins.dynamicresources.structured.requests import Alternative, Prepared
from koordsched.plugins.dynamicresources.structured.selectors import Expired, Expressions, SelectorFailure
from koordsched.plugins.dynamicresources.structured.taints import tolerated
from koordsched.plugins.dynamicresources.structured.views import Inventory, Shape

_KINDS_KEPT = 1 << 17
_PLANS_KEPT = 1 << 17


class Suits(IntEnum):
    """What is to be said of a device and a request, whatever is in use. In the order of the checks."""

    UNKNOWN = 0
    YES = 1
    FAILED = 2
    """A selector cannot be evaluated."""
    NOT_SELECTED = 3
    TOO_SMALL = 4
    NO_COUNTERS = 5
    """It is a partition, and the feature for these is off."""
    TAINTED = 6
    FAULTY = 7
    """A selector cannot be evaluated on it, and the demand is lenient."""


class DeviceKind:
    """Devices that are the same to a demand: what differs is not read by any selector or constraint of it.

    `suits`: the verdict by alternative; `consumes`: what an alternative takes of capacities of shared devices;
    `limits`: what there is of capacities; `values`: by claim, what its constraints compare; `failures`: errors of
    selectors by alternative.
    """

    __slots__ = ("consumes", "equipment", "failures", "limits", "number", "suits", "values")

    def __init__(self, number: int, equipment: Equipment, prepared: Prepared, *, lists: bool) -> None:
        self.number = number
        self.equipment = equipment
        self.suits = [Suits.UNKNOWN] * len(prepared.alternatives)
        self.consumes: list[tuple[tuple[str, Amount], ...]] = [()] * len(prepared.alternatives)
        self.failures: dict[int, str] = {}
        self.limits = {name: nano_value(each.value) for name, each in equipment.model.capacity.items()}
        self.values: tuple[tuple[Value | None, ...], ...] = tuple(
            tuple(value_of(constraint, equipment, lists=lists) for constraint in claim.constraints)
            for claim in prepared.claims
        )


class Outline:
    """A pool of a node as a demand sees it. `driver`: whose devices cannot all be told, "" if it does not matter."""

    __slots__ = ("condition", "counters", "driver", "kinds", "number")

    def __init__(self, number: int, kinds: list[DeviceKind], shape: Shape, driver: str) -> None:
        self.driver = driver
        self.number = number
        self.kinds = kinds
        self.condition = shape.condition
        self.counters = shape.counters


class Plan:
    """An inventory as one demand sees it. `pools`: the first position of each usable pool; `counters`: what there is of
    counters in each; `multi`, `counted`: the devices that may be shared, and those that consume counters. By
    alternative: `known`, the devices that were looked at; `suited` and `failed`, what came out. `partial`: drivers
    whose devices cannot all be told, of lenient demands.
    """

    __slots__ = (
        "counted",
        "counters",
        "every",
        "failed",
        "kinds",
        "known",
        "multi",
        "number",
        "partial",
        "pools",
        "suited",
        "troubles",
        "usable",
    )

    def __init__(self, number: int, outlines: list[Outline], alternatives: int) -> None:
        self.number = number
        self.kinds = kinds = [kind for outline in outlines for kind in outline.kinds]
        self.every = (1 << len(kinds)) - 1
        self.partial = frozenset(outline.driver for outline in outlines if outline.driver)
        self.pools: list[int] = []
        self.usable: list[int] = []
        """The numbers of the usable pools among all pools of the inventory."""
        self.counters: list[Any] = []
        self.troubles: list[tuple[int, Condition]] = []
        start = 0
        for position, outline in enumerate(outlines):
            if outline.condition == Condition.USABLE:
                self.usable.append(position)
                self.pools.append(start)
                self.counters.append(outline.counters)
                start += len(outline.kinds)
            else:
                self.troubles.append((position, outline.condition))
        self.multi = sum(1 << at for at, kind in enumerate(kinds) if kind.equipment.model.multi)
        self.counted = sum(1 << at for at, kind in enumerate(kinds) if kind.equipment.model.counters)
        self.known = [0] * alternatives
        self.suited = [0] * alternatives
        self.failed = [0] * alternatives

    def pool_of(self, position: int) -> int:
        """The number of the device's pool among the usable ones."""
        return bisect_right(self.pools, position) - 1


def arranged(devices: int, order: Sequence[int]) -> int:
    """The set of the same devices, by positions in an order: for each position, that in the set."""
    return sum(1 << at for at, before in enumerate(order) if devices >> before & 1)


class Planner:
    """The plans of one demand."""

    def __init__(self, prepared: Prepared, expressions: Expressions, features: Features) -> None:
        self._prepared = prepared
        self._expressions = expressions
        self._features = features
        self._kinds: dict[Any, DeviceKind] = {}
        self._plans: dict[Any, Plan] = {}
        self._of_inventory: dict[int, Plan] = {}
        self._outlines: dict[Any, Outline] = {}
        self._of_shape: dict[int, Outline] = {}
        self._number = 0

    @property
    def nbytes(self) -> int:
        """About how many bytes are kept."""
        return 600 * len(self._kinds) + 2000 * len(self._plans) + 200 * len(self._of_inventory)

    def plan(self, inventory: Inventory) -> Plan:
        """The plan for an inventory; nodes whose inventories differ in nothing that is read share one."""
        found = self._of_inventory.get(inventory.number)
        if found is not None:
            return found
        if len(self._kinds) > _KINDS_KEPT or len(self._of_inventory) > _PLANS_KEPT:
            self._kinds.clear()
            self._plans.clear()
            self._of_inventory.clear()
            self._outlines.clear()
            self._of_shape.clear()
        outlines = [self._outline(shape) for shape in inventory.shapes]
        key = (tuple(outline.number for outline in outlines), inventory.own)
        found = self._plans.get(key)
        if found is None:
            self._number += 1
            found = self._plans[key] = Plan(self._number, outlines, len(self._prepared.alternatives))
        self._of_inventory[inventory.number] = found
        return found

    def _outline(self, shape: Shape) -> Outline:
        """What there is of a pool for the demand; shapes that differ in nothing that is read have the same."""
        found = self._of_shape.get(shape.number)
        if found is None:
            usable = shape.condition == Condition.USABLE
            kinds = [self._kind(each) for each in shape.equipment] if usable else []
            driver = ""
            if self._prepared.lenient and not usable and shape.equipment:
                driver = shape.equipment[0].model.driver
            key = (tuple(kind.number for kind in kinds), shape.condition, tuple(sorted(shape.counters.items())), driver)
            found = self._outlines.get(key)
            if found is None:
                self._number += 1
                found = self._outlines[key] = Outline(self._number, kinds, shape, driver)
            self._of_shape[shape.number] = found
        return found

    def _kind(self, equipment: Equipment) -> DeviceKind:
        reads = self._prepared.reads
        key: Any = equipment.number
        if reads is not None:
            model, get = equipment.model, equipment.attributes.get
            key = (
                model.number,
                equipment.converted,
                *((get(f"{domain}/{name}"), get(name) if domain == model.driver else None) for domain, name in reads),
            )
        found = self._kinds.get(key)
        if found is None:
            self._number += 1
            found = DeviceKind(self._number, equipment, self._prepared, lists=self._features.list_attributes)
            self._kinds[key] = found
        return found

    # --- devices and requests ----------------------------------------------------------------------------

    def look(self, plan: Plan, alternative: Alternative, position: int, expired: Expired) -> Suits:
        """Whether a request could have a device. Raises SearchExpired."""
        number, bit = alternative.number, 1 << position
        kind = plan.kinds[position]
        suits = kind.suits[number]
        if suits is Suits.UNKNOWN:
            suits = kind.suits[number] = self._judge(alternative, kind, expired)
        if not plan.known[number] & bit:
            plan.known[number] |= bit
            if suits is Suits.YES:
                plan.suited[number] |= bit
            elif suits is Suits.FAILED:
                plan.failed[number] |= bit
        return suits

    def look_at_all(self, plan: Plan, alternative: Alternative, expired: Expired) -> None:
        """Looks at all devices."""
        unknown = plan.every & ~plan.known[alternative.number]
        while unknown:
            low = unknown & -unknown
            self.look(plan, alternative, low.bit_length() - 1, expired)
            unknown ^= low

    def _judge(self, alternative: Alternative, kind: DeviceKind, expired: Expired) -> Suits:
        model = kind.equipment.model
        if model.conditional and not self._features.binding_conditions:
            return Suits.NOT_SELECTED
        for selector in alternative.selectors:
            try:
                selected = self._expressions.selects(selector.text, kind.equipment, expired)
            except SelectorFailure as failure:
                if expired():
                    raise SearchExpired from failure
                kind.failures[alternative.number] = f"{selector.owner}: {failure}"
                return Suits.FAULTY if self._prepared.lenient and not failure.anywhere else Suits.FAILED
            if not selected:
                return Suits.NOT_SELECTED
        if self._features.consumable_capacity:
            consumed = consumption(model.capacity, alternative.capacity)
            if consumed is None:
                return Suits.TOO_SMALL
            if model.multi:
                kind.consumes[alternative.number] = consumed
        if model.counters and not self._features.partitionable_devices:
            return Suits.NO_COUNTERS
        return Suits.YES if tolerated(model.taints, alternative.tolerations) else Suits.TAINTED
