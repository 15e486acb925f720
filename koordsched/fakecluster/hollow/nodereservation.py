"""CPUs that annotations of a node keep from pods: reserved ones, and those of system daemons (QoS class SYSTEM)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from koordsched.api import quantity
from koordsched.fakecluster.hollow.annotationtext import decode_text
from koordsched.fakecluster.hollow.cpulayout import CpuLayout, take_cpus
from koordsched.fakecluster.hollow.cpuset import format_cpuset, parse_cpuset

RESERVATION, SYSTEM_QOS = "node.koordinator.sh/reservation", "node.koordinator.sh/system-qos-resource"
_LONGEST_TEXT = 65536


class Reservation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`node.koordinator.sh/reservation`."""

    resources: dict[str, Any] | None = None
    reserved_cpus: str | None = msgspec.field(default=None, name="reservedCPUs")
    apply_policy: str | None = None


class SystemResource(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`node.koordinator.sh/system-qos-resource`."""

    cpuset: str | None = None
    cpuset_exclusive: bool | None = None

    @property
    def exclusive(self) -> frozenset[int]:
        """The CPUs that no pod may use."""
        return frozenset() if self.cpuset_exclusive is False else parse_cpuset(self.cpuset or "")


def read_reservation(annotations: Mapping[str, str], layout: CpuLayout) -> Reservation:
    """The reservation, with CPUs for a mere number of them: the lowest cores. Raises ValueError."""
    text = annotations.get(RESERVATION)
    if not text or text == "null":
        return Reservation()
    stated = decode_text(text, Reservation, _LONGEST_TEXT)
    cpus = parse_cpuset(stated.reserved_cpus or "")
    if not cpus and stated.resources and "cpu" in stated.resources:
        count = -(-_milli(stated.resources["cpu"]) // 1000)
        every = frozenset(range(layout.count))
        cpus = take_cpus(layout, every, count) or frozenset() if count > 0 else frozenset()
    return msgspec.structs.replace(stated, reserved_cpus=format_cpuset(cpus) or None)


def read_system_resource(annotations: Mapping[str, str]) -> SystemResource | None:
    """What system daemons have. Raises ValueError."""
    text = annotations.get(SYSTEM_QOS)
    if not text or text == "null":
        return None
    stated = decode_text(text, SystemResource, _LONGEST_TEXT)
    parse_cpuset(stated.cpuset or "")
    return stated


def _milli(text: Any) -> int:
    if not isinstance(text, str | int | float):
        raise ValueError("cpu: not a quantity")
    return quantity.milli_value(text)
