"""What the API server's watch tells: when each pod appeared, and when it had a node."""

from __future__ import annotations

import asyncio
import math
import time
from types import TracebackType

from bench.watching import Event, WatchLost, pod_events
from koordsched.client.transport import Transport


class Observer:
    """Follows all pods whose names begin with `prefix`. Times are monotonic, in seconds.

    `appeared`, `bound`: pod name -> when the watch showed it; `first_change`: when one was first seen changed, infinite
    before. Use as an async context manager.
    """

    def __init__(self, transport: Transport, prefix: str, resource_version: str) -> None:
        self._transport = transport
        self._prefix = prefix
        self._version = resource_version
        self._watching: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self.appeared: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.nodes: dict[str, str] = {}
        self.first_change = math.inf

    async def __aenter__(self) -> Observer:
        self._watching = asyncio.get_running_loop().create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._watching is not None
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)

    async def progress(self, within: float) -> bool:
        """Waits for the next binding; False if there is none for so many seconds. Raises WatchLost."""
        self._changed.clear()
        assert self._watching is not None
        try:
            async with asyncio.timeout(within):
                await self._changed.wait()
        except TimeoutError:
            return False
        finally:
            if self._watching.done():
                raise WatchLost(str(self._watching.exception() or "the watch ended"))
        return True

    async def _watch(self) -> None:
        try:
            async for events in pod_events(self._transport, self._version):
                at = time.monotonic()
                for event in events:
                    self._take(event, at)
                self._changed.set()
        finally:
            self._changed.set()

    def _take(self, event: Event, at: float) -> None:
        if event.type not in ("ADDED", "MODIFIED"):
            return
        pod = event.object
        name = pod.metadata.name
        if not name.startswith(self._prefix):
            return
        if event.type == "ADDED":
            self.appeared.setdefault(name, at)
        else:
            self.first_change = min(self.first_change, at)
        if pod.spec.node_name and name not in self.bound:
            self.bound[name] = at
            self.nodes[name] = pod.spec.node_name
