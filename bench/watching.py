"""A watch on pods, as whoever measures needs it: from one version on, to the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from http import HTTPStatus

import msgspec

from koordsched.client.errors import ConnectionFailure
from koordsched.client.transport import Transport
from koordsched.client.watchstream import LineSplitter

log = logging.getLogger(__name__)

PODS = "/api/v1/pods"
_SECONDS = 3600
_PAUSE = 0.2
"""Seconds before a watch that the server ended goes on."""


class WatchLost(Exception):
    """The watch cannot go on where it ended; the figures would be wrong."""


class Event(msgspec.Struct):
    """One event; `object` is still encoded."""

    type: str
    object: msgspec.Raw


class _Failure(msgspec.Struct):
    message: str = ""


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str


class _Object(msgspec.Struct):
    metadata: _Meta


_decode_event = msgspec.json.Decoder(Event).decode
_decode_object = msgspec.json.Decoder(_Object).decode


async def pod_events(transport: Transport, resource_version: str) -> AsyncGenerator[list[Event], None]:
    """All events about pods after a version, those together that arrived together. Never ends.

    An API server ends the watch of a client that does not keep up, as one on a busy machine may not: it goes on with
    the event after the last one. Raises WatchLost if that is not possible.
    """
    while True:
        async with aclosing(_stream(transport, resource_version)) as arriving:
            async for events in arriving:
                yield events
                resource_version = _decode_object(events[-1].object).metadata.resource_version
        await asyncio.sleep(_PAUSE)


async def _stream(transport: Transport, resource_version: str) -> AsyncGenerator[list[Event], None]:
    """The events of one connection, to its end."""
    query = {"watch": "1", "resourceVersion": resource_version, "timeoutSeconds": str(_SECONDS)}
    try:
        async with transport.stream(PODS, query=query, timeout=_SECONDS + 100.0) as stream:
            if stream.status >= HTTPStatus.INTERNAL_SERVER_ERROR or stream.status == HTTPStatus.TOO_MANY_REQUESTS:
                return
            if stream.status >= HTTPStatus.BAD_REQUEST:
                body = b"".join([chunk async for chunk in stream.chunks()])
                raise WatchLost(f"the API server refused to go on with the watch: {body.decode(errors='replace')}")
            lines = LineSplitter()
            async with aclosing(stream.chunks()) as chunks:
                async for chunk in chunks:
                    if events := [_event(line) for line in lines.feed(chunk)]:
                        yield events
    except ConnectionFailure as error:
        log.info("watch cut off: %s", error)


def _event(line: bytes) -> Event:
    event = _decode_event(line)
    if event.type == "ERROR":
        raise WatchLost(msgspec.json.decode(event.object, type=_Failure).message)
    return event
