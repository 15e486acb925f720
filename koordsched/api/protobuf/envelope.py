"""What Kubernetes puts around its protobuf messages: the envelope, the list, the watch event.

Sources: apimachinery `pkg/runtime/generated.proto` (Unknown) and `pkg/apis/meta/v1/generated.proto` (List, WatchEvent);
of every list metadata is field 1 and items are field 2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf import message as protobuf

from koordsched.api.decoding import DecodeError
from koordsched.api.protobuf.fields import MAGIC
from koordsched.api.protobuf.messages import plain_messages

_MESSAGES = plain_messages(
    {
        "TypeMeta": [(2, "kind", "string")],
        "Unknown": [(1, "type_meta", "TypeMeta"), (2, "raw", "bytes")],
        "RawExtension": [(1, "raw", "bytes")],
        "WatchEvent": [(1, "type", "string"), (2, "object", "RawExtension")],
        "ListMeta": [(2, "resource_version", "string"), (3, "next_token", "string")],
        "List": [(1, "metadata", "ListMeta"), (2, "items", "bytes[]")],
    }
)
_parse_unknown = _MESSAGES["Unknown"].FromString
_parse_event = _MESSAGES["WatchEvent"].FromString
_parse_list = _MESSAGES["List"].FromString


class RawList(NamedTuple):
    """A list whose items are still encoded, without envelopes."""

    items: list[bytes]
    version: str
    next_token: str


def opened(data: bytes) -> tuple[str, bytes]:
    """The kind and the message in an envelope. Raises DecodeError if there is none."""
    if data[: len(MAGIC)] != MAGIC:
        raise DecodeError("not in the protobuf envelope")
    unknown = _parsed(_parse_unknown, data[len(MAGIC) :])
    return unknown.type_meta.kind, unknown.raw


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


def _parsed(parse: Any, data: bytes) -> Any:
    try:
        return parse(data)
    except protobuf.DecodeError as error:
        raise DecodeError(str(error)) from None
