"""The annotation `koordsched.io/drivers` of a node, `drivers` of a node template, and `pools` of a template file: the
devices for dynamic resource allocation.

[{"name": "gpu.example.com", "devices": [
  {"name": "gpu", "count": 8, "attributes": {"model": "H100"}, "capacity": {"memory": "80Gi"}}]}]
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from koordsched.fakecluster.hollow.annotationtext import decode_text
from koordsched.fakecluster.hollow.duration import parse_duration

Object = dict[str, Any]
Scalar = bool | int | str
Amount = str | int | float

DRIVERS = "koordsched.io/drivers"
_LONGEST_TEXT = 65536
_MOST_DEVICES = 4096
"""Of one kind in one pool."""


class Partition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """Parts of a device that are devices, too, as far as its counters suffice."""

    name: str
    """The parts of gpu-0 are gpu-0-<name>-0, gpu-0-<name>-1, ..."""
    counters: dict[str, Amount]
    """What each takes of the device's counters."""
    count: int = 1
    attributes: dict[str, Scalar | Object] = {}
    """In addition to those of the device."""
    capacity: dict[str, Amount | Object] = {}
    """Instead of that of the device."""


class DeviceKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """Devices that are alike. Raises ValueError for impossible values."""

    name: str
    """They are <name>-0, <name>-1, ..."""
    count: int = 1
    attributes: dict[str, Scalar | Object] = {}
    """Values as they are, or as the API has them, e.g. {version: 1.2.3}. Each device also has an index and a uuid."""
    spread: dict[str, list[Scalar]] = {}
    """More attributes, whose values are spread over the devices, in order."""
    capacity: dict[str, Amount | Object] = {}
    """Quantities, or as the API has them, with a requestPolicy."""
    shared: bool = False
    """Many claims may have a part of the capacity."""
    counters: dict[str, Amount] = {}
    """Of each device, for its partitions; the device as a whole takes all."""
    partitions: list[Partition] = []
    taints: list[Object] = []
    binds_to_node: bool = False
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []

    def __post_init__(self) -> None:
        if not 1 <= self.count <= _MOST_DEVICES or any(
            not 1 <= each.count <= _MOST_DEVICES for each in self.partitions
        ):
            raise ValueError(f"count must be 1 to {_MOST_DEVICES}")
        if bool(self.counters) != bool(self.partitions):
            raise ValueError("counters and partitions go together")
        if not all(self.spread.values()):
            raise ValueError("spread: at least one value is needed")


class _Driver(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True, kw_only=True
):
    devices: list[DeviceKind]
    devices_per_slice: int = 0
    """As many as there may be in a ResourceSlice, unless stated."""
    ready: str = ""
    """How long (`5s`) it takes until the binding conditions of allocated devices are true; for ever unless stated."""

    def __post_init__(self) -> None:
        if self.ready:
            parse_duration(self.ready)
        if self.devices_per_slice < 0:
            raise ValueError("devicesPerSlice must not be negative")


class DriverLayout(_Driver, frozen=True, kw_only=True):
    """A driver on a node, and its devices there, which are one pool. Raises ValueError for impossible values."""

    name: str
    pool: str = ""
    """The name of the node unless stated."""


class PoolLayout(_Driver, frozen=True, kw_only=True):
    """A pool of devices that are attached to no node. Raises ValueError for impossible values."""

    name: str
    driver: str
    node_selector: dict[str, str] = {}
    """Labels of the nodes that reach the devices; all nodes unless stated."""


@lru_cache(maxsize=1024)
def read_drivers(text: str) -> tuple[DriverLayout, ...]:
    """The drivers of a node. Raises ValueError."""
    return tuple(decode_text(text, list[DriverLayout], _LONGEST_TEXT))
