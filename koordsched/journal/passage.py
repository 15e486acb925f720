"""Going through a journal: where a process begins there is a new scheduler, unless its state is known already."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import msgspec

from koordsched.engine.explain import explain
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
from koordsched.journal.replaying import World
from koordsched.journal.tally import Counting, Tally
from koordsched.scheduling.advice import Advised, with_advice


@dataclass(frozen=True, slots=True)
class Limit:
    """Where to stop: after so many decisions, or before the first step later than this (seconds since the epoch)."""

    decisions: int | None = None
    time: float | None = None

    def reached(self, record: AnyRecord, counting: Counting) -> bool:
        """Whether the record is beyond the limit."""
        if isinstance(record, Attempt) and counting.tally.decisions == self.decisions:
            return True
        if self.time is None or not isinstance(record, Attempt | Timers | Leading):
            return False
        return counting.wall(record.at) > self.time


class Moment(msgspec.Struct, rename="camel"):
    """A decision: its number, counted from 1, the pod, and when it was (seconds since the epoch)."""

    number: int
    pod: str
    time: float


class Passage(ABC):
    """Takes one record after the other, once. To be used where an event loop runs."""

    def __init__(self, records: Iterable[AnyRecord]) -> None:
        self.counting = Counting()
        self.stream = Stream(records, self.counting.count)
        self.moment = Moment(0, "", 0.0)
        """The latest decision."""
        self.world: World | None = None
        """The scheduler of the process that we are in."""
        self._objects: dict[str, list[Upsert]] = {}

    @property
    def tally(self) -> Tally:
        """What has been passed so far."""
        return self.counting.tally

    @abstractmethod
    def begin(self, header: Header) -> World:
        """A new scheduler, for the process of this header. Raises ConfigError or ProfileError."""

    @abstractmethod
    def step(self, record: Step | Outcome) -> None:
        """Any record but those of beginnings and ends."""

    def aside(self) -> AbstractContextManager[None]:
        """Inside, the scheduler may be asked something that is no part of its history."""
        return nullcontext()

    def explain(self, uid: str) -> Advised | None:
        """What the scheduler makes of a pending pod at this moment; None if there is no such pod."""
        if self.world is None or (pod := self.world.scheduler.pending_pod(uid)) is None:
            return None
        with self.aside():
            scheduler = self.world.scheduler
            profile, cluster = scheduler.profiles[pod.shape.scheduler_name], scheduler.cluster
            return with_advice(profile, cluster, pod, explain(profile, cluster, pod))

    def advance(self, limit: Limit) -> bool:
        """Takes the next record; False at the limit, and at the end."""
        record = self.stream.peek()
        if record is None or limit.reached(record, self.counting):
            return False
        restating = self.counting.restating
        self.stream.take()
        if isinstance(record, Header):
            if not self.counting.intact:
                self.world = self.begin(record)
                self._objects = {}
        elif restating:
            self._restate(record)
        elif self.world is not None and not isinstance(record, Closed | Within | Checkpoint):
            if isinstance(record, Attempt):
                self.moment = Moment(self.tally.decisions, record.pod, self.counting.wall(record.at))
            self.step(record)
        return True

    def _restate(self, record: AnyRecord) -> None:
        if self.counting.intact or self.world is None:
            return
        if isinstance(record, Upsert):
            self._objects.setdefault(record.path, []).append(record)
        elif isinstance(record, Checkpoint):
            self.world.restore(record, self._objects)
            self._objects = {}


def last_attempt(records: Iterable[AnyRecord], pod: str, limit: Limit) -> tuple[Moment, str] | None:
    """The last decision on a pod (`namespace/name`) within the limit, and the pod's uid; None if there is none."""
    counting = Counting()
    found = None
    for record in records:
        if limit.reached(record, counting):
            break
        counting.count(record)
        if isinstance(record, Attempt) and record.pod == pod:
            found = Moment(counting.tally.decisions, pod, counting.wall(record.at)), record.uid
    return found
