"""A deterministic event loop on virtual time.

Time stands still while callbacks run and jumps to the next timer when nothing is ready, so an hour of back-offs takes
milliseconds and every run with the same inputs takes the same steps. Real sockets and threads have no place in it.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

#: 2030-01-01T00:00:00Z, the wall time at which every virtual run starts.
WALL_EPOCH = 1893456000.0


class Deadlock(RuntimeError):
    """Every task waits for something that no callback and no timer will ever bring."""


class _JumpingSelector(selectors.DefaultSelector):
    """Polls instead of waiting, and tells the loop how long it would have waited."""

    waited = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise Deadlock("nothing is ready and no timer is set")
        self.waited += max(timeout, 0.0)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`time()` starts at `start` seconds and moves only when every task waits."""

    def __init__(self, start: float = 1000.0) -> None:
        self._start = start
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._start + self._jumping.waited


class VirtualClock:
    """The three clocks of a process on a `VirtualTimeLoop`.

    `suspended` is the time the machine slept (boot time counts it, monotonic time does not); `wall_offset` is the
    error of the wall clock. Both are in seconds and may be changed at any moment.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, wall_offset: float = 0.0) -> None:
        self._loop = loop
        self._origin = loop.time()
        self.suspended = 0.0
        self.wall_offset = wall_offset

    def monotonic(self) -> float:
        return self._loop.time()

    def boottime(self) -> float:
        return self._loop.time() + self.suspended

    def wall(self) -> float:
        return WALL_EPOCH + self._loop.time() - self._origin + self.suspended + self.wall_offset


def run(main: Coroutine[Any, Any, T], limit: float = 7 * 86400.0) -> T:
    """Runs `main` on a fresh `VirtualTimeLoop` and cancels what it leaves behind.

    Raises `Deadlock` when nothing can ever happen again, `TimeoutError` after `limit` virtual seconds.
    """

    async def limited() -> T:
        async with asyncio.timeout(limit):
            return await main

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(limited())
