"""The wire format of lists and watches: pages of raw items, lines of raw events."""

from __future__ import annotations

import msgspec

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""Annotation of the bookmark that ends the initial state of a streamed list."""

_PREFIXES = {
    kind: f'{{"type":"{kind}","object":'.encode() for kind in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")
}


class Meta(msgspec.Struct, rename="camel"):
    """The part of an object's metadata needed to tell which object it is and how new."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: Meta = msgspec.field(default_factory=Meta)


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class Page(msgspec.Struct):
    """One page of a list; a list without items may come as null, but always has them: other JSON (of what stands in for
    the server while it is away, say) must not pass for an empty one."""

    items: list[msgspec.Raw] | None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_decode_page = msgspec.json.Decoder(Page).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_object = msgspec.json.Decoder(_Object).decode


def decode_page(data: bytes) -> Page:
    """One page of a list. Raises msgspec.MsgspecError if it is none."""
    try:
        return _decode_page(data)
    except RecursionError as error:
        raise msgspec.DecodeError(str(error)) from None


def split_event(line: bytes) -> tuple[str, bytes]:
    """Type and raw object of one watch line. Raises msgspec.MsgspecError if it is no event.

    API servers write type and object in this order and nothing else, so the object is found without scanning it; the
    prefix is unambiguous, but a line that ends differently only shows when its object is decoded (see `resplit_event`).
    """
    for kind, prefix in _PREFIXES.items():
        if line.startswith(prefix):
            return kind, line[len(prefix) : -1]
    return resplit_event(line)


def resplit_event(line: bytes) -> tuple[str, bytes]:
    """The same, by parsing the whole line."""
    try:
        event = _decode_event(line)
    except RecursionError as error:
        raise msgspec.DecodeError(str(error)) from None
    return event.type, bytes(event.object)


def meta_of(data: bytes | msgspec.Raw) -> Meta | None:
    """The metadata of an object that may be malformed elsewhere; None if even that cannot be read."""
    try:
        return _decode_object(data).metadata
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


class LineSplitter:
    """Cuts chunks of bytes into lines in linear time, however long a line is."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines completed by this chunk, without their line ends; empty lines are left out."""
        head, newline, rest = chunk.partition(b"\n")
        self._parts.append(head)
        if not newline:
            return []
        lines = [b"".join(self._parts), *rest.split(b"\n")]
        self._parts = [lines.pop()]
        return [line for line in lines if line]
