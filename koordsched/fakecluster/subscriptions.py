"""Notifies callbacks, which may write themselves, of committed changes, in commit order."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable

from koordsched.fakecluster.store import ADDED, Change, Object, Record

log = logging.getLogger(__name__)


class ChangeView:
    """A change for subscribers that look before they decode."""

    __slots__ = ("old_record", "record", "type")

    def __init__(self, change: Change) -> None:
        self.type = change.type
        """ADDED, MODIFIED or DELETED."""
        self.record = change.new
        """The new (or last) version: key, uid, labels and bytes come without decoding."""
        self.old_record = change.old

    @property
    def new(self) -> Object:
        """The decoded new (for DELETED: last) version. Shared: read only."""
        return self.record.obj()

    @property
    def old(self) -> Object | None:
        """The decoded previous version; None for ADDED. Shared: read only."""
        return self.old_record.obj() if self.old_record is not None else None


ChangeCallback = Callable[[ChangeView], None]
Unsubscribe = Callable[[], None]


class Subscriptions:
    """Callbacks by storage key, served from a queue that the outermost write drains: a callback may write too."""

    def __init__(self) -> None:
        self._subscribers: dict[str, tuple[ChangeCallback, ...]] = {}
        self._pending: deque[tuple[tuple[ChangeCallback, ...], ChangeView]] = deque()
        self._draining = False

    def tell(self, storage: str, change: Change) -> None:
        """Queue a change for the subscribers of a storage key, and serve the queue unless it is being served."""
        subscribers = self._subscribers.get(storage)
        if subscribers:
            self._pending.append((subscribers, ChangeView(change)))
            if not self._draining:
                self._drain()

    def _drain(self) -> None:
        self._draining = True
        pending = self._pending
        try:
            while pending:
                callbacks, view = pending.popleft()
                for callback in callbacks:
                    try:
                        callback(view)
                    except Exception:
                        # The write stands whatever a subscriber makes of it; the fault must be seen, not spread.
                        log.exception("subscriber failed on %s %s", view.type, "/".join(view.record.key))
        finally:
            self._draining = False

    def add(self, storage: str, callback: ChangeCallback, present: Iterable[Record]) -> Unsubscribe:
        """Subscribe; `present` objects are delivered first, as ADDED."""
        self._pending.extend([((callback,), ChangeView(Change(ADDED, None, r))) for r in present])
        self._subscribers[storage] = (*self._subscribers.get(storage, ()), callback)
        if not self._draining:
            self._drain()

        def unsubscribe() -> None:
            self._subscribers[storage] = tuple(c for c in self._subscribers[storage] if c != callback)

        return unsubscribe
