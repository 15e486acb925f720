"""metav1.Status in either encoding: what an API server says of a request that failed."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson

from koordsched.api.decoding import DecodeError
from koordsched.api.meta import Wire
from koordsched.api.protobuf.decoding import ProtobufDecoder
from koordsched.api.protobuf.envelope import opened
from koordsched.api.protobuf.fields import MAGIC, META


class Status(msgspec.Struct):
    """The fields of a Status that carry information; `status` and `kind` only repeat the HTTP code."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: dict[str, Any] | None = None


class _Cause(Wire, frozen=True):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(Wire, frozen=True):
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[_Cause, ...] = ()
    retry_after_seconds: int = 0


class _Message(Wire, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_from_json = msgspec.json.Decoder(Status).decode
_from_protobuf = ProtobufDecoder(_Message, META + "Status")


def read_status(body: bytes | msgspec.Raw) -> Status | None:
    """The Status in an answer, None if it is none."""
    data = bytes(body)
    try:
        if not data.startswith(MAGIC):
            return _from_json(data)
        kind, message = opened(data)
        found = _from_protobuf(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, DecodeError):
        return None
    if kind != "Status":
        return None
    return Status(found.code, found.reason, found.message, orjson.loads(msgspec.json.encode(found.details)))
