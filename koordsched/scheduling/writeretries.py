"""Writes that are repeated, at growing intervals, until their outcome is certain; and the pauses between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import orjson

from koordsched.api.meta import ObjectMeta
from koordsched.client.errors import Ambiguous, ClientError, Conflict, NotFound
from koordsched.client.lanes import Lane, Lanes
from koordsched.client.transport import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Request, Response
from koordsched.cluster.kinds import Kind
from koordsched.framework.handle import WriteFailed

_FIRST, _LONGEST = 0.1, 5.0


def pauses() -> Iterator[float]:
    """Seconds to wait before each further attempt, without end."""
    pause = _FIRST
    while True:
        yield pause
        pause = min(pause * 2, _LONGEST)


def brief_pauses(rng: Random) -> Iterator[float]:
    """Seconds to wait before each further attempt: client-go's 10 ms x 5 with a jitter of 0.1, for four attempts."""
    for pause in (0.01, 0.05, 0.25):
        yield pause * (1.0 + 0.1 * rng.random())


async def write_until_certain(lanes: Lanes, lane: Lane, request: Request) -> Response:
    """Sends a write that does no harm when it is carried out twice, until it was, or certainly will not be.

    Raises ClientError, but never Ambiguous.
    """
    waits = pauses()
    while True:
        try:
            return await lanes.submit(lane, request)
        except Ambiguous:
            await asyncio.sleep(next(waits))


def collection_path(kind: Kind[Any], namespace: str) -> str:
    """Where objects of the kind are created; the namespace of cluster-wide kinds is ""."""
    return f"/{kind.api}/namespaces/{namespace}/{kind.plural}" if kind.namespaced else kind.path


def merge_request(
    kind: Kind[Any], meta: ObjectMeta, changes: Mapping[str, Any], subresource: str = "", *, strategic: bool = False
) -> Request:
    """Merges changes into the object of that name and uid, or a subresource of it."""
    body = {**changes, "metadata": {**changes.get("metadata", {}), "uid": meta.uid}}
    path = kind.object_path(meta.namespace, meta.name)
    form = STRATEGIC_MERGE_PATCH if strategic else MERGE_PATCH
    return Request("PATCH", f"{path}/{subresource}" if subresource else path, orjson.dumps(body), form)


async def write_unless_gone(lanes: Lanes, lane: Lane, request: Request) -> None:
    """The same for a write to the object of a uid, which is fine if that is gone, or another one has its name.

    Raises WriteFailed.
    """
    try:
        await write_until_certain(lanes, lane, request)
    except NotFound:
        return
    except ClientError as error:
        if not (isinstance(error, Conflict) and error.is_about_uid):
            raise WriteFailed(str(error)) from error


async def delete_of_uid(lanes: Lanes, lane: Lane, kind: Kind[Any], meta: ObjectMeta) -> None:
    """Deletes the object of that name and uid; one that is gone is fine. Raises WriteFailed."""
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": meta.uid}}
    request = Request("DELETE", kind.object_path(meta.namespace, meta.name), orjson.dumps(options))
    await write_unless_gone(lanes, lane, request)
