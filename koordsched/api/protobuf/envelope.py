"""What Kubernetes puts around its protobuf messages: the envelope, the list, the watch event.

Sources: apimachinery `pkg/runtime/generated.proto` (Unknown) and `pkg/apis/meta/v1/generated.proto` (List, WatchEvent);
of every list metadata is field 1 and items are field 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from google.protobuf import message as protobuf

from koordsched.api.decoding import DecodeError
from koordsched.api.protobuf.fields import MAGIC
from koordsched.api.protobuf.messages import plain_messages

_MESSAGES = plain_messages(
    {
        "TypeMeta": [(1, "api_version", "string"), (2, "kind", "string")],
        "Unknown": [(1, "type_meta", "TypeMeta"), (2, "raw", "bytes")],
        "RawExtension": [(1, "raw", "bytes")],
        "WatchEvent": [(1, "type", "string"), (2, "object", "RawExtension")],
        "ListMeta": [(2, "resource_version", "string"), (3, "next_token", "string")],
        "List": [(1, "metadata", "ListMeta"), (2, "items", "bytes[]")],
        "EncodedList": [(1, "metadata", "bytes"), (2, "items", "bytes[]")],
    }
)
_Unknown = _MESSAGES["Unknown"]
_TypeMeta = _MESSAGES["TypeMeta"]
_WatchEvent = _MESSAGES["WatchEvent"]
_RawExtension = _MESSAGES["RawExtension"]
_EncodedList = _MESSAGES["EncodedList"]
_parse_unknown = _Unknown.FromString
_parse_event = _WatchEvent.FromString
_parse_list = _MESSAGES["List"].FromString


FRAME_HEAD = 4
"""Bytes before each event of a watch that say how long it is, the highest first (apimachinery `pkg/util/framer`)."""


class RawList(NamedTuple):
    """A list whose items are still encoded, without envelopes."""

    items: list[bytes]
    version: str
    next_token: str


def opened(data: bytes) -> tuple[str, bytes]:
    """The kind and the message in an envelope. Raises DecodeError if there is none."""
    unknown = _unknown(data)
    return unknown.type_meta.kind, unknown.raw


def described(data: bytes) -> tuple[str, str, bytes]:
    """The apiVersion, the kind and the message in an envelope. Raises DecodeError if there is none."""
    unknown = _unknown(data)
    return unknown.type_meta.api_version, unknown.type_meta.kind, unknown.raw


class Envelope:
    """Puts messages of one kind into their envelope."""

    def __init__(self, api_version: str, kind: str) -> None:
        type_meta = _TypeMeta(api_version=api_version, kind=kind)
        self._start = MAGIC + bytes(_Unknown(type_meta=type_meta).SerializeToString())

    def __call__(self, message: bytes) -> bytes:
        """The message in its envelope."""
        # Fields of a message may come one after the other: those that are always the same are there already.
        return self._start + bytes(_Unknown(raw=message).SerializeToString())


def _unknown(data: bytes) -> Any:
    if data[: len(MAGIC)] != MAGIC:
        raise DecodeError("not in the protobuf envelope")
    return _parsed(_parse_unknown, data[len(MAGIC) :])


def list_of(body: bytes) -> RawList:
    """An enveloped list. Raises DecodeError if it is none."""
    kind, raw = opened(body)
    if not kind.endswith("List"):
        raise DecodeError(f"not a list but {kind or 'an unnamed kind'}")
    found = _parsed(_parse_list, raw)
    return RawList(list(found.items), found.metadata.resource_version, found.metadata.next_token)


def event_of(frame: bytes) -> tuple[str, bytes]:
    """The type of a watch event and its object, in an envelope. Raises DecodeError if it is none."""
    event = _parsed(_parse_event, frame)
    return event.type, event.object.raw


def list_message(metadata: bytes, items: Sequence[bytes]) -> bytes:
    """A list, without envelope, of messages that are encoded already."""
    return bytes(_EncodedList(metadata=metadata, items=items).SerializeToString())


def watch_frame(kind: str, enveloped: bytes) -> bytes:
    """A watch event with its length before it, the highest byte first, as watches have it."""
    event = bytes(_WatchEvent(type=kind, object=_RawExtension(raw=enveloped)).SerializeToString())
    return len(event).to_bytes(FRAME_HEAD, "big") + event


def _parsed(parse: Any, data: bytes) -> Any:
    try:
        return parse(data)
    except protobuf.DecodeError as error:
        raise DecodeError(str(error)) from None
