"""Counts what is in a journal."""

from __future__ import annotations

from collections import Counter

import msgspec

from koordsched.journal.records import (
    Answer,
    AnyRecord,
    Attempt,
    Bound,
    Chosen,
    Closed,
    Evicting,
    Header,
    Leading,
    Refused,
    Timers,
    Undone,
)
from koordsched.scheduling.failure import SCHEDULER_ERROR


class Tally(msgspec.Struct, rename="camel"):
    """Totals. `inputs`: changes, timers and outcomes of writes; `span`: seconds from the first step to the last.

    `unschedulable` and `errors` are attempts that ended so; `unbound`: placements whose binding failed.
    """

    runs: int = 0
    inputs: int = 0
    decisions: int = 0
    placed: int = 0
    bound: int = 0
    unbound: int = 0
    unschedulable: int = 0
    errors: int = 0
    preemptions: int = 0
    victims: int = 0
    first: float = 0.0
    """Seconds since the epoch, as are all times here."""
    last: float = 0.0
    closed: bool = False
    """Whether the last process came to an orderly end."""

    @property
    def span(self) -> float:
        """Seconds of recorded time."""
        return self.last - self.first


class Counting:
    """Fills a tally record by record."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.kinds: Counter[str] = Counter()
        self._offset = 0.0
        self._deciding = False

    def wall(self, monotonic: float) -> float:
        """Seconds since the epoch of a time in the journal."""
        return monotonic + self._offset

    def count(self, record: AnyRecord) -> None:
        """One more."""
        tally = self.tally
        match record:
            case Header():
                self._offset = record.wall - record.monotonic
                tally.runs += not record.continues or not tally.runs
                self._seen(record.monotonic)
                tally.closed = False
            case Attempt():
                tally.decisions += 1
                self._deciding = True
                self._seen(record.at)
            case Chosen():
                tally.placed += 1
            case Evicting():
                tally.preemptions += 1
                tally.victims += len(record.victims)
            case Refused():
                if self._deciding and record.reason == SCHEDULER_ERROR:
                    tally.errors += 1
                elif self._deciding:
                    tally.unschedulable += 1
            case Answer():
                pass
            case Closed():
                tally.closed = True
            case _:
                self._deciding = False
                tally.inputs += 1
                tally.bound += isinstance(record, Bound)
                tally.unbound += isinstance(record, Undone)
                if isinstance(record, Timers | Leading):
                    self._seen(record.at)

    def _seen(self, monotonic: float) -> None:
        at = self.wall(monotonic)
        self.tally.first = min(self.tally.first or at, at)
        self.tally.last = max(self.tally.last, at)
