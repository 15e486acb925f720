"""Time slices of the event loop, shared by all reflectors that apply objects at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TIME_SLICE = 0.005
"""Seconds of work between two turns of the loop."""


class TimeSlices:
    """One slice after the other, shared by all reflectors of a scheduler. `monotonic`: seconds of the injected clock.

    After each object, a reflector asks whether the slice is `over`, and if so waits for the `next`, first come, first
    served. So one slice blocks the loop at a time, not one per kind, however many kinds are listed at once.
    """

    def __init__(self, monotonic: Callable[[], float], time_slice: float = TIME_SLICE) -> None:
        self._monotonic = monotonic
        self._time_slice = time_slice
        self._end = 0.0
        self._queue = asyncio.Lock()

    def over(self) -> bool:
        """Whether the slice has ended: other tasks run before the next object."""
        return self._monotonic() >= self._end

    async def next(self) -> None:
        """Lets other tasks run, waits for those that asked before, and begins a new slice."""
        async with self._queue:
            await asyncio.sleep(0)
            self._end = self._monotonic() + self._time_slice
