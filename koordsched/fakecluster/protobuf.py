"""Request bodies in Kubernetes' protobuf encoding, turned into JSON.

Go clients prefer it for built-in kinds, kubectl's `create` commands among them. Answers are JSON, which those clients
accept too (for others, see `protobufanswers`). Envelope: apimachinery `pkg/runtime/generated.proto` (Unknown); field
numbers: `koordsched.api.protobuf`.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from functools import cache
from typing import Any

import orjson

from koordsched.api.protobuf.fields import (
    FIELDS_V1,
    INT_OR_STRING,
    MAGIC,
    MICRO_TIME,
    QUANTITY,
    RAW_EXTENSION,
    TIME,
    Field,
    messages,
)
from koordsched.fakecluster.clock import rfc3339, rfc3339_micro
from koordsched.fakecluster.schemas import definitions

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class BadProtobuf(ValueError):
    """The bytes are not a message of the kind they claim to be."""


@cache
def _messages() -> dict[str, dict[int, Field]]:
    return {name: {field.number: field for field in fields} for name, fields in messages().items()}


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
    if not body.startswith(MAGIC):
        raise BadProtobuf("the body does not start with the protobuf envelope")
    api_version = kind = ""
    raw = b""
    for number, value in _fields(body[len(MAGIC) :]):
        if number == 1 and isinstance(value, bytes):
            for inner, text in _fields(value):
                if inner == 1 and isinstance(text, bytes):
                    api_version = text.decode()
                elif inner == 2 and isinstance(text, bytes):
                    kind = text.decode()
        elif number == 2 and isinstance(value, bytes):
            raw = value
    name = kinds().get((api_version, kind))
    if name is None or name not in _messages():
        raise BadProtobuf(f"no protobuf form is known of {kind or 'an unnamed kind'} in {api_version or 'no version'}")
    return orjson.dumps({"apiVersion": api_version, "kind": kind, **_message(raw, name)})


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise BadProtobuf("truncated number")
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, raw value) in order."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise BadProtobuf(f"wire type {wire} is not used by Kubernetes")
        if at + size > len(data):
            raise BadProtobuf("truncated field")
        yield number, data[at : at + size]
        at += size


def _message(data: bytes, name: str) -> dict[str, Any]:
    known = _messages()[name]
    out: dict[str, Any] = {}
    for number, raw in _fields(data):
        field = known.get(number)
        if field is None:
            continue
        _, key, kind, form = field
        if form == "map":
            if isinstance(raw, bytes):
                entry_key, entry = _entry(raw, kind)
                out.setdefault(key, {})[entry_key] = entry
            continue
        value = _value(raw, kind)
        if form == "list":
            out.setdefault(key, []).append(value)
        elif form == "inline":
            out |= value
        elif value is not None and value != "":
            # Go writes empty strings and zero times for what was never set.
            out[key] = value
    return out


def _entry(raw: bytes, kind: str) -> tuple[str, Any]:
    key, value = "", _value(b"" if kind in ("string", "bytes") or kind in _messages() else 0, kind)
    for number, part in _fields(raw):
        if number == 1 and isinstance(part, bytes):
            key = part.decode()
        elif number == 2:
            value = _value(part, kind)
    return key, value


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _value(raw: int | bytes, kind: str) -> Any:
    if isinstance(raw, int):
        return bool(raw) if kind == "bool" else _signed(raw)
    if kind == "string":
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise BadProtobuf("a string is not UTF-8") from None
    if kind == "bytes":
        return base64.b64encode(raw).decode()
    if kind == "double":
        return struct.unpack("<d", raw)[0]
    special = _SPECIAL.get(kind)
    if special is not None:
        return special(raw)
    if kind not in _messages():
        raise BadProtobuf(f"{kind} is not a message")
    decoded = _message(raw, kind)
    fields = _messages()[kind]
    if len(fields) == 1 and definitions().get(kind, {}).get("properties") is None and "items" in decoded:
        # A named list type, which JSON writes as the list alone.
        return decoded["items"]
    return decoded


def _numbers(raw: bytes) -> dict[int, int | bytes]:
    return dict(_fields(raw))


def _time(raw: bytes) -> str | None:
    seconds = _numbers(raw).get(1)
    return rfc3339(_signed(seconds)) if isinstance(seconds, int) else None


def _micro_time(raw: bytes) -> str | None:
    parts = _numbers(raw)
    seconds, nanos = parts.get(1), parts.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int):
        return None
    whole = rfc3339_micro(_signed(seconds))
    return f"{whole[:-7]}{_signed(nanos) // 1000:06d}Z"


def _text(raw: bytes) -> str:
    value = _numbers(raw).get(1, b"")
    return value.decode() if isinstance(value, bytes) else ""


def _int_or_string(raw: bytes) -> int | str:
    parts = _numbers(raw)
    if parts.get(1):
        text = parts.get(3, b"")
        return text.decode() if isinstance(text, bytes) else ""
    number = parts.get(2, 0)
    return _signed(number) if isinstance(number, int) else 0


def _raw_json(raw: bytes) -> Any:
    value = _numbers(raw).get(1)
    try:
        return orjson.loads(value) if isinstance(value, bytes) and value else None
    except ValueError:
        raise BadProtobuf("an embedded object is not JSON") from None


_SPECIAL = {
    TIME: _time,
    MICRO_TIME: _micro_time,
    FIELDS_V1: _raw_json,
    QUANTITY: _text,
    RAW_EXTENSION: _raw_json,
    INT_OR_STRING: _int_or_string,
}
