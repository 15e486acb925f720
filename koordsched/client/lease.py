"""The Lease object as an election lock: read, judge, rewrite. Fields that are not ours survive a rewrite."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from koordsched.api.meta import ObjectMeta, Wire

_INT32_MAX = 2**31 - 1


class LeaseSpec(Wire, frozen=True):
    """coordination/v1 LeaseSpec; times are RFC 3339 text with microseconds."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Wire, frozen=True):
    """A Lease as watched by standbys."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class Record(NamedTuple):
    """The content of a lock. Two equal records mean that it was not renewed in between."""

    holder: str
    duration: float
    """Seconds."""
    acquired: str
    renewed: str
    transitions: int

    @classmethod
    def of(cls, spec: LeaseSpec, default_duration: float) -> Record:
        """The record in a Lease; a missing or senseless duration counts as our own."""
        seconds = spec.lease_duration_seconds or 0
        return cls(
            spec.holder_identity or "",
            float(min(seconds, _INT32_MAX)) if seconds > 0 else default_duration,
            spec.acquire_time or "",
            spec.renew_time or "",
            spec.lease_transitions or 0,
        )


class LeaseLock:
    """The last version of the Lease that was read or written, as a whole."""

    def __init__(self, body: bytes, default_duration: float) -> None:
        """Raises msgspec.MsgspecError if `body` is no Lease."""
        try:
            self._raw: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
            lease = msgspec.convert(_without_nulls(self._raw), Lease)
        except (RecursionError, UnicodeDecodeError) as error:
            raise msgspec.DecodeError(str(error)) from None
        self.record = Record.of(lease.spec, default_duration)
        self.version = lease.metadata.resource_version

    def rewritten(self, record: Record) -> bytes:
        """The Lease with this record, to be written only over the version that was read."""
        return msgspec.json.encode({**self._raw, "spec": {**(self._raw.get("spec") or {}), **_spec(record)}})


def new_lease(namespace: str, name: str, record: Record) -> bytes:
    """A Lease that does not exist yet."""
    return msgspec.json.encode(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": namespace, "name": name},
            "spec": _spec(record),
        }
    )


def micro_time(wall: float) -> str:
    """Seconds since the epoch as metav1.MicroTime."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _spec(record: Record) -> dict[str, Any]:
    return {
        "holderIdentity": record.holder,
        # Rounded up: others must never think our lease shorter than we do.
        "leaseDurationSeconds": math.ceil(record.duration),
        "acquireTime": record.acquired,
        "renewTime": record.renewed,
        "leaseTransitions": record.transitions,
    }


def _without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_nulls(member) if isinstance(member, dict) else member
        for key, member in value.items()
        if member is not None
    }
