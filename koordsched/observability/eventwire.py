"""Events on the wire: events.k8s.io/v1 bodies, series patches, names and notes (core spec 5.2)."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import orjson

from koordsched.observability.escaping import printable

NOTE_LIMIT = 1024
"""Bytes of a note that the API server accepts."""

_CUT = " ..."
_NAME_LIMIT = 253
_INSTANCE_LIMIT = 128
_DEFAULT_NAMESPACE = "default"


class ObjectReference(NamedTuple):
    """What an event is about, or related to. Empty strings are left out of the body."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""


class EventKey(NamedTuple):
    """Events that are equal in all of this are one series; the note is not part of it."""

    type: str
    reason: str
    action: str
    controller: str
    regarding: ObjectReference
    related: ObjectReference | None


def cut_note(text: str) -> str:
    """The text as a note: on one line, at most 1024 bytes of UTF-8, of which a cut one keeps 1020 at most."""
    text = printable(text)
    if len(text) * 4 <= NOTE_LIMIT:
        return text
    encoded = text.encode()
    if len(encoded) <= NOTE_LIMIT:
        return text
    return encoded[: NOTE_LIMIT - len(_CUT)].decode(errors="ignore") + _CUT


def event_name(regarding: str, unique: int) -> str:
    """`<object>.<hex>`, the object's name shortened if the whole would be longer than a name may be."""
    suffix = f".{unique:x}"
    if len(regarding) + len(suffix) > _NAME_LIMIT:
        regarding = regarding[: _NAME_LIMIT - len(suffix)].rstrip(".-")
    return regarding + suffix


def reporting_instance(controller: str, hostname: str) -> str:
    """`<controller>-<hostname>`, at most as long as the API server accepts."""
    return f"{controller}-{hostname}"[:_INSTANCE_LIMIT]


def event_namespace(regarding: ObjectReference) -> str:
    """Where an event about this object lives; those about cluster-wide objects go to `default`."""
    return regarding.namespace or _DEFAULT_NAMESPACE


def nanoseconds(wall: float) -> int:
    """Seconds since the epoch in nanoseconds, to the microsecond: a float is not more precise."""
    return round(wall * 1e6) * 1000


class TimeFormat:
    """RFC 3339 in UTC. Remembers the last second, which most events share."""

    __slots__ = ("_second", "_text")

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def micro(self, nanoseconds: int) -> str:
        """With microseconds (MicroTime)."""
        second, rest = divmod(nanoseconds, 1_000_000_000)
        return f"{self._prefix(second)}.{rest // 1000:06d}Z"

    def seconds(self, nanoseconds: int) -> str:
        """With whole seconds (Time)."""
        return f"{self._prefix(nanoseconds // 1_000_000_000)}Z"

    def _prefix(self, second: int) -> str:
        if second != self._second:
            self._second = second
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return self._text


def encode_event(
    *,
    name: str,
    key: EventKey,
    instance: str,
    note: str,
    time: str,
    count: int,
    last_time: str,
) -> bytes:
    """The body of a create. `time` and `last_time` are MicroTimes; `count` above 1 makes it a series."""
    body: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": event_namespace(key.regarding)},
        "eventTime": time,
        "reportingController": key.controller,
        "reportingInstance": instance,
        "action": key.action,
        "reason": key.reason,
        "regarding": _reference(key.regarding),
        "note": note,
        "type": key.type,
    }
    if key.related is not None:
        body["related"] = _reference(key.related)
    if count > 1:
        body["series"] = {"count": count, "lastObservedTime": last_time}
    return orjson.dumps(body)


def encode_series_patch(count: int, last_time: str) -> bytes:
    """The body of a merge patch (strategic or not) that brings the series up to date."""
    return orjson.dumps({"series": {"count": count, "lastObservedTime": last_time}})


def _reference(reference: ObjectReference) -> dict[str, str]:
    body = {"kind": reference.kind, "name": reference.name, "apiVersion": reference.api_version}
    if reference.namespace:
        body["namespace"] = reference.namespace
    if reference.uid:
        body["uid"] = reference.uid
    if reference.resource_version:
        body["resourceVersion"] = reference.resource_version
    return body
