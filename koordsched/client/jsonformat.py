"""Lists and watches in JSON."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from koordsched.client.transport import JSON
from koordsched.client.wireformat import Decode, HasMeta, Meta, Page, Unreadable

T = TypeVar("T")

_PREFIXES = {
    kind: f'{{"type":"{kind}","object":'.encode() for kind in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")
}


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class _Page(msgspec.Struct):
    """A list without items may come as null, but always has them: other JSON (of what stands in for the server while it
    is away, say) must not pass for an empty one."""

    items: list[msgspec.Raw] | None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_decode_page = msgspec.json.Decoder(_Page).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_object = msgspec.json.Decoder(HasMeta).decode


def decode_page(data: bytes) -> Page:
    """One page of a list. Raises Unreadable if it is none."""
    try:
        page = _decode_page(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(str(error)) from None
    return Page(page.items or (), page.metadata.resource_version, page.metadata.continue_ or "")


def split_event(line: bytes) -> tuple[str, bytes]:
    """Type and raw object of one watch line. Raises Unreadable if it is no event.

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
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(str(error)) from None
    return event.type, bytes(event.object)


def meta_of(data: bytes | msgspec.Raw) -> Meta | None:
    """The metadata of an object that may be malformed elsewhere; None if even that cannot be read."""
    try:
        return _decode_object(data).metadata
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


LONGEST_LINE = 64 << 20
"""Bytes of one event; no object is so large (etcd takes 1.5 MB), so what goes on without a line end is no watch."""


class LineSplitter:
    """Cuts chunks of bytes into lines in linear time, however long a line is."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines completed by this chunk, without their line ends; empty lines are left out.

        Raises Unreadable if one is longer than any object.
        """
        head, newline, rest = chunk.partition(b"\n")
        self._parts.append(head)
        self._size += len(head)
        if self._size > LONGEST_LINE:
            raise Unreadable(f"an event of more than {LONGEST_LINE} bytes")
        if not newline:
            return []
        lines = [b"".join(self._parts), *rest.split(b"\n")]
        self._parts = [lines.pop()]
        self._size = len(self._parts[0])
        return [line for line in lines if line]


class JsonFormat(Generic[T]):
    """Objects of one kind in JSON."""

    accept = JSON

    def __init__(self, decode: Decode[T]) -> None:
        self._decode = decode

    page = staticmethod(decode_page)
    splitter = staticmethod(LineSplitter)
    event = staticmethod(split_event)
    meta = staticmethod(meta_of)

    def decode(self, data: bytes | msgspec.Raw, frame: bytes | None) -> T:
        """The object. Raises whatever the decoder of the kind raises."""
        try:
            return self._decode(data)
        except Exception:
            if frame is None:
                raise
            parsed = resplit_event(frame)[1]
            if parsed == data:
                raise
            return self._decode(parsed)
