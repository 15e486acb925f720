"""What plugins know that no object says, and that others may ask for at any time: journals have to record both.

A plugin's *state* is whatever depends on what happened before and not on the objects there are now: failures within a
window, when something was first seen, tables that are worked out now and then, timers. A checkpoint keeps it.

*Reads from outside* of the steps that journals record (controllers, metrics, pages) matter where state is brought up
to date when it is read: then the read is a step, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

S = TypeVar("S")


class Keeper(Protocol[S]):
    """Has state. `state_type`: how it is recorded, a type that msgspec encodes. Rows of nodes stay the same."""

    state_type: type[S]

    def recorded_state(self) -> S:
        """The state, between two steps."""

    def restore_state(self, state: S) -> None:
        """Takes over the state, in place of what objects and pods have led to."""


class PluginStates:
    """The keepers of state of one scheduler, by name. `note` hears of reads from outside."""

    def __init__(self, note: Callable[[str], None] | None = None) -> None:
        self._note = note or _ignored
        self._keepers: dict[str, Keeper[Any]] = {}
        self._updates: dict[str, Callable[[], None]] = {}
        self._readers: dict[str, Callable[[], None]] = {}

    def keep(self, name: str, keeper: Keeper[Any]) -> None:
        """The state of this keeper is recorded. Raises ValueError if the name is taken."""
        if self._keepers.setdefault(name, keeper) is not keeper:
            raise ValueError(f"two keepers of state are called {name}")

    def encoded(self) -> dict[str, bytes]:
        """All states, as MessagePack."""
        return {name: _encode(keeper.recorded_state()) for name, keeper in self._keepers.items()}

    def restore(self, name: str, data: bytes) -> None:
        """Restores what `encoded` gave; a name that is not known is ignored. Raises msgspec.MsgspecError."""
        keeper = self._keepers.get(name)
        if keeper is not None:
            keeper.restore_state(msgspec.msgpack.decode(data, type=keeper.state_type))

    # --- reads from outside ------------------------------------------------------------------------

    def updated_by(self, name: str, version: Callable[[], object], update: Callable[[], None]) -> Callable[[], None]:
        """Declares state that `update` brings up to date; nothing is to be done while `version` returns the same.

        Returns what readers from outside have to call before each read.
        """
        self._updates[name] = update
        seen: object = None

        def read() -> None:
            nonlocal seen
            if (now := version()) != seen:
                self._note(name)
                update()
                seen = now

        self._readers[name] = read
        return read

    def read_from_outside(self) -> None:
        """Any state may be read now."""
        for read in self._readers.values():
            read()

    def repeat(self, name: str) -> None:
        """A read from outside, as it was recorded; a name that is not known is ignored."""
        self._updates.get(name, _nothing)()


def _ignored(name: str) -> None:
    """Nothing is recorded."""


_nothing = partial(_ignored, "")

_encode = msgspec.msgpack.Encoder().encode
