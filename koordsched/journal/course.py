"""The course of a replay: from the first record to the last, or to the decision that somebody wants to look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from koordsched.framework.explain import explain
from koordsched.framework.profile import PluginFactory
from koordsched.journal.header import setting_of
from koordsched.journal.reading import Stream
from koordsched.journal.records import (
    Answer,
    AnyRecord,
    Attempt,
    Chosen,
    Closed,
    Evicting,
    Header,
    Leading,
    Refused,
    Timers,
)
from koordsched.journal.repeating import Repeater, text_of
from koordsched.journal.replaying import Replayed
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


class Course:
    """Repeats a journal, once. To be used where an event loop runs."""

    def __init__(self, records: Iterable[AnyRecord], registry: Mapping[str, PluginFactory]) -> None:
        self._counting = Counting()
        self._stream = Stream(records, self._counting.count)
        self._registry = registry
        self._repeater = Repeater(self._stream)
        self._world: Replayed | None = None
        self.moment = Moment(0, "", 0.0)
        """The latest decision."""

    @property
    def tally(self) -> Tally:
        """What has been replayed so far."""
        return self._counting.tally

    def run(self, limit: Limit) -> Repetition:
        """Repeats decisions until one differs, or the limit is reached.

        Raises ConfigError or ProfileError if the recorded configuration cannot be used any more.
        """
        stream, repeater = self._stream, self._repeater
        while (record := stream.peek()) is not None and not limit.reached(record, self._counting):
            stream.take()
            self._step(record)
            if repeater.difference is not None:
                found = repeater.difference
                divergence = Divergence(self.moment, found.recorded, found.repeated)
                return Repetition(self.tally, repeater.ties, divergence)
        return Repetition(self.tally, repeater.ties)

    def _step(self, record: AnyRecord) -> None:
        match record:
            case Header():
                if self._world is None or not record.continues:
                    self._begin(record)
            case Closed() | Answer():
                pass
            case Chosen() | Evicting() | Refused():
                self._repeater.differ(text_of(record), "nothing more came of it")
            case _:
                if isinstance(record, Attempt):
                    self.moment = Moment(self.tally.decisions, record.pod, self._counting.wall(record.at))
                if self._world is not None:
                    self._world.step(record)

    def _begin(self, header: Header) -> None:
        self._repeater.wall_offset = header.wall - header.monotonic
        self._repeater.at(header.monotonic)
        self._world = Replayed(setting_of(header), self._registry, self._repeater)

    def explain(self, uid: str) -> Advised | None:
        """What the scheduler makes of a pending pod at this moment; None if there is no such pod."""
        world = self._world
        pod = world.scheduler.pending_pod(uid) if world is not None else None
        if world is None or pod is None:
            return None
        with self._repeater.aside():
            profile, cluster = world.scheduler.profiles[pod.shape.scheduler_name], world.scheduler.cluster
            return with_advice(profile, cluster, pod, explain(profile, cluster, pod))


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
