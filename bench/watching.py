"""A watch on pods, as whoever measures needs it: from one version on, to the end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from koordsched.client.errors import ConnectionFailure
from koordsched.client.transport import Transport
from koordsched.client.watchstream import LineSplitter

PODS = "/api/v1/pods"
_SECONDS = 3600


class WatchLost(Exception):
    """The watch ended before the measurement; its figures would be wrong."""


class Event(msgspec.Struct):
    """One event; `object` is still encoded."""

    type: str
    object: msgspec.Raw


class _Failure(msgspec.Struct):
    message: str = ""


_decode_event = msgspec.json.Decoder(Event).decode


async def pod_events(transport: Transport, resource_version: str) -> AsyncGenerator[list[Event], None]:
    """All events about pods after a version, those together that arrived together. Never ends. Raises WatchLost."""
    query = {"watch": "1", "resourceVersion": resource_version, "timeoutSeconds": str(_SECONDS)}
    try:
        async with transport.stream(PODS, query=query, timeout=_SECONDS + 100.0) as stream:
            lines = LineSplitter()
            async with aclosing(stream.chunks()) as chunks:
                async for chunk in chunks:
                    yield [_event(line) for line in lines.feed(chunk)]
    except ConnectionFailure as error:
        raise WatchLost(str(error)) from error
    raise WatchLost("the API server ended the watch")


def _event(line: bytes) -> Event:
    event = _decode_event(line)
    if event.type == "ERROR":
        raise WatchLost(msgspec.json.decode(event.object, type=_Failure).message)
    return event
