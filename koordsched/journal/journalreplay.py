"""Replays a journal: a new scheduler for each recorded process, unless its state is known already."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import msgspec

from koordsched.client.clock import Clock
from koordsched.config import PluginCatalog
from koordsched.engine.explain import explain
from koordsched.engine.jobexplanation import Jobs
from koordsched.framework.profile import PluginFactory
from koordsched.journal.reading import Stream
from koordsched.journal.records import (
    AnyRecord,
    Attempt,
    Checkpoint,
    Closed,
    Header,
    Leading,
    Outcome,
    Step,
    Timers,
    Upsert,
    Within,
)
from koordsched.journal.replayedscheduler import ReplayedScheduler
from koordsched.journal.tally import JournalCounter, Tally
from koordsched.plugins import CATALOG
from koordsched.scheduling.advice import Advised, remedy_of, with_advice


@dataclass(frozen=True, slots=True)
class Limit:
    """Where to stop: after this many decisions, or before the first step later than this (seconds since the epoch)."""

    decisions: int | None = None
    time: float | None = None

    def reached(self, record: AnyRecord, counter: JournalCounter) -> bool:
        """Whether the record is beyond the limit."""
        if isinstance(record, Attempt) and counter.tally.decisions == self.decisions:
            return True
        if self.time is None or not isinstance(record, Attempt | Timers | Leading):
            return False
        return counter.wall(record.at) > self.time


class Moment(msgspec.Struct, rename="camel"):
    """A decision: its number, counted from 1, the pod, and when it was (seconds since the epoch)."""

    number: int
    pod: str
    time: float


@dataclass(eq=False)
class JournalReplay(ABC):
    """Takes one record after the other, once. Needs a running event loop. `clock` is for metrics."""

    records: Iterable[AnyRecord]
    registry: Mapping[str, PluginFactory]
    clock: Clock
    catalog: PluginCatalog = CATALOG

    def __post_init__(self) -> None:
        self.counter = JournalCounter()
        self.stream = Stream(self.records, self.counter.count)
        self.moment = Moment(0, "", 0.0)
        """The latest decision."""
        self.replayed: ReplayedScheduler | None = None
        """The scheduler of the current process."""
        self._objects: dict[str, list[Upsert]] = {}

    @property
    def tally(self) -> Tally:
        """Counts of the records taken so far."""
        return self.counter.tally

    @abstractmethod
    def begin(self, header: Header) -> ReplayedScheduler:
        """A new scheduler, for the process of this header. Raises ConfigError or ProfileError."""

    @abstractmethod
    def step(self, record: Step | Outcome) -> None:
        """A record of a change, a step or a decision."""

    def unrecorded_questions(self) -> AbstractContextManager[None]:
        """Inside, the scheduler may be asked questions that are not in the journal."""
        return nullcontext()

    def explain(self, uid: str) -> Advised | None:
        """The scheduler's decision on a pending pod at this moment; None if there is no such pod."""
        if self.replayed is None or (pod := self.replayed.scheduler.pending_pod(uid)) is None:
            return None
        with self.unrecorded_questions():
            scheduler = self.replayed.scheduler
            profile, cluster = scheduler.profiles[pod.shape.scheduler_name], scheduler.cluster
            jobs = Jobs(scheduler.profiles, scheduler.queue.nominator, remedy_of)
            return with_advice(profile, cluster, pod, explain(profile, cluster, pod, jobs))

    def advance(self, limit: Limit) -> bool:
        """Takes the next record; False at the limit, and at the end."""
        record = self.stream.peek()
        if record is None or limit.reached(record, self.counter):
            return False
        restating = self.counter.restating
        self.stream.take()
        if isinstance(record, Header):
            if not self.counter.intact:
                self.replayed = self.begin(record)
                self._objects = {}
        elif restating:
            self._restate(record)
        elif self.replayed is not None and not isinstance(record, Closed | Within | Checkpoint):
            if isinstance(record, Attempt):
                self.moment = Moment(self.tally.decisions, record.pod, self.counter.wall(record.at))
            self.step(record)
        return True

    def _restate(self, record: AnyRecord) -> None:
        if self.counter.intact or self.replayed is None:
            return
        if isinstance(record, Upsert):
            self._objects.setdefault(record.path, []).append(record)
        elif isinstance(record, Checkpoint):
            self.replayed.restore(record, self._objects)
            self._objects = {}


def last_attempt(records: Iterable[AnyRecord], pod: str, limit: Limit) -> tuple[Moment, str] | None:
    """The last decision on a pod (`namespace/name`) within the limit, and the pod's uid; None if there is none."""
    counter = JournalCounter()
    found = None
    for record in records:
        if limit.reached(record, counter):
            break
        counter.count(record)
        if isinstance(record, Attempt) and record.pod == pod:
            found = Moment(counter.tally.decisions, pod, counter.wall(record.at)), record.uid
    return found
