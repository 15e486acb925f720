"""Answers in Kubernetes' protobuf encoding, for clients that take nothing else.

Clients that accept JSON, too, get JSON, in which objects are stored. Responses are translated last, so the code that
makes them handles JSON only.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from functools import cache

import orjson

from koordsched.api.protobuf.fields import MEDIA_TYPE, META, Field, messages
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.messages import Request, Response, error_response
from koordsched.fakecluster.protobuf import kinds
from koordsched.fakecluster.protobufencoding import ProtobufEncoder
from koordsched.fakecluster.protobufmessages import enveloped, list_message, watch_frame
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
    return watch_frame(event["type"], _enveloped(event["object"]))


def encoded(body: bytes) -> bytes:
    """An object or a list in JSON, in the protobuf envelope. Raises LookupError if there is no form for its kind."""
    return _enveloped(orjson.loads(body))


def _enveloped(obj: Object) -> bytes:
    api_version, kind = obj.get("apiVersion", "v1"), obj.get("kind", "")
    return enveloped(api_version, kind, _top(obj, api_version, kind))


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
    items = [_message(item, definition) for item in obj.get("items") or ()]
    return list_message(_message(obj["metadata"], META + "ListMeta"), items)


def _message(obj: Object, definition: str) -> bytes:
    encode = _encoder(definition)
    try:
        return encode(obj)
    except (AttributeError, TypeError, ValueError):
        # An object that bypassed admission may contain anything. In protobuf it is as unreadable as in JSON.
        return b"".join([_part(obj, field, encode) for field in messages()[definition] if field.name in obj])


def _part(obj: Object, field: Field, encode: ProtobufEncoder) -> bytes:
    """One field of an object; one that ends too early for what is no value of its kind."""
    try:
        return encode({field.name: obj[field.name]})
    except (AttributeError, TypeError, ValueError):
        # A tag of one byte: no kind has a field numbered above 15.
        return bytes((field.number << 3 | 2, len(_UNREADABLE))) + _UNREADABLE


_encoder = cache(ProtobufEncoder)
