"""Keys to reconcile, each at most once at a time, drained in bounded batches from the event loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.registry import Registry

Key = TypeVar("Key", bound=Hashable)

_FIRST_RETRY_SECONDS = 0.05
_LAST_RETRY_SECONDS = 60.0

_log = logging.getLogger(__name__)


class WorkQueue(Generic[Key]):
    """Calls `reconcile(key)` for every key added, off the caller's stack.

    `reconcile` returns the number of writes it made; a batch ends after about `batch` keys and writes, so that the
    HTTP server gets its turn. A key that raises is retried with exponential back-off (50 ms to 60 s).
    """

    def __init__(self, registry: Registry, name: str, reconcile: Callable[[Key], int], batch: int = 40) -> None:
        self._registry = registry
        self._name = name
        self._reconcile = reconcile
        self._batch = batch
        self._ready: dict[Key, None] = {}
        self._due: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._draining = False
        self._closed = False

    def add(self, key: Key, delay: float = 0.0) -> None:
        """Reconciles the key after `delay` seconds, or sooner when it is already due sooner."""
        if self._closed or key in self._ready:
            return
        if delay <= 0:
            self._due.pop(key, None)
            self._ready[key] = None
            self._schedule_drain()
            return
        due = self._registry.clock.now() + delay
        if self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        self._registry.call_later(delay, lambda: self._release(key, due))

    def close(self) -> None:
        """Forgets all keys; timers that still fire find nothing to do."""
        self._closed = True
        self._ready.clear()
        self._due.clear()

    def __len__(self) -> int:
        return len(self._ready) + len(self._due)

    def _release(self, key: Key, due: float) -> None:
        if self._due.get(key) == due:
            self.add(key)

    def _schedule_drain(self) -> None:
        if not self._draining:
            self._draining = True
            self._registry.call_later(0, self._drain)

    def _drain(self) -> None:
        budget = self._batch
        while self._ready and budget > 0:
            key = next(iter(self._ready))
            del self._ready[key]
            budget -= 1 + self._attempt(key)
        self._draining = False
        if self._ready:
            self._schedule_drain()

    def _attempt(self, key: Key) -> int:
        try:
            writes = self._reconcile(key)
        except ApiStatusError as error:
            # A conflict means that another client wrote first: routine, the next try sees it.
            level = logging.DEBUG if error.code == 409 else logging.WARNING
            _log.log(level, "%s: %s: %s", self._name, key, error)
        except Exception:
            # An object that was not validated (an incomplete CRD, a hand-made status) must stop only its own key.
            _log.exception("%s: %s failed", self._name, key)
        else:
            self._failures.pop(key, None)
            return writes
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.add(key, min(_LAST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2 ** min(failures - 1, 16)))
        return 1
