"""A watch on pods, as whoever measures needs it: from one version on, to the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from http import HTTPStatus
from urllib.parse import quote

import msgspec

from koordsched.api.decoding import DecodeError
from koordsched.api.protobuf.decoding import ProtobufDecoder
from koordsched.client.encodings import Encodings
from koordsched.client.errors import ConnectionFailure, error_from_status
from koordsched.client.protobufformat import ProtobufFormat
from koordsched.client.transport import Transport
from koordsched.client.wireformat import Unreadable, WireFormat

log = logging.getLogger(__name__)

PODS = "/api/v1/pods"
_SECONDS = 3600
_PAUSE = 0.2
"""Seconds before a watch that the server ended goes on."""


class WatchLost(Exception):
    """The watch cannot go on where it ended; the figures would be wrong."""


class Meta(msgspec.Struct, rename="camel"):
    """What is read of a pod's metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class Spec(msgspec.Struct, rename="camel"):
    """What is read of a pod's spec."""

    node_name: str = ""


class Pod(msgspec.Struct):
    """What is read of a pod."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: Spec = msgspec.field(default_factory=Spec)

    @property
    def path(self) -> str:
        """Where the API server has it."""
        return f"/api/v1/namespaces/{quote(self.metadata.namespace)}/pods/{quote(self.metadata.name)}"


class Event(msgspec.Struct):
    """One event."""

    type: str
    object: Pod


_ENCODINGS = Encodings(msgspec.json.Decoder(Pod).decode, ProtobufFormat(ProtobufDecoder(Pod, "io.k8s.api.core.v1.Pod")))
"""Protobuf first, as with clients in Go: who measures shares the machine, and the server, with what is measured."""


async def pod_events(transport: Transport, resource_version: str) -> AsyncGenerator[list[Event], None]:
    """All events about pods after a version, those together that arrived together. Never ends.

    An API server ends the watch of a client that does not keep up, as one on a busy machine may not: it goes on with
    the event after the last one. Raises WatchLost if that is not possible.
    """
    while True:
        async with aclosing(_stream(transport, resource_version)) as arriving:
            async for events in arriving:
                yield events
                resource_version = events[-1].object.metadata.resource_version
        await asyncio.sleep(_PAUSE)


async def _stream(transport: Transport, resource_version: str) -> AsyncGenerator[list[Event], None]:
    """The events of one connection, to its end."""
    query = {"watch": "1", "resourceVersion": resource_version, "timeoutSeconds": str(_SECONDS)}
    try:
        async with transport.stream(PODS, query=query, timeout=_SECONDS + 100.0, headers=_ENCODINGS.headers) as stream:
            if stream.status >= HTTPStatus.INTERNAL_SERVER_ERROR or stream.status == HTTPStatus.TOO_MANY_REQUESTS:
                return
            if stream.status >= HTTPStatus.BAD_REQUEST:
                body = b"".join([chunk async for chunk in stream.chunks()])
                refusal = error_from_status(body, stream.status)
                raise WatchLost(f"the API server refused to go on with the watch: {refusal}")
            form = _ENCODINGS.of(stream.headers)
            frames = form.splitter()
            async with aclosing(stream.chunks()) as chunks:
                async for chunk in chunks:
                    if events := [_event(form, frame) for frame in frames.feed(chunk)]:
                        yield events
    except ConnectionFailure as error:
        log.info("watch cut off: %s", error)


def _event(form: WireFormat[Pod], frame: bytes) -> Event:
    try:
        kind, data = form.event(frame)
        if kind == "ERROR":
            raise WatchLost(str(error_from_status(data)))
        return Event(kind, form.decode(data, frame))
    except (Unreadable, DecodeError, msgspec.MsgspecError) as error:
        raise WatchLost(f"an event that cannot be read: {error}") from None
