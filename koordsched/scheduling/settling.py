"""Writes in doubt: asked again, ever more slowly, until the API server has said what became of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from koordsched.client.errors import Ambiguous
from koordsched.client.lanes import Lane, Lanes
from koordsched.client.transport import Request, Response

_FIRST, _LONGEST = 0.1, 5.0


def pauses() -> Iterator[float]:
    """Seconds to wait before each further attempt, without end."""
    pause = _FIRST
    while True:
        yield pause
        pause = min(pause * 2, _LONGEST)


async def settle(lanes: Lanes, lane: Lane, request: Request) -> Response:
    """Sends a write that does no harm when it is carried out twice, until it was, or certainly will not be.

    Raises ClientError, but never Ambiguous.
    """
    waits = pauses()
    while True:
        try:
            return await lanes.submit(lane, request)
        except Ambiguous:
            await asyncio.sleep(next(waits))
