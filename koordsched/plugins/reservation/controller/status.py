"""What the status of a Reservation has to say, and the patches that make it say so (reservation spec 3.3, 3.8, 3.9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from koordsched.api.quantity import NANO, QuantityError, format_amount, nano_value
from koordsched.cluster.pod import Pod
from koordsched.cluster.resources import CPU, Requests, ResourceNames
from koordsched.plugins.reservation.controller.expiry import EXPIRED_REASON, SUCCEEDED_REASON
from koordsched.plugins.reservation.kinds import (
    FAILED,
    READY_CONDITION,
    SCHEDULED_CONDITION,
    SUCCEEDED,
    CurrentOwner,
    Reservation,
    ReservationCondition,
)
from koordsched.plugins.reservation.writer import Failure

_UNSCHEDULABLE = "Unschedulable"
_MILLI = NANO // 1000

Changes = dict[str, Any]
"""A merge patch of a status; empty if it is right as it is."""


class Use(NamedTuple):
    """What owners use of a Reservation: nano-units by name of the resource, without zeros; and the owners, by uid."""

    allocated: dict[str, int]
    owners: tuple[CurrentOwner, ...]


def use_of(
    reservation: Reservation,
    owners: Iterable[Pod],
    names: ResourceNames,
    requests_of: Callable[[Pod], Requests] = attrgetter("requests"),
) -> Use:
    """What these pods use of those resources that the Reservation has; it may be more than it has."""
    pods = sorted(owners, key=lambda pod: pod.uid)
    used: dict[int, int] = {}
    for pod in pods:
        for index, amount in requests_of(pod).amounts:
            used[index] = used.get(index, 0) + amount
    allocated = {
        name: used[known] * (_MILLI if known == CPU else NANO)
        for name in names.read(reservation.status.allocatable)
        if (known := names.index.get(name)) is not None and known in used
    }
    return Use(allocated, tuple(CurrentOwner(pod.namespace, pod.name, pod.uid) for pod in pods))


def used(reservation: Reservation, use: Use, now: str) -> Changes:
    """Shows the use; one that is to be used once has succeeded with that. `now`: RFC 3339."""
    status = reservation.status
    shown = {name: amount for name, text in status.allocated.items() if (amount := _nano(text)) != 0}
    owners = tuple(sorted(status.current_owners, key=lambda owner: owner.uid))
    if (shown, owners) == (use.allocated, use.owners):
        return {}
    binary = {name: isinstance(text, str) and text.endswith("i") for name, text in status.allocatable.items()}
    texts = {
        name: format_amount(use.allocated[name], binary=binary.get(name, name == "memory"))
        for name in sorted(use.allocated)
    }
    changes: Changes = {
        "allocated": {**dict.fromkeys(status.allocated), **texts} if texts else None,
        "currentOwners": msgspec.to_builtins([*use.owners]) or None,
    }
    if reservation.spec.once:
        changes |= {"phase": SUCCEEDED, **_conditions(reservation, READY_CONDITION, _succeeded(now))}
    return changes


def expired(reservation: Reservation, now: str) -> Changes:
    """It is over: its time has come, or its node is gone."""
    return {"phase": FAILED, **_conditions(reservation, READY_CONDITION, _expired(now))}


def unschedulable(reservation: Reservation, failure: Failure) -> Changes:
    """Why the last attempt to schedule it failed."""
    return _conditions(reservation, SCHEDULED_CONDITION, _unschedulable(failure))


_Change = Callable[[ReservationCondition | None], ReservationCondition]
"""A condition (None if it is not there yet) -> what it is from now on."""


def _succeeded(now: str) -> _Change:
    def change(before: ReservationCondition | None) -> ReservationCondition:
        if before is None:
            return _new(READY_CONDITION, SUCCEEDED_REASON, now)
        return replace(before, status="False", reason=SUCCEEDED_REASON, last_probe_time=now)

    return change


def _expired(now: str) -> _Change:
    def change(before: ReservationCondition | None) -> ReservationCondition:
        if before is None or before.status == "True":
            return _new(READY_CONDITION, EXPIRED_REASON, now)
        return replace(before, status="False", reason=EXPIRED_REASON, last_probe_time=now)

    return change


def _unschedulable(failure: Failure) -> _Change:
    def change(before: ReservationCondition | None) -> ReservationCondition:
        if before is None:
            return _new(SCHEDULED_CONDITION, _UNSCHEDULABLE, failure.at, failure.message)
        if before.status == "True":
            return replace(before, last_probe_time=failure.at)
        return replace(before, reason=_UNSCHEDULABLE, message=failure.message, last_probe_time=failure.at)

    return change


def _new(kind: str, reason: str, now: str, message: str = "") -> ReservationCondition:
    return ReservationCondition(kind, "False", reason, message, now, now)


def _conditions(reservation: Reservation, kind: str, change: _Change) -> Changes:
    """The condition of a type changed or, if there is none, added; the others as they are."""
    before = reservation.status.conditions
    old = reservation.status.condition(kind)
    new = change(old)
    after = (*before, new) if old is None else tuple(new if each is old else each for each in before)
    return {"conditions": msgspec.to_builtins([*after])} if after != before else {}


def _nano(quantity: object) -> int | None:
    try:
        return nano_value(quantity) if isinstance(quantity, (str, int, float)) else None
    except QuantityError:
        return None
