"""Pools as people look at them: whether they can be used, and which of their devices are free."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from koordsched.plugins.dynamicresources.structured.inuse import PoolInUse
from koordsched.plugins.dynamicresources.structured.pools import Condition, Counters, Pool
from koordsched.plugins.dynamicresources.structured.slices import PooledDevice, PoolKey
from koordsched.plugins.dynamicresources.structured.views import View

CONDITIONS = {Condition.USABLE: "usable", Condition.INCOMPLETE: "incomplete", Condition.INVALID: "invalid"}


class Use(StrEnum):
    """What is in use of a device: all, shares of it, or too much of the counters that it needs; `GONE`: in use, and not
    published any more."""

    FREE = "free"
    ALLOCATED = "allocated"
    SHARED = "shared"
    BLOCKED = "blocked"
    GONE = "gone"


class DeviceState(NamedTuple):
    """A device by name; `found` is None if it is gone."""

    name: str
    use: Use
    found: PooledDevice | None


class PoolState(NamedTuple):
    """A pool in its current generation. `slices` of `expected` are there; `condition` as in CONDITIONS, `problem` says
    why it is invalid.
    """

    key: PoolKey
    generation: int
    slices: int
    expected: int
    condition: str
    problem: str
    devices: list[DeviceState]

    def count(self, use: Use) -> int:
        """How many devices are in this use."""
        return sum(device.use is use for device in self.devices)


def state_of(pool: Pool, in_use: PoolInUse | None, views: Iterable[View]) -> PoolState:
    """The pool as it is. `views`: what nodes see of it, of which the worst condition counts."""
    parts = sorted(
        (part for part in pool.parts.values() if part.generation == pool.generation), key=lambda part: part.name
    )
    expected = parts[0].wire.spec.pool.resource_slice_count if parts else 0
    condition, problem = max(
        ((view.shape.condition, view.problem) for view in views),
        default=(Condition.USABLE if expected == len(parts) else Condition.INCOMPLETE, ""),
    )
    found = [device for part in parts if not part.skipped for device in part.devices]
    left = _left(pool, in_use)
    devices = [DeviceState(device.name, _use(device, in_use, left), device) for device in found]
    published = {device.name for device in found}
    gone = sorted(set(in_use.devices) - published) if in_use is not None else []
    devices += [DeviceState(name, Use.GONE, None) for name in gone]
    return PoolState(pool.key, pool.generation, len(parts), expected, CONDITIONS[condition], problem, devices)


def _left(pool: Pool, in_use: PoolInUse | None) -> Counters:
    """What is left of the counters of the pool."""
    left = dict(pool.counters)
    for name in in_use.devices if in_use is not None else ():
        for model in pool.models.get(name, ()):
            for key, amount in model.counters:
                left[key] = left.get(key, 0) - amount
    return left


def _use(device: PooledDevice, in_use: PoolInUse | None, left: Counters) -> Use:
    if in_use is not None and device.name in in_use.exclusive:
        return Use.ALLOCATED
    if in_use is not None and device.name in in_use.shares:
        return Use.SHARED
    if any(amount > left.get(key, 0) for key, amount in device.equipment.model.counters):
        return Use.BLOCKED
    return Use.FREE
