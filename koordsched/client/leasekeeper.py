"""Renews the lease of a leader whose event loop is busy, from a thread of its own.

Everything else runs on one event loop. If a step of it took longer than the lease lasts, the leader would end, and the
next one would come to the same step: one object could end leader after leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from threading import Thread

import msgspec

from koordsched.client.clock import Clock
from koordsched.client.errors import ClientError, raise_for_status
from koordsched.client.leaderelection import SHORTEST_TRY, Elector
from koordsched.client.lease import LeaseLock
from koordsched.client.transport import Transport

log = logging.getLogger(__name__)

LONGEST_STALL = 60.0
"""Seconds without a renewal by the loop after which it counts as hanging: then another replica is to lead."""


class LeaseKeeper:
    """Renews for an elector that has missed two of its turns. `open_transport` is called in the thread."""

    def __init__(self, elector: Elector, clock: Clock, open_transport: Callable[[], Awaitable[Transport]]) -> None:
        self._elector = elector
        self._clock = clock
        self._open_transport = open_transport
        self._thread = Thread(target=self._main, name="lease keeper", daemon=True)
        self._stopping: Callable[[], object] | None = None

    def start(self) -> None:
        """Begins to look after the lease."""
        self._thread.start()

    def stop(self) -> None:
        """Ends it, without waiting for a request that is under way."""
        if self._stopping is not None:
            self._stopping()

    def _main(self) -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(self.run())

    async def run(self) -> None:
        """Looks after the lease until cancelled."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def stopping() -> None:
            with suppress(RuntimeError):  # the loop may have ended by itself
                loop.call_soon_threadsafe(task.cancel)

        self._stopping = stopping
        transport: Transport | None = None
        while True:
            await asyncio.sleep(self._elector.config.retry_period / 2)
            if not self._is_due():
                continue
            try:
                if transport is None:
                    transport = await self._open_transport()
                await self.renew(transport)
            except (ClientError, OSError, msgspec.MsgspecError) as error:
                log.warning("the event loop is busy, and its thread cannot renew the lease either: %s", error)

    def _is_due(self) -> bool:
        config, now = self._elector.config, self._clock.boottime()
        left = self._elector.deadline() - now
        late = SHORTEST_TRY < left < config.renew_deadline - 2 * config.retry_period
        return late and now - self._elector.renewed_at < LONGEST_STALL

    async def renew(self, transport: Transport) -> None:
        """Renews once if the lease is still ours. Raises ClientError, MsgspecError."""
        elector, now = self._elector, self._clock.boottime
        within = min(elector.deadline() - now(), elector.config.renew_deadline / 2)
        if within < SHORTEST_TRY:
            return
        response = raise_for_status(await transport.request("GET", elector.path, timeout=within))
        lock = LeaseLock(response.body, elector.config.lease_duration)
        if lock.record.holder != elector.config.identity:
            return  # the elector finds out, and ends
        began = now()
        within = elector.deadline() - began
        if within < SHORTEST_TRY:
            return
        body = lock.rewritten(elector.claim(lock.record))
        raise_for_status(await transport.request("PUT", elector.path, body=body, timeout=within))
        elector.renewed_elsewhere(began)
        log.warning(
            "the event loop has been busy for %.1f s; the lease was renewed by its own thread",
            now() - elector.renewed_at,
        )
