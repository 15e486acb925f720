"""A scheduler on virtual time whose journal is kept in lists, and the replay of such a journal."""

import asyncio
from contextlib import asynccontextmanager
from random import Random

from koordsched.client.clock import SystemClock
from koordsched.client.lanes import Lanes
from koordsched.journal.checkpoint import checkpoint_of
from koordsched.journal.comparingreplay import ComparingReplay
from koordsched.journal.header import Setting, header_maker
from koordsched.journal.journalreplay import Limit
from koordsched.journal.objects import NewestObjects
from koordsched.journal.recorder import JournalRecorder
from koordsched.journal.records import Closed, decode, encode
from koordsched.journal.repeatingreplay import RepeatingReplay
from koordsched.observability.metrics import Metrics
from koordsched.plugins import CATALOG, IN_TREE
from koordsched.scheduling.scheduler import Scheduler
from tests.embedded import DEFAULT_CONFIG
from tests.extraplugins import registry_with, resolved_with
from tests.virtualtime import run


class ListJournal:
    """The segments of one process as lists of encoded records; a new one every so many seconds."""

    def __init__(self, setting, name, clock, *, seconds_per_segment=None):
        self._header = header_maker(setting, name, clock)
        self._objects = NewestObjects()
        self._every = seconds_per_segment
        self.problems = []
        self._time = clock.monotonic
        self._next = self._time() + (seconds_per_segment or 0.0)
        self._records = 0
        self.segments = [[encode(self._header(0, 0))]]
        self.recorder = JournalRecorder(self.put, self.problems.append, clock.monotonic)

    def put(self, record, change=None):
        self._records += 1
        self.segments[-1].append(record)
        if change is not None:
            self._objects.apply(record, change)

    def attach(self, scheduler):
        if self._every is not None:
            self.recorder.between = lambda: self._cut(scheduler)

    def _cut(self, scheduler):
        if self._time() >= self._next and not scheduler.queue.in_flight_pods():
            self._next = self._time() + self._every
            header = encode(self._header(len(self.segments), self._records))
            self.segments.append([header, *self._objects, encode(checkpoint_of(scheduler))])

    def records(self, first=0):
        """From this segment on, decoded."""
        return [decode(data) for segment in self.segments[first:] for data in segment]


class Recorded:
    """One life of a scheduler, and what it recorded."""

    def __init__(
        self,
        embedded,
        configuration=None,
        *,
        seed=1,
        fault=None,
        gates=(),
        seconds_per_segment=None,
        journal=None,
        plugins=(),
        controllers=None,
    ):
        resolved = resolved_with(configuration or DEFAULT_CONFIG, plugins, gates)
        self.journal = journal or ListJournal(
            Setting(resolved), f"run {seed}", embedded.clock, seconds_per_segment=seconds_per_segment
        )
        self.transport = embedded.transport(fault)
        self.lanes = Lanes(self.transport, embedded.clock, Random(seed))
        self.scheduler = Scheduler(
            resolved,
            registry_with(plugins),
            transport=self.transport,
            lanes=self.lanes,
            clock=embedded.clock,
            rng=Random(seed),
            metrics=Metrics(process_metrics=False),
            hostname="test",
            recorder=self.journal.recorder,
            controllers=controllers or {},
        )
        self.journal.attach(self.scheduler)

    @asynccontextmanager
    async def running(self):
        """Runs until the end of the block, then stops in good order."""
        self.scheduler.start()
        work = asyncio.create_task(self.scheduler.run())
        await self.scheduler.wait_synced()
        try:
            yield self.scheduler
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await self.scheduler.stop()
            await self.lanes.close()
            await self.transport.close()
            self.journal.put(encode(Closed()))


def repeat(records, limit=None, plugins=IN_TREE, catalog=CATALOG):
    """Replays records; returns the outcome, and the course, with the scheduler as it is at the end."""

    async def work():
        replay = RepeatingReplay(records, plugins, SystemClock(), catalog)
        return replay.run(limit or Limit()), replay

    return run(work())


def replayed_from_each_segment(journal):
    """The schedulers of replays that begin at the segments, one after the other, each of which agrees with the life."""
    assert journal.problems == []
    for segment in range(len(journal.segments)):
        repetition, replay = repeat(journal.records(segment))
        assert repetition.divergence is None, segment
        yield replay.replayed.scheduler


def places(scheduler):
    """Pod -> node."""
    return {pod.key: pod.node for pod in scheduler.cluster.assigned.values()}


def consider(records, resolved=None, limit=None, plugins=IN_TREE, catalog=CATALOG):
    """What a configuration, or the recorded one, would have decided."""

    async def work():
        return ComparingReplay(records, plugins, SystemClock(), catalog, resolved).run(limit or Limit())

    return run(work())
