"""A scheduler on virtual time whose journal is kept in a list, and the replay of such a list."""

import asyncio
import json
from contextlib import asynccontextmanager
from random import Random

from koordsched import config
from koordsched.client.lanes import Lanes
from koordsched.journal.header import Setting, header_maker, setting_of
from koordsched.journal.reading import Stream
from koordsched.journal.recorder import JournalRecorder
from koordsched.journal.records import Answer, Closed, Header, decode, encode
from koordsched.journal.repeating import Repeater
from koordsched.journal.replaying import Replayed
from koordsched.observability.metrics import Metrics
from koordsched.plugins import IN_TREE
from koordsched.scheduling.scheduler import Scheduler
from tests.embedded import DEFAULT_CONFIG


class Recorded:
    """One life of a scheduler, and what it recorded."""

    def __init__(self, embedded, configuration=None, *, seed=1, fault=None, gates=(), recorder=None, journal=None):
        features = config.FeatureGates.parse(gates)
        text = json.dumps(configuration or DEFAULT_CONFIG)
        resolved = config.resolve(config.load(text, gates=features), gates=features)
        self.setting = Setting(resolved)
        self.journal = journal if journal is not None else []
        header = header_maker(self.setting, f"run {seed}", embedded.clock)
        if recorder is None:
            self.journal.append(encode(header(0)))
            recorder = JournalRecorder(self.journal.append, embedded.clock.monotonic)
        self.transport = embedded.transport(fault)
        self.lanes = Lanes(self.transport, embedded.clock, Random(seed))
        self.scheduler = Scheduler(
            resolved,
            IN_TREE,
            transport=self.transport,
            lanes=self.lanes,
            clock=embedded.clock,
            rng=Random(seed),
            metrics=Metrics(process_metrics=False),
            hostname="test",
            recorder=recorder,
        )

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
            self.journal.append(encode(Closed()))

    @property
    def records(self):
        """What was recorded, decoded."""
        return [decode(data) for data in self.journal]


def replayed(records):
    """Replays the records of one or more lives; the repeaters and schedulers, one of each per life."""
    stream, lives = Stream(records), []
    while (record := stream.take()) is not None:
        if isinstance(record, Header):
            repeater = Repeater(stream)
            repeater.wall_offset = record.wall - record.monotonic
            repeater.at(record.monotonic)
            lives.append((repeater, Replayed(setting_of(record), IN_TREE, repeater)))
        elif not isinstance(record, Closed | Answer):
            lives[-1][1].step(record)
    return lives


def assert_repeats(records):
    """Every decision comes out the same; returns the schedulers as they are at the end."""
    lives = replayed(records)
    for repeater, _ in lives:
        assert repeater.difference is None
    return [life.scheduler for _, life in lives]
