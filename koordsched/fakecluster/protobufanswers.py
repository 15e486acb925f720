"""Answers in Kubernetes' protobuf encoding, for clients that take nothing else.

Whoever takes JSON, too, gets that: it is what is stored. Answers are translated on their way out, so none of what
makes them knows of it. Field numbers: `koordsched.api.protobuf`.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import datetime
from typing import Any

import orjson

from koordsched.api.protobuf.fields import (
    FIELDS_V1,
    INT_OR_STRING,
    MAGIC,
    MEDIA_TYPE,
    META,
    MICRO_TIME,
    QUANTITY,
    RAW_EXTENSION,
    TIME,
    messages,
)
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.messages import Request, Response, error_response
from koordsched.fakecluster.protobuf import kinds
from koordsched.fakecluster.resources import Object

_ALSO_JSON = ("application/json", "application/*", "*/*")
_UNREADABLE = b"\x0a\xff"
"""No message: it ends within a field."""
_STREAMED = f"{MEDIA_TYPE};stream=watch"


def wants_protobuf(request: Request) -> bool:
    """Whether the request is answered in protobuf."""
    accept = request.headers.get("accept", "")
    if MEDIA_TYPE not in accept or any(other in accept for other in _ALSO_JSON):
        return False
    return request.method == "GET" and request.path.startswith(("/api/", "/apis/"))


async def in_protobuf(request: Request, response: Response) -> Response:
    """The same answer in protobuf; 406 for kinds that have no such form."""
    body = response.body
    try:
        if isinstance(body, bytes):
            return Response(response.status, {**response.headers, "content-type": MEDIA_TYPE}, encoded(body))
        if "watch" in request.query:
            return Response(response.status, {**response.headers, "content-type": _STREAMED}, _Frames(body))
        whole = b"".join([part async for part in body])
        return Response(response.status, {**response.headers, "content-type": MEDIA_TYPE}, encoded(whole))
    except LookupError as problem:
        text = f"only the following media types are accepted: application/json ({problem})"
        return error_response(ApiStatusError(406, "NotAcceptable", text))


class _Frames:
    """The body of a watch, event by event. `aclose` releases it, started or not."""

    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        self._lines = lines
        self._frames = self._translate()

    async def _translate(self) -> AsyncGenerator[bytes, None]:
        rest = b""
        async for chunk in self._lines:
            *lines, rest = (rest + chunk).split(b"\n")
            if lines:
                yield b"".join(map(_frame, lines))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        return await anext(self._frames)

    async def aclose(self) -> None:
        """Release the watch; also when it was never read."""
        await self._frames.aclose()
        close = getattr(self._lines, "aclose", None)
        if close is not None:
            await close()


def _frame(line: bytes) -> bytes:
    event = orjson.loads(line)
    body = _text(1, event["type"]) + _bytes(2, _bytes(1, _enveloped(event["object"])))
    return len(body).to_bytes(4, "big") + body


def encoded(body: bytes) -> bytes:
    """An object or a list in JSON, in the protobuf envelope. Raises LookupError if there is no form for its kind."""
    return _enveloped(orjson.loads(body))


def _enveloped(obj: Object) -> bytes:
    api_version, kind = obj.get("apiVersion", "v1"), obj.get("kind", "")
    type_meta = _text(1, api_version) + _text(2, kind)
    return MAGIC + _bytes(1, type_meta) + _bytes(2, _top(obj, api_version, kind))


def _top(obj: Object, api_version: str, kind: str) -> bytes:
    if kind == "Status":
        return _message(obj, META + "Status")
    known = kinds()
    definition = known.get((api_version, kind))
    if definition in messages():
        return _message(obj, definition)
    definition = known.get((api_version, kind.removesuffix("List")))
    if not kind.endswith("List") or definition not in messages():
        raise LookupError(f"{kind} in {api_version} has no protobuf form")
    items = [_bytes(2, _message(item, definition)) for item in obj.get("items") or ()]
    return b"".join([_bytes(1, _message(obj["metadata"], META + "ListMeta")), *items])


def _message(value: Any, definition: str) -> bytes:
    try:
        return _fields(value, definition)
    except (AttributeError, TypeError, ValueError):
        # What was put in past admission may be anything. It stays as unreadable as it is in JSON, and no more.
        return _UNREADABLE


def _fields(value: Any, definition: str) -> bytes:
    out = []
    for field in messages()[definition]:
        if field.form == "inline":
            if any(inner.name in value for inner in messages()[field.kind]):
                out.append(_bytes(field.number, _message(value, field.kind)))
            continue
        # A named list type is its list alone in JSON.
        part: Any = value if isinstance(value, list) else value.get(field.name)
        if part is None:
            continue
        if field.form == "list":
            out += [_field(field.number, item, field.kind) for item in part]
        elif field.form == "map":
            entries = [_text(1, key) + _field(2, item, field.kind) for key, item in part.items()]
            out += [_bytes(field.number, entry) for entry in entries]
        else:
            out.append(_field(field.number, part, field.kind))
    return b"".join(out)


def _field(number: int, value: Any, kind: str) -> bytes:
    if kind == "string":
        return _text(number, value)
    if kind in ("bool", "int32", "int64", "uint32", "uint64"):
        return _varint(number << 3) + _varint(int(value))
    if kind == "double":
        return _varint(number << 3 | 1) + struct.pack("<d", value)
    if kind == "bytes":
        return _bytes(number, base64.b64decode(value))
    if kind in (TIME, MICRO_TIME):
        return _bytes(number, _point_in_time(value))
    if kind == QUANTITY:
        return _bytes(number, _text(1, str(value)))
    if kind == INT_OR_STRING:
        is_text = isinstance(value, str)
        return _bytes(number, _field(1, is_text, "bool") + (_text(3, value) if is_text else _field(2, value, "int32")))
    if kind in (RAW_EXTENSION, FIELDS_V1):
        return _bytes(number, _bytes(1, orjson.dumps(value)))
    return _bytes(number, _message(value, kind))


def _point_in_time(text: str) -> bytes:
    at = datetime.fromisoformat(text)
    return _field(1, int(at.timestamp()), "int64") + _field(2, at.microsecond * 1000, "int32")


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _bytes(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _text(number: int, text: str) -> bytes:
    return _bytes(number, text.encode())
