"""Many timers on one: things to do at a time, done in bounded batches."""

from __future__ import annotations

import logging
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.registry import Registry

_BATCH = 128

_log = logging.getLogger(__name__)


class BatchedTimers:
    """Calls functions when they are due, up to `tick` seconds late, in the order of their times."""

    def __init__(self, registry: Registry, tick: float = 0.02) -> None:
        self._registry = registry
        self._tick = tick
        self._entries: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()
        self._armed = float("inf")
        self._closed = False

    def after(self, delay: float, action: Callable[..., None], *args: Any) -> None:
        """Calls `action(*args)` about `delay` seconds from now, never on the caller's stack."""
        now = self._registry.clock.now()
        due = now + max(0.0, delay)
        heappush(self._entries, (due, next(self._order), action, args))
        self._arm(due, now)

    def close(self) -> None:
        """Forgets everything."""
        self._closed = True
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def _arm(self, due: float, now: float) -> None:
        if due + self._tick < self._armed:
            self._armed = due + self._tick
            self._registry.call_later(max(0.0, self._armed - now), self._run, self._armed)

    def _run(self, armed: float) -> None:
        if armed != self._armed or self._closed:
            return
        self._armed = float("inf")
        now = self._registry.clock.now()
        for _ in range(_BATCH):
            if not self._entries or self._entries[0][0] > now:
                break
            _, _, action, args = heappop(self._entries)
            try:
                action(*args)
            except ApiStatusError as error:
                if error.code != 404:
                    _log.warning("%r %s: %s", action, args, error)
            except Exception:
                # One invalid object must not stop the timers of others.
                _log.exception("%r %s failed", action, args)
        if self._entries:
            overdue = self._entries[0][0] <= now
            self._arm(now - self._tick if overdue else self._entries[0][0], now)
