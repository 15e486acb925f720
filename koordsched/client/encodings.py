"""Which encoding lists and watches of a kind come in: one is asked for, the answer says which it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from koordsched.api.protobuf.decoding import ProtobufDecoder
from koordsched.api.protobuf.fields import MEDIA_TYPE, definition_of
from koordsched.client.jsonformat import JsonFormat
from koordsched.client.protobufformat import ProtobufFormat, is_protobuf
from koordsched.client.wireformat import Decode, WireFormat

T = TypeVar("T")


def protobuf_format(path: str, kind: type[T], accept: str) -> ProtobufFormat[T] | None:
    """How the objects of the collection at `path` come in protobuf: None if `accept` does not name it, or for kinds
    that have no such form."""
    if MEDIA_TYPE not in accept:
        return None
    definition = definition_of(path.strip("/").rpartition("/")[0], kind.__name__)
    return ProtobufFormat(ProtobufDecoder(kind, definition), accept) if definition else None


class Encodings(Generic[T]):
    """JSON, which every server has, and protobuf if `protobuf` reads it; `headers` ask for the better one."""

    def __init__(self, decode: Decode[T], protobuf: ProtobufFormat[T] | None) -> None:
        self._protobuf = protobuf
        self.json: WireFormat[T] = JsonFormat(decode)
        self.headers = {"Accept": (protobuf or self.json).accept}

    def of(self, headers: Mapping[str, str]) -> WireFormat[T]:
        """The encoding of an answer with these headers."""
        return self._protobuf if self._protobuf is not None and is_protobuf(headers) else self.json
