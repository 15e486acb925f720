"""Whole protobuf messages, and the envelope, lists and watch events as an API server writes them.

Clients read a part of each message only; what they read, and the field numbers, is in `koordsched.api.protobuf`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from google.protobuf import message as protobuf

from koordsched.api.protobuf.fields import MAGIC, messages
from koordsched.api.protobuf.messages import plain_messages

_MESSAGES = plain_messages(
    {
        "TypeMeta": [(1, "api_version", "string"), (2, "kind", "string")],
        "Unknown": [(1, "type_meta", "TypeMeta"), (2, "raw", "bytes")],
        "RawExtension": [(1, "raw", "bytes")],
        "WatchEvent": [(1, "type", "string"), (2, "object", "RawExtension")],
        "List": [(1, "metadata", "bytes"), (2, "items", "bytes[]")],
    }
)
_FRAME_HEAD = 4
"""Bytes before each event of a watch that say how long it is, the highest first (apimachinery `pkg/util/framer`)."""


@cache
def whole_message(definition: str) -> Any:
    """The class of a message with all of its fields, under their names in JSON, by OpenAPI definition."""
    found = [definition]
    written: dict[str, list[tuple[int, str, str]]] = {}
    for owner in found:
        parts = written[_flat(owner)] = []
        for field in messages()[owner]:
            kind = _flat(field.kind)
            if field.kind in messages() and field.kind not in found:
                found.append(field.kind)
            if field.form == "map":
                # Entries, not a map of the library, which forgets their order.
                entry = f"{_flat(owner)}_{field.name}"
                written[entry] = [(1, "key", "string"), (2, "value", kind)]
                kind = entry
            parts.append((field.number, field.name, f"{kind}[]" if field.form in ("list", "map") else kind))
    return plain_messages(written)[_flat(definition)]


def described(data: bytes) -> tuple[str, str, bytes]:
    """The apiVersion, the kind and the message in an envelope. Raises the library's DecodeError if there is none."""
    if data[: len(MAGIC)] != MAGIC:
        raise protobuf.DecodeError("not in the protobuf envelope")
    unknown = _MESSAGES["Unknown"].FromString(data[len(MAGIC) :])
    return unknown.type_meta.api_version, unknown.type_meta.kind, unknown.raw


def enveloped(api_version: str, kind: str, message: bytes) -> bytes:
    """The message in its envelope."""
    type_meta = _MESSAGES["TypeMeta"](api_version=api_version, kind=kind)
    return MAGIC + bytes(_MESSAGES["Unknown"](type_meta=type_meta, raw=message).SerializeToString())


def list_message(metadata: bytes, items: Sequence[bytes]) -> bytes:
    """A list, without envelope, of messages that are encoded already."""
    return bytes(_MESSAGES["List"](metadata=metadata, items=items).SerializeToString())


def watch_frame(kind: str, obj: bytes) -> bytes:
    """A watch event with its length before it; the object is in its envelope."""
    event = bytes(_MESSAGES["WatchEvent"](type=kind, object=_MESSAGES["RawExtension"](raw=obj)).SerializeToString())
    return len(event).to_bytes(_FRAME_HEAD, "big") + event


def _flat(definition: str) -> str:
    return definition.replace(".", "_")
