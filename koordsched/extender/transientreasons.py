"""Reasons that live for one scheduling cycle."""

from __future__ import annotations

from koordsched.framework.status import Code, Reason, ReasonTable


class TransientReasons:
    """Assigns numbers of a reason table that are reused in the next cycle.

    Extenders may write anything into a reason, a number that changes every second for example, and a table of all of
    them would grow for ever. No verdict of theirs outlives its cycle, so neither need its number.
    """

    def __init__(self, table: ReasonTable) -> None:
        self._table = table
        self._numbers: list[int] = []
        self._index: dict[Reason, int] = {}

    def clear(self) -> None:
        """A new cycle begins: the numbers given out so far are no longer in use."""
        self._index.clear()

    def intern(self, plugin: str, code: Code, *texts: str) -> int:
        """The number of this reason, valid until `clear`."""
        reason = Reason(plugin, code, texts)
        number = self._index.get(reason)
        if number is None:
            if len(self._index) == len(self._numbers):
                self._numbers.append(len(self._table.reasons))
                self._table.reasons.append(reason)
            number = self._index[reason] = self._numbers[len(self._index)]
            self._table.reasons[number] = reason
        return number
