"""Taking turns: the event loop's time, in slices, for all who take in objects at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TIME_SLICE = 0.005
"""Seconds of work between two turns of the loop."""


class Turns:
    """One slice after the other, shared by all reflectors of a scheduler. `monotonic`: seconds of the injected clock.

    Who takes in objects asks after each whether the slice is `over`, and if so waits for the `next`, first come, first
    served. So the loop is held up by one slice, however many kinds are being listed at once, and not by one for each.
    """

    def __init__(self, monotonic: Callable[[], float], time_slice: float = TIME_SLICE) -> None:
        self._monotonic = monotonic
        self._time_slice = time_slice
        self._end = 0.0
        self._queue = asyncio.Lock()

    def over(self) -> bool:
        """Whether others must get their turn before the next object."""
        return self._monotonic() >= self._end

    async def next(self) -> None:
        """Lets everybody else run, waits for those who asked before, and begins a new slice."""
        async with self._queue:
            await asyncio.sleep(0)
            self._end = self._monotonic() + self._time_slice
