"""Request bodies in Kubernetes' protobuf encoding, turned into JSON.

Go clients prefer it for built-in kinds, kubectl's `create` commands and schedulers among them. Answers are JSON, which
those clients accept too (for others, see `protobufanswers`). Field numbers: `koordsched.api.protobuf`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import cache
from typing import Any

import orjson
from google.protobuf import message as protobuf

from koordsched.api.protobuf.fields import (
    FIELDS_V1,
    INT_OR_STRING,
    MICRO_TIME,
    QUANTITY,
    RAW_EXTENSION,
    TIME,
    Field,
    messages,
)
from koordsched.fakecluster.clock import rfc3339, rfc3339_micro
from koordsched.fakecluster.protobufmessages import described, whole_message
from koordsched.fakecluster.schemas import definitions

Convert = Callable[[Any], Any]
"""Makes what JSON has of what the library read."""


class BadProtobuf(ValueError):
    """The bytes are not a message of the kind they claim to be."""


@cache
def kinds() -> dict[tuple[str, str], str]:
    """Definitions by (apiVersion, kind)."""
    found = {}
    for name, schema in definitions().items():
        for gvk in schema.get("x-kubernetes-group-version-kind") or ():
            group, version = gvk.get("group"), gvk["version"]
            found[(f"{group}/{version}" if group else version, gvk["kind"])] = name
    return found


def to_json(body: bytes) -> bytes:
    """The object in an enveloped protobuf body, as JSON. Raises BadProtobuf."""
    try:
        api_version, kind, raw = described(body)
        definition = kinds().get((api_version, kind), "")
        if definition not in messages():
            form = f"{kind or 'an unnamed kind'} in {api_version or 'no version'}"
            raise BadProtobuf(f"no protobuf form is known of {form}")
        obj = _plain(whole_message(definition).FromString(raw), definition)
        return orjson.dumps({"apiVersion": api_version, "kind": kind, **obj})
    except protobuf.DecodeError as problem:
        raise BadProtobuf(str(problem)) from None
    except (OverflowError, ValueError) as problem:
        raise BadProtobuf(f"a value that JSON cannot have: {problem}") from None


def _plain(message: Any, definition: str) -> dict[str, Any]:
    """What is set in a message."""
    takers = _takers(definition)
    out: dict[str, Any] = {}
    for descriptor, value in message.ListFields():
        takers[descriptor.number](out, value)
    return out


@cache
def _takers(definition: str) -> dict[int, Callable[[dict[str, Any], Any], None]]:
    """By field number: what puts the field's value into an object."""
    return {field.number: _taker(field, definition in _CHOICES) for field in messages()[definition]}


_CHOICES = {"io.k8s.api.resource.v1.DeviceAttribute"}
"""Messages of which one field is set: a pointer in Go, to an empty string too."""


def _taker(field: Field, may_be_empty: bool) -> Callable[[dict[str, Any], Any], None]:
    name, convert = field.name, _converter(field.kind)

    def one(out: dict[str, Any], value: Any) -> None:
        made = value if convert is None else convert(value)
        if made is not None and (made != "" or may_be_empty):
            # Go writes empty strings and zero times for what was never set.
            out[name] = made

    def many(out: dict[str, Any], values: Any) -> None:
        out[name] = list(values) if convert is None else [convert(value) for value in values]

    def mapped(out: dict[str, Any], entries: Any) -> None:
        out[name] = {entry.key: entry.value if convert is None else convert(entry.value) for entry in entries}

    def inline(out: dict[str, Any], value: Any) -> None:
        out |= _plain(value, field.kind)

    return {"": one, "list": many, "map": mapped, "inline": inline}[field.form]


def _converter(kind: str) -> Convert | None:
    """None where JSON has the value as the library does."""
    if kind == "bytes":
        return _base64
    if kind in _SPECIAL:
        return _SPECIAL[kind]
    if kind not in messages():
        return None
    if len(messages()[kind]) == 1 and definitions().get(kind, {}).get("properties") is None:
        # A named list type, which JSON writes as the list alone.
        return lambda message: list(message.items)
    return lambda message: _plain(message, kind)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _time(message: Any) -> str | None:
    return rfc3339(message.seconds) if message.HasField("seconds") else None


def _micro_time(message: Any) -> str | None:
    if not message.HasField("seconds"):
        return None
    return f"{rfc3339_micro(message.seconds)[:-7]}{message.nanos // 1000:06d}Z"


def _quantity(message: Any) -> str:
    text: str = message.string
    return text


def _int_or_string(message: Any) -> int | str:
    value: int | str = message.strVal if message.type else message.intVal
    return value


def _raw_json(raw: bytes) -> Any:
    try:
        return orjson.loads(raw) if raw else None
    except ValueError:
        raise BadProtobuf("an embedded object is not JSON") from None


_SPECIAL: dict[str, Convert] = {
    TIME: _time,
    MICRO_TIME: _micro_time,
    FIELDS_V1: lambda message: _raw_json(message.Raw),
    QUANTITY: _quantity,
    RAW_EXTENSION: lambda message: _raw_json(message.raw),
    INT_OR_STRING: _int_or_string,
}
