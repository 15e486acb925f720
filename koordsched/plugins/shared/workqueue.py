"""Keys that are to be looked at, each by one worker at a time, once however often it was named."""

from __future__ import annotations

import asyncio
from functools import partial

FIRST_PAUSE, GROWTH, LONGEST_PAUSE = 0.01, 5.0, 30.0
"""Seconds before a key that failed is looked at again: 10 ms at first, five times as many after each failure."""


class WorkQueue:
    """Keys in the order in which they were named. One that is named while it is looked at comes again."""

    def __init__(self) -> None:
        self._waiting: dict[str, None] = {}
        self._taken: set[str] = set()
        self._again: set[str] = set()
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._some = asyncio.Event()

    def add(self, key: str) -> None:
        """The key is to be looked at."""
        if key in self._taken:
            self._again.add(key)
        else:
            self._waiting[key] = None
            self._some.set()

    def add_later(self, key: str, seconds: float) -> None:
        """The same, in so many seconds; it replaces what was said so before."""
        self._cancel(key)
        self._timers[key] = asyncio.get_running_loop().call_later(seconds, partial(self._due, key))

    def add_within(self, key: str, seconds: float) -> None:
        """The same, in so many seconds at the latest: what is said again and again does not put it off."""
        timer = self._timers.get(key)
        if timer is None or timer.when() > asyncio.get_running_loop().time() + seconds:
            self.add_later(key, seconds)

    async def take(self) -> str:
        """The next key; the caller has to say `done` or `failed` of it. Others get their turn before."""
        await asyncio.sleep(0)
        while not self._waiting:
            self._some.clear()
            await self._some.wait()
        key = next(iter(self._waiting))
        del self._waiting[key]
        self._taken.add(key)
        return key

    def done(self, key: str) -> None:
        """The key was looked at."""
        self._failures.pop(key, None)
        self._give_back(key)

    def failed(self, key: str) -> None:
        """It could not be done; it is tried again, later and later."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._give_back(key)
        self.add_later(key, min(FIRST_PAUSE * GROWTH ** min(failures - 1, 9), LONGEST_PAUSE))

    def close(self) -> None:
        """Nothing comes any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _give_back(self, key: str) -> None:
        self._taken.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _cancel(self, key: str) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _due(self, key: str) -> None:
        del self._timers[key]
        self.add(key)
