"""What a request consumes of the capacity of a device (dra spec 3.6, consumable capacity).

Amounts are exact ints in billionths; policies round in whole units, as upstream does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from koordsched.api.core import Quantity
from koordsched.api.quantity import NANO, format_bytes, nano_value
from koordsched.api.resource import CapacityRequestPolicy, DeviceCapacity


class Amount(NamedTuple):
    """An amount in billionths, and how it is written."""

    nano: int
    text: str


def amount(text: Quantity) -> Amount:
    """The amount that a quantity stands for."""
    return Amount(nano_value(text), str(text))


def consumption(
    capacity: Mapping[str, DeviceCapacity], requested: Mapping[str, Quantity]
) -> tuple[tuple[str, Amount], ...] | None:
    """What the request consumes of each capacity of a device, by name; None if the device cannot serve it even idle."""
    if any(name not in capacity for name in requested):
        return None
    found = []
    for name in sorted(capacity):
        has = capacity[name]
        consumed = _consumed(has, requested.get(name))
        if consumed.nano > nano_value(has.value) or _violates(consumed, has.request_policy):
            return None
        found.append((name, consumed))
    return tuple(found)


def _consumed(capacity: DeviceCapacity, requested: Quantity | None) -> Amount:
    policy = capacity.request_policy
    if requested is None:
        default = policy.default if policy is not None else None
        return amount(capacity.value if default is None else default)
    if policy is None:
        return amount(requested)
    if policy.valid_values:
        wanted = nano_value(requested)
        return next((amount(each) for each in policy.valid_values if nano_value(each) >= wanted), amount(requested))
    between = policy.valid_range
    if between is None or between.min is None:
        return amount(requested)
    if nano_value(requested) < nano_value(between.min):
        return amount(between.min)
    if between.step is None:
        return amount(requested)
    least, step = _units(between.min), _units(between.step)
    if step <= 0:
        return amount(requested)
    units = least + -((least - _units(requested)) // step) * step
    return Amount(units * NANO, format_bytes(units))


def _violates(consumed: Amount, policy: CapacityRequestPolicy | None) -> bool:
    """Whether the policy does not allow to consume so much."""
    if policy is None or (policy.default is not None and nano_value(policy.default) == consumed.nano):
        return False
    if policy.valid_values:
        return all(nano_value(each) != consumed.nano for each in policy.valid_values)
    between = policy.valid_range
    if between is None:
        return False
    if between.max is not None and consumed.nano > nano_value(between.max):
        return True
    if between.step is None or between.min is None or (step := _units(between.step)) <= 0:
        return False
    return (-(-consumed.nano // NANO) - _units(between.min)) % step != 0


def _units(text: Quantity) -> int:
    """Whole units, rounded up."""
    return -(-nano_value(text) // NANO)
