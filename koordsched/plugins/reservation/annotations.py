"""Annotations of Reservations and their owners: which one a pod uses, what is kept back, what is restricted.

Source: koordinator `apis/extension/{reservation.go,node_reservation.go}`, `pkg/util/{node.go,reservation}`; reservation
spec 2.2, 3.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
import orjson

from koordsched.api.core import Quantities
from koordsched.api.decoding import Decoder
from koordsched.api.meta import Wire
from koordsched.plugins.reservation.kinds import NODE_RESERVATION, RESIZE_ALLOCATABLE, RESTRICTED_OPTIONS
from koordsched.plugins.reservation.malformed import MalformedReservation, annotation, check_quantities
from koordsched.plugins.shared import cpuset


class Allocated(NamedTuple):
    """The Reservation that a pod uses; `uid` tells which one it is."""

    name: str
    uid: str


class _Allocated(Wire, frozen=True):
    name: str = ""
    uid: str = ""


class _RestrictedOptions(Wire, frozen=True):
    resources: tuple[str, ...] = ()


class _NodeReservation(Wire, frozen=True):
    resources: Quantities = {}
    reserved_cpus: str = msgspec.field(default="", name="reservedCPUs")


class _ResizeAllocatable(Wire, frozen=True):
    resources: Quantities = {}


_allocations = Decoder(_Allocated)
_restrictions = Decoder(_RestrictedOptions)
_node_reservations = Decoder(_NodeReservation)
_resizes = Decoder(_ResizeAllocatable)


def allocated_text(name: str, uid: str) -> str:
    """The annotation `reservation-allocated`."""
    return orjson.dumps({"name": name, "uid": uid}).decode()


def parse_allocated(text: str) -> Allocated | None:
    """The opposite; None without a uid. Raises DecodeError."""
    if not text or text.strip() == "null":
        return None
    given = _allocations(text.encode())
    return Allocated(given.name, given.uid) if given.uid else None


def inner_reserved(annotations: Mapping[str, str]) -> Quantities:
    """What no owner is given of a Reservation. Raises MalformedReservation, where upstream reserves nothing."""
    given = annotation(annotations, NODE_RESERVATION, _node_reservations, "NodeReservation")
    if given is None:
        return {}
    check_quantities(given.resources, f"annotation {NODE_RESERVATION}: resources")
    if not given.reserved_cpus:
        return given.resources
    try:
        cpus = cpuset.parse(given.reserved_cpus)
    except ValueError as error:
        raise MalformedReservation(f"annotation {NODE_RESERVATION}: reservedCPUs: {error}") from None
    return {**given.resources, "cpu": str(cpus.bit_count())}


def restricted_names(annotations: Mapping[str, str], allocatable: Iterable[str]) -> tuple[str, ...]:
    """The resources that owners get from a Restricted Reservation only, sorted. Raises MalformedReservation.

    `allocatable`: those that it has. Options that name none of them are none.
    """
    names = tuple(sorted(allocatable))
    given = annotation(annotations, RESTRICTED_OPTIONS, _restrictions, "ReservationRestrictedOptions")
    wanted = frozenset(given.resources) if given is not None else frozenset()
    return tuple(name for name in names if name in wanted) or names


def resized_allocatable(annotations: Mapping[str, str]) -> Quantities:
    """What is written to status.allocatable in place of what the template requests. Raises MalformedReservation."""
    given = annotation(annotations, RESIZE_ALLOCATABLE, _resizes, "ReservationResizeAllocatable")
    if given is None:
        return {}
    check_quantities(given.resources, f"annotation {RESIZE_ALLOCATABLE}: resources")
    return given.resources
