"""The course of a replay: from the first record to the last, or to the decision that somebody wants to look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

import msgspec

from koordsched.client.clock import Clock
from koordsched.config import PluginCatalog, Resolved
from koordsched.framework.profile import PluginFactory
from koordsched.journal.header import setting_of
from koordsched.journal.passage import Limit, Moment, Passage
from koordsched.journal.records import AnyRecord, Chosen, Evicting, Header, Outcome, Refused, Step
from koordsched.journal.repeating import Repeater, text_of
from koordsched.journal.replaying import Replayed
from koordsched.journal.tally import Tally
from koordsched.plugins import CATALOG, DECLARED


def _is_looked_into(resolved: Resolved) -> bool:
    """Whether others than steps decide when something becomes news.

    State that is brought up to date when it is read (the books of quotas) is also read by controllers and for metrics,
    while an attempt waits for extenders. A replay has neither, so pods may be woken later there.
    """
    names = {declared.name for declared in DECLARED if declared.updates_when_read}
    return bool(resolved.extenders) and any(names & set(profile.plugins.names()) for profile in resolved.profiles)


class Divergence(msgspec.Struct, rename="camel"):
    """A decision, or a step after it, that came out otherwise."""

    at: Moment
    recorded: str
    repeated: str


class Repetition(msgspec.Struct, rename="camel"):
    """What came of a replay. `ties`: decisions between equally good nodes, where chance was not asked again."""

    tally: Tally
    ties: int = 0
    divergence: Divergence | None = None


class Course(Passage):
    """Repeats a journal, once. `clock` times what takes how long; decisions read the journal's."""

    def __init__(
        self,
        records: Iterable[AnyRecord],
        registry: Mapping[str, PluginFactory],
        clock: Clock,
        catalog: PluginCatalog = CATALOG,
    ) -> None:
        super().__init__(records)
        self._registry = registry
        self._catalog = catalog
        self._clock = clock
        self._repeater = Repeater(self.stream, self._go_on)
        self._replayed: Replayed | None = None

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

    def begin(self, header: Header) -> Replayed:
        """A scheduler as it was."""
        self._repeater.wall_offset = header.wall - header.monotonic
        self._repeater.at(header.monotonic)
        setting = setting_of(header, self._catalog)
        self._repeater.lenient = _is_looked_into(setting.resolved)
        with self._repeater.aside() if header.continues else nullcontext():
            self._replayed = Replayed(setting, self._registry, self._clock, self._repeater)
        return self._replayed

    def step(self, record: Step | Outcome) -> None:
        """Repeats it."""
        if isinstance(record, Chosen | Evicting | Refused):
            self._repeater.differ(text_of(record), "nothing more came of it")
        elif self._replayed is not None:
            self._replayed.step(record)

    def _go_on(self) -> bool:
        """One record more, while an attempt waits; False at the end of the process."""
        record = self.stream.peek()
        if isinstance(record, Header) and not self.counting.goes_on_with(record):
            return False
        return self.advance(Limit())

    def aside(self) -> AbstractContextManager[None]:
        """Inside, questions are not those of the recording."""
        return self._repeater.aside()
