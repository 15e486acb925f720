"""Partition tables: which GPUs of a machine may be given out together (deviceshare spec 3.5).

Source: koordinator `apis/extension/device_share.go` and `pkg/scheduler/plugins/deviceshare/allocator_gpu_helper.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from koordsched.api.quantity import nano_value
from koordsched.plugins.shared.devices.resources import MAX_MINORS


class Partition(NamedTuple):
    """GPUs that are linked. `minors`: in the order of the table; `bits`: the same as a bit set; `bandwidth`: of the
    ring bus in nano-units, None if it is not known."""

    minors: tuple[int, ...]
    bits: int
    score: int
    bandwidth: int | None


Groups = tuple[tuple[Partition, ...], ...]
"""Partitions by their score, ascending, those of one score in the order of the table."""

Table = tuple[tuple[int, Groups], ...]
"""(number of GPUs, partitions), by number."""


class _Partition(msgspec.Struct, rename="camel"):
    minors: list[int] | None = None
    allocation_score: int = 0
    ring_bus_bandwidth: str | int | float | None = None


_decoder: msgspec.json.Decoder[dict[int, list[_Partition] | None] | None] = msgspec.json.Decoder(
    dict[int, list[_Partition] | None] | None
)


def parse(text: str) -> Table:
    """The table in an annotation. Raises ValueError if it cannot be read."""
    decoded = _decoder.decode(text)
    if decoded is None:
        raise ValueError("null is not a table")
    return table_of({count: [_read(given, count) for given in every or ()] for count, every in decoded.items()})


def _read(given: _Partition, count: int) -> Partition:
    minors = tuple(given.minors or ())
    if len(set(minors)) != count or len(minors) != count:
        raise ValueError(f"{list(minors)} is not a partition of {count} GPUs")  # one would be given out twice, or none
    for minor in minors:
        if not 0 <= minor < MAX_MINORS:
            raise ValueError(f"invalid minor {minor}: at most {MAX_MINORS} devices of a type are supported")
    bandwidth = None if given.ring_bus_bandwidth is None else nano_value(given.ring_bus_bandwidth)
    return Partition(minors, bits_of(minors), given.allocation_score, bandwidth)


def table_of(partitions: Mapping[int, list[Partition]]) -> Table:
    """The table of these partitions, by number of GPUs."""
    return tuple(
        (
            count,
            tuple(
                tuple(partition for partition in every if partition.score == score)
                for score in sorted({partition.score for partition in every})
            ),
        )
        for count, every in sorted(partitions.items())
        if every
    )


def bits_of(minors: tuple[int, ...]) -> int:
    """The bit set of minors."""
    return sum({1 << minor for minor in minors})


HOPPER = table_of(
    {
        size: [
            Partition(minors := tuple(range(first, first + size)), bits_of(minors), 1, None)
            for first in range(0, 8, size)
        ]
        for size in (1, 2, 4, 8)
    }
)
"""Of machines with eight GPUs of these models, linked by NVLink."""

_HOPPER_MODELS = ("H100", "H800", "H20")


def built_in(vendor: str, model: str) -> Table | None:
    """The table of a model, by the labels of its node; None for models without one."""
    return HOPPER if vendor in ("", "nvidia") and model in _HOPPER_MODELS else None
