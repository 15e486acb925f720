"""Events that plugins announce, which transactions hold back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from koordsched.cluster.events import ClusterEvent

EventListener = Callable[[ClusterEvent, Any, Any], object]
"""Called with an event and the objects of it, as queueing hints get them."""


class Announcements:
    """Calls listeners, outside of transactions at once."""

    def __init__(self) -> None:
        self._event_listeners: list[EventListener] = []
        self._held_back: list[tuple[ClusterEvent, Any, Any, bool]] | None = None
        """Announcements of a transaction under way; None while there is none."""
        self._paused = False

    def on_event(self, listener: EventListener) -> None:
        """Calls the listener for every event that a plugin announces."""
        self._event_listeners.append(listener)

    def announce(self, event: ClusterEvent, old: Any = None, new: Any = None, *, earlier: bool = False) -> None:
        """A plugin's own event: something only it can see changed, and pods it rejected may fit now.

        Inside a transaction it is held back until that ends, and forgotten if that is rolled back, unless its cause is
        `earlier` than the transaction and was only noticed now.
        """
        if self._held_back is not None:
            self._held_back.append((event, old, new, earlier))
            return
        for listener in self._event_listeners:
            listener(event, old, new)

    def _outside_transactions(self) -> None:
        if self._held_back is not None:
            raise RuntimeError("inside a transaction the cluster changes by the transaction alone")

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is under way; changes that are watched have to wait until it ends."""
        return self._held_back is not None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, others have the loop in the middle of a transaction, and no pod may be moved or given anything."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def _not_paused(self) -> None:
        if self._paused:
            raise RuntimeError("a transaction is under way, and paused: changes have to wait until it ends")

    def begin(self) -> None:
        """From now on announcements are held back. Raises RuntimeError inside a transaction."""
        if self._held_back is not None:
            self._outside_transactions()
        self._held_back = []

    def announced(self) -> int:
        """How many announcements are held back."""
        assert self._held_back is not None, "inside a transaction"
        return len(self._held_back)

    def withdraw(self, announced: int) -> None:
        """Forgets the announcements held back since there were so many, but those with an earlier cause."""
        assert self._held_back is not None, "inside a transaction"
        self._held_back[announced:] = [held for held in self._held_back[announced:] if held[-1]]

    def end(self) -> None:
        """The transaction is over: what was held back is announced."""
        held_back, self._held_back = self._held_back, None
        for event, old, new, _ in held_back or ():
            self.announce(event, old, new)
