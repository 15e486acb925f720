"""Patches of objects on condition of their version: carried out once, or certainly not at all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import orjson

from koordsched.api.decoding import DecodeError, Decoder
from koordsched.api.meta import HasMetadata
from koordsched.client.errors import (
    Ambiguous,
    ApiError,
    ClientError,
    Conflict,
    LanesClosed,
    NotFound,
    raise_for_status,
)
from koordsched.client.lanes import Lane, Lanes
from koordsched.client.transport import MERGE_PATCH, Request, Transport
from koordsched.cluster.kinds import Kind
from koordsched.framework.handle import WriteConflict, WriteFailed
from koordsched.scheduling.writeretries import pauses

_log = logging.getLogger(__name__)

T = TypeVar("T", bound=HasMetadata)


async def patch_version(
    lanes: Lanes, transport: Transport, kind: Kind[T], thing: T, changes: Mapping[str, Any], subresource: str = ""
) -> T:
    """Merges changes into the object, or a subresource of it, if it still is of that version; returns the result.

    Raises WriteFailed if it certainly was not carried out, WriteConflict if that is because of the version.
    """
    meta = thing.metadata
    path = kind.object_path(meta.namespace, meta.name)
    target = f"{path}/{subresource}" if subresource else path
    conditions = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    try:
        body = orjson.dumps({**changes, "metadata": {**changes.get("metadata", {}), **conditions}})
    except TypeError as error:
        # Parameters of claims may be nested more deeply than can be written.
        raise WriteFailed(f"{kind.name} {meta.namespace}/{meta.name} cannot be written: {error}") from error
    decode = Decoder(kind.type)
    waits = pauses()
    doubtful = False
    while True:
        try:
            answer = (await lanes.submit(Lane.BINDING, Request("PATCH", target, body, MERGE_PATCH))).body
        except Ambiguous as error:
            doubtful = True
            _log.debug("it is unknown whether %s was changed, reading it back: %s", path, error)
            await asyncio.sleep(next(waits))
            continue
        except LanesClosed as error:
            raise WriteFailed(str(error)) from error
        except ClientError as error:
            # What refuses this try says nothing about an earlier one, which may have made the new version; nor does a
            # server that fails say anything about this one.
            in_doubt = doubtful or (isinstance(error, ApiError) and error.status >= 500)
            ours = await _read_if(transport, path, changes, waits) if in_doubt else None
            if ours is None:
                failure = WriteConflict if isinstance(error, Conflict) else WriteFailed
                raise failure(str(error)) from error
            answer = ours
        try:
            return decode(answer)
        except DecodeError as error:
            raise WriteFailed(str(error)) from error


async def _read_if(transport: Transport, path: str, changes: Mapping[str, Any], waits: Iterator[float]) -> bytes | None:
    """The object, if the changes are in it. Asks until it gets an answer: what was carried out must be known."""
    as_sent = orjson.loads(orjson.dumps(changes))  # lists, where plugins have tuples
    while True:
        try:
            response = raise_for_status(await transport.request("GET", path))
            return response.body if _contains(orjson.loads(response.body), as_sent) else None
        except NotFound:
            return None
        except (ClientError, orjson.JSONDecodeError) as error:
            _log.debug("cannot read %s back: %s", path, error)
        await asyncio.sleep(next(waits))


def _contains(thing: object, changes: object) -> bool:
    """Whether a merge of the changes would leave the object as it is."""
    if not isinstance(changes, Mapping):
        return thing == changes
    return isinstance(thing, Mapping) and all(_contains(thing.get(key), value) for key, value in changes.items())
