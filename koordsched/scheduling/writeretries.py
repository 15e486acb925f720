"""Writes that are repeated, at growing intervals, until their outcome is certain; and the pauses between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

from koordsched.client.errors import Ambiguous, ClientError, Conflict, NotFound
from koordsched.client.lanes import Lane, Lanes
from koordsched.client.transport import Request, Response
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


async def evict_until_certain(lanes: Lanes, request: Request) -> None:
    """The same for a part of an eviction, which a pod that is gone, or another one of its name, fulfils, too.

    Raises WriteFailed.
    """
    try:
        await write_until_certain(lanes, Lane.EVICTION, request)
    except NotFound:
        return
    except ClientError as error:
        if not (isinstance(error, Conflict) and error.is_about_uid):
            raise WriteFailed(str(error)) from error
