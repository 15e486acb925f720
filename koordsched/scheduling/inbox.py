"""Where changes wait while a scheduling cycle is suspended at an HTTP call.

With extenders a cycle is a coroutine, and what it reads must still be one consistent state: whatever would change the
cluster state meanwhile (watch events, the end of a failed binding) is put here and applied, in order, when the cycle
has come to its decision. The pod is still in flight then, so the queue records the events for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Generic, TypeVar

from koordsched.api.meta import HasMetadata
from koordsched.client.sink import ObjectKey, Sink
from koordsched.client.timeslices import TIME_SLICE

_log = logging.getLogger(__name__)

T = TypeVar("T", bound=HasMetadata)

_AT_ONCE = 200
"""Changes applied between two turns of the loop, at most; fewer if they take longer than a time slice."""


class Inbox:
    """Applies changes at once, unless it is held."""

    def __init__(self) -> None:
        self._held = False
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def __bool__(self) -> bool:
        """An empty one is one, too."""
        return True

    def put(self, change: Callable[..., None], *args: Any) -> None:
        """Calls `change(*args)`: now, or when the inbox is released."""
        if self._held:
            self._waiting.append((change, args))
        else:
            change(*args)

    def waiting(self, change: Callable[[T], None]) -> list[T]:
        """What `change` is going to be called with when the inbox is released."""
        return [args[0] for due, args in self._waiting if due == change]

    def hold(self) -> None:
        """From now on changes wait."""
        self._held = True

    async def release(self) -> None:
        """Applies what has waited, including what arrives while it does so."""
        now = asyncio.get_running_loop().time
        try:
            while self._waiting:
                end = now() + TIME_SLICE
                for _ in range(min(_AT_ONCE, len(self._waiting))):
                    self._apply_first()
                    if now() >= end:
                        break
                await asyncio.sleep(0)
        finally:
            self.release_now()

    def release_now(self) -> None:
        """The same without yielding: for the end of a cycle that is cancelled."""
        while self._waiting:
            self._apply_first()
        self._held = False

    def _apply_first(self) -> None:
        change, args = self._waiting.popleft()
        try:
            change(*args)
        except Exception:
            # One object that cannot be processed must not block the others.
            _log.exception("a change of the cluster could not be applied")


class InboxSink(Generic[T]):
    """A sink whose objects pass the inbox. `by_name`: it has one object of a name, whatever its uid."""

    def __init__(self, inbox: Inbox, sink: Sink[T], *, by_name: bool = False) -> None:
        self._inbox = inbox
        self._sink = sink
        self._by_name = by_name

    def upsert(self, obj: T, anew: bool = False) -> None:
        self._inbox.put(self._sink.upsert, obj, anew)

    def delete(self, obj: T) -> None:
        self._inbox.put(self._sink.delete, obj)

    def delete_key(self, key: ObjectKey) -> None:
        self._inbox.put(self._sink.delete_key, key)

    def known(self) -> Iterator[ObjectKey]:
        waiting = [obj.metadata for obj in self._inbox.waiting(self._sink.upsert)]
        arriving = [ObjectKey(meta.namespace, meta.name, meta.uid) for meta in waiting]
        if not self._by_name:
            return chain(arriving, self._sink.known())
        # The object that has the name now replaces the earlier one: removing that one afterwards would remove the new
        # one.
        newest = {(key.namespace, key.name): key for key in arriving}
        return chain(newest.values(), (key for key in self._sink.known() if (key.namespace, key.name) not in newest))
