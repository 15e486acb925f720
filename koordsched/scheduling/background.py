"""Work that no step of the scheduler waits for: evictions, writes that undo what was written before."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Background:
    """Runs such work, each in a task."""

    def __init__(self) -> None:
        self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Has it done, unless the scheduler ends."""
        if self._closing:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Lets what is under way finish. From now on nothing is begun: the next scheduler finds things as they are."""
        self._closing = True
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def abandon(self) -> None:
        """Ends what is under way, and lets nothing begin: the next scheduler finds out what was done."""
        self._closing = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
