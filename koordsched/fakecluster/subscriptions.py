"""Telling of committed changes, in commit order, to callbacks that may write themselves."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable

from koordsched.fakecluster.store import ADDED, Change, Object, Record

log = logging.getLogger(__name__)


class ChangeView:
    """A change for subscribers that look before they decode."""

    __slots__ = ("_change",)

    def __init__(self, change: Change) -> None:
        self._change = change

    @property
    def type(self) -> str:
        """ADDED, MODIFIED or DELETED."""
        return self._change.type

    @property
    def record(self) -> Record:
        """The new (or last) version: key, uid, labels and bytes come without decoding."""
        return self._change.new

    @property
    def old_record(self) -> Record | None:
        return self._change.old

    @property
    def new(self) -> Object:
        """The decoded new (for DELETED: last) version. Shared: read only."""
        return self._change.new.obj()

    @property
    def old(self) -> Object | None:
        """The decoded previous version; None for ADDED. Shared: read only."""
        return self._change.old.obj() if self._change.old is not None else None


ChangeCallback = Callable[[ChangeView], None]
Unsubscribe = Callable[[], None]


class Subscriptions:
    """Callbacks by storage key, served from a queue that the outermost write drains: a callback may write too."""

    def __init__(self) -> None:
        self._subscribers: dict[str, list[ChangeCallback]] = {}
        self._pending: deque[tuple[ChangeCallback, ChangeView]] = deque()
        self._draining = False

    def tell(self, storage: str, change: Change) -> None:
        """Queue a change for the subscribers of a storage key, and serve the queue unless it is being served."""
        subscribers = self._subscribers.get(storage)
        if subscribers:
            view = ChangeView(change)
            self._pending.extend([(s, view) for s in subscribers])
            if not self._draining:
                self._drain()

    def _drain(self) -> None:
        self._draining = True
        pending = self._pending
        try:
            while pending:
                callback, view = pending.popleft()
                try:
                    callback(view)
                except Exception:
                    # The write stands whatever a subscriber makes of it; the fault must be seen, not spread.
                    log.exception("subscriber failed on %s %s", view.type, "/".join(view.record.key))
        finally:
            self._draining = False

    def add(self, storage: str, callback: ChangeCallback, present: Iterable[Record]) -> Unsubscribe:
        """Subscribe; `present` objects are told first, as ADDED."""
        subscribers = self._subscribers.setdefault(storage, [])
        self._pending.extend([(callback, ChangeView(Change(ADDED, None, r))) for r in present])
        subscribers.append(callback)
        if not self._draining:
            self._drain()

        def unsubscribe() -> None:
            if callback in subscribers:
                subscribers.remove(callback)

        return unsubscribe
