"""Replays a journal by deciding anew, and compares: to the last record, to the first difference, or to a limit."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import msgspec

from koordsched.journal.header import setting_of
from koordsched.journal.journalreplay import JournalReplay, Limit, Moment
from koordsched.journal.records import Header, Outcome, Step
from koordsched.journal.repeating import Repeater, text_of
from koordsched.journal.replayedscheduler import RepeatingScheduler
from koordsched.journal.tally import Tally


class Divergence(msgspec.Struct, rename="camel"):
    """A decision, or a step after it, that differs from the recorded one."""

    at: Moment
    recorded: str
    repeated: str


class Repetition(msgspec.Struct, rename="camel"):
    """The result of a replay. `ties`: decisions between equally good nodes, where the recorded one was taken."""

    tally: Tally
    ties: int = 0
    divergence: Divergence | None = None


class RepeatingReplay(JournalReplay):
    """Repeats a journal, once; decisions read the recorded clock."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._repeater = Repeater(self.stream, self._go_on)
        self._scheduler: RepeatingScheduler | None = None

    def run(self, limit: Limit) -> Repetition:
        """Repeats decisions until one differs, or the limit is reached.

        Raises ConfigError or ProfileError if the recorded configuration cannot be used any more.
        """
        repeater = self._repeater
        while repeater.difference is None and self.advance(limit):
            pass
        found = repeater.difference
        divergence = Divergence(self.moment, found.recorded, found.repeated) if found is not None else None
        return Repetition(self.tally, repeater.ties, divergence)

    def begin(self, header: Header) -> RepeatingScheduler:
        """A scheduler with the recorded configuration."""
        self._repeater.wall_offset = header.wall - header.monotonic
        self._repeater.at(header.monotonic)
        setting = setting_of(header, self.catalog)
        self._repeater.lenient = False
        with self._repeater.unrecorded_questions() if header.continues else nullcontext():
            self._scheduler = RepeatingScheduler(setting, self.registry, self.clock, self._repeater)
        return self._scheduler

    def step(self, record: Step | Outcome) -> None:
        """Repeats it."""
        if isinstance(record, Outcome):
            self._repeater.differ(text_of(record), "nothing more came of it")
        elif self._scheduler is not None:
            self._scheduler.step(record)

    def _go_on(self) -> bool:
        """Takes one more record while an attempt waits; False at the end of the process."""
        record = self.stream.peek()
        if isinstance(record, Header) and not self.counter.goes_on_with(record):
            return False
        return self.advance(Limit())

    def unrecorded_questions(self) -> AbstractContextManager[None]:
        """Inside, questions are not those of the recording."""
        return self._repeater.unrecorded_questions()
