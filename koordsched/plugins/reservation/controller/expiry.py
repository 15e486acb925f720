"""How long a Reservation lives, and how long it is kept when it is over (reservation spec 3.9)."""

from __future__ import annotations

import math

from koordsched.config.duration import Duration
from koordsched.plugins.reservation.kinds import FAILED, READY_CONDITION, SUCCEEDED, Reservation
from koordsched.plugins.shared.moments import moment

EXPIRED_REASON = "Expired"
SUCCEEDED_REASON = "Succeeded"


def deadline(reservation: Reservation) -> float:
    """When it expires, in seconds since the epoch: the earlier of `expires` and its creation plus `ttl`.

    Infinite with a `ttl` of 0, whatever `expires` says. What cannot be read is as if it was not there (`problem`).
    """
    ttl = _ttl(reservation)
    if ttl == 0:
        return math.inf
    expires = moment(reservation.spec.expires)
    created = moment(reservation.metadata.creation_timestamp)
    ends = (expires, created + ttl.seconds if created is not None and ttl is not None else None)
    return min((end for end in ends if end is not None), default=math.inf)


def problem(reservation: Reservation) -> str:
    """What of the times in its spec cannot be read, "" if all can."""
    spec = reservation.spec
    if spec.ttl is not None:
        try:
            Duration.parse(spec.ttl)
        except ValueError as error:
            return f"spec.ttl: {error}"
    if spec.expires and moment(spec.expires) is None:
        return f"spec.expires: {spec.expires[:64]!r} is not a time"
    return ""


def kept_until(reservation: Reservation, duration: float) -> float | None:
    """When one that is over may be deleted, in seconds since the epoch: `duration` seconds after it was over.

    Infinite if it does not say since when it is over; None for one that is not over, or failed in another way than by
    expiring.
    """
    conditions, phase = reservation.status.conditions, reservation.status.phase
    reason = {SUCCEEDED: SUCCEEDED_REASON, FAILED: EXPIRED_REASON}.get(phase)
    if reason is None or (phase == FAILED and not _has_expired(reservation)):
        return None
    found = next((each for each in conditions if each.reason == reason), None)
    if found is None:
        return math.inf
    times = [found.last_transition_time, found.last_probe_time]
    if phase == SUCCEEDED:
        times.reverse()
    over = (moment(text) for text in (*times, reservation.metadata.creation_timestamp))
    return next((at + duration for at in over if at is not None), math.inf)


def _has_expired(reservation: Reservation) -> bool:
    ready = reservation.status.condition(READY_CONDITION)
    return ready is not None and (ready.status, ready.reason) == ("False", EXPIRED_REASON)


def _ttl(reservation: Reservation) -> Duration | None:
    if reservation.spec.ttl is None:
        return None
    try:
        return Duration.parse(reservation.spec.ttl)
    except ValueError:
        return None
