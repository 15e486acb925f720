"""What allocated devices take of their node's allocatable resources (dra spec 3.11): CPU for a group of cores, say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import NamedTuple

from koordsched.api.core import Quantity
from koordsched.api.quantity import NANO, format_amount, format_nano, parse
from koordsched.api.resource import NodeAllocatableResourceMapping

_LEAST_BINARY = 1024 * NANO

Mappings = Mapping[str, NodeAllocatableResourceMapping]
"""What a device takes, by resource."""


class Taken(NamedTuple):
    """An amount of a resource in billionths. `binary`: it is written in powers of 1024."""

    resource: str
    nano: int
    binary: bool

    @property
    def text(self) -> str:
        """The quantity as the API server writes it."""
        return format_amount(self.nano, binary=True) if self.binary_text else format_nano(self.nano)

    @property
    def binary_text(self) -> bool:
        """Whether it is large enough for powers of 1024."""
        return self.binary and abs(self.nano) >= _LEAST_BINARY


Footprint = tuple[Taken, ...]
"""What the devices of one claim take, in the order of the resources; empty if none of them takes any."""


class Unmeasured(NamedTuple):
    """A device takes a share of a capacity, of which nothing is said to be consumed: the attempt fails."""

    resource: str
    capacity: str


UNMEASURED: Footprint = (Taken("", -1, False),)
"""Stands for a footprint that cannot be had."""


def unmeasured(mappings: Mappings, consumed: Mapping[str, Quantity] | None) -> Unmeasured | None:
    """The first resource of a device that cannot be measured; `consumed` is None for a device that is not shared."""
    if consumed is not None:
        return None
    for resource in sorted(mappings):
        if key := mappings[resource].capacity_key:
            return Unmeasured(resource, key)
    return None


def footprint(devices: Iterable[tuple[Mappings, Mapping[str, Quantity] | None]]) -> Footprint:
    """What these devices take: (mappings, what is consumed of the capacities). All must be measurable.

    Raises QuantityError.
    """
    total: dict[str, Taken] = {}
    for mappings, consumed in devices:
        for resource, mapping in mappings.items():
            base: Quantity
            if not mapping.capacity_key:
                base, times = mapping.allocation_multiplier or "0", parse("1")
            elif consumed is not None and mapping.capacity_key in consumed:
                base, times = consumed[mapping.capacity_key], parse(mapping.allocation_multiplier or "1")
            else:
                continue
            # Fractions of a billionth are rounded up, as quantities are.
            nano, binary = ceil(parse(base) * times * NANO), str(base).endswith("i")
            before = total.get(resource)
            if before is not None and before.nano:
                nano, binary = before.nano + nano, before.binary
            total[resource] = Taken(resource, nano, binary)
    return tuple(total[resource] for resource in sorted(total))
