"""Counts what is in a journal."""

from __future__ import annotations

import msgspec

from koordsched.journal.records import (
    Answer,
    AnyRecord,
    Attempt,
    Bound,
    Checkpoint,
    Chosen,
    Closed,
    Consulted,
    Drawn,
    Evicting,
    Header,
    Leading,
    LetIn,
    Member,
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
    resumed: bool = False
    """Whether it starts with a checkpoint instead of the first record."""
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


class JournalCounter:
    """Fills a tally record by record, and knows where in a journal we are.

    `restating`: what comes now is the state at the beginning of a segment; `intact`: everything before that was there,
    so it is known already.
    """

    def __init__(self) -> None:
        self.tally = Tally()
        self.restating = False
        self.intact = False
        self._run = ""
        self._records = 0
        self._offset = 0.0
        self._job: set[str] = set()
        """The uids of the pods whose attempt has no end yet; what comes of bindings may be told within it."""
        self._placed = 0

    def wall(self, monotonic: float) -> float:
        """Seconds since the epoch of a time in the journal."""
        return monotonic + self._offset

    def goes_on_with(self, header: Header) -> bool:
        """Whether nothing is missing between the last record and this one."""
        return header.continues and header.run == self._run and header.records == self._records

    def count(self, record: AnyRecord) -> None:
        """One more."""
        tally = self.tally
        if isinstance(record, Header):
            self._begin(record)
            return
        if self.restating:
            self.restating = not isinstance(record, Checkpoint)
            return
        self._records += 1
        match record:
            case Attempt():
                tally.decisions += 1
                self._job = {record.uid}
                self._placed = 0
                self._seen(record.at)
            case Member():
                tally.decisions += 1
                self._job.add(record.uid)
            case Chosen():
                tally.placed += 1
                self._placed += 1
            case Evicting():
                tally.preemptions += 1
                tally.victims += len(record.victims)
            case Refused() if record.uid in self._job:
                # A plugin refused the node that had been chosen, or another pod of the job has none.
                tally.placed -= self._placed
                self._job, self._placed = set(), 0
                if record.reason == SCHEDULER_ERROR:
                    tally.errors += 1
                else:
                    tally.unschedulable += 1
            case Answer() | Drawn() | Consulted() | LetIn() | Refused():
                pass
            case Closed():
                tally.closed = True
            case _:
                tally.inputs += 1
                tally.bound += isinstance(record, Bound)
                if isinstance(record, Undone):
                    tally.unbound += 1
                    self._job.discard(record.uid)  # its refusal is one of the binding
                if isinstance(record, Timers | Leading):
                    self._seen(record.at)

    def _begin(self, header: Header) -> None:
        known = header.run == self._run
        self.restating = header.continues
        self.intact = self.goes_on_with(header)
        self.tally.resumed |= header.continues and not self.intact
        self.tally.runs += not known
        self.tally.closed = False
        self._run, self._records = header.run, header.records
        if not self.intact:
            self._job = set()
        self._offset = header.wall - header.monotonic
        self._seen(header.monotonic)

    def _seen(self, monotonic: float) -> None:
        at = self.wall(monotonic)
        self.tally.first = min(self.tally.first or at, at)
        self.tally.last = max(self.tally.last, at)
