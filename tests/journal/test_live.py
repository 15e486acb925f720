"""The journal of a running scheduler, on disk: segments follow each other without a gap, and old ones can go."""

import json
import time

import pytest

from koordsched import config
from koordsched.journal.header import Setting
from koordsched.journal.live import LiveJournal
from koordsched.journal.reading import Journal
from koordsched.observability.metrics import Metrics
from koordsched.plugins import CATALOG
from tests import depth
from tests.embedded import Embedded
from tests.journal.recording import repeat
from tests.journal.test_replay import QUOTAS, busy
from tests.virtualtime import run


class OnDisk:
    """A `LiveJournal` in the place of a `ListJournal`."""

    def __init__(self, path, clock, **options):
        resolved = config.resolve(config.load(json.dumps(QUOTAS), catalog=CATALOG), catalog=CATALOG)
        self.live = LiveJournal(path, Setting(resolved), "run", clock, **options)
        self.recorder = self.live.recorder

    def attach(self, scheduler):
        """Time is virtual, the writer's thread is not: it is waited for between decisions."""
        self.live.attach(scheduler)
        between = self.recorder.between
        writer = self.live._writer

        def after_the_thread():
            deadline = time.monotonic() + 30
            while writer._waiting or writer._cutting:
                assert time.monotonic() < deadline
                writer._wanted.set()
                time.sleep(0)
            between()

        self.recorder.between = after_the_thread

    def put(self, record):
        """The last record is written by `close`."""


def recorded(path, **options):
    """A busy life; what metrics say of its journal."""

    async def main():
        embedded = Embedded()
        journal = OnDisk(path, embedded.clock, **options)
        metrics = Metrics(process_metrics=False)
        journal.live.observe(metrics)
        await busy(embedded, journal=journal)
        journal.live.close()
        return {
            sample.name: sample.value
            for family in metrics.registry.collect()
            for sample in family.samples
            if sample.name.startswith("koordsched_journal")
        }

    return run(main())


@pytest.mark.parametrize("keep", [1000, 1])
def test_segments(tmp_path, keep):
    """As short as they can be: whenever one has been begun, it is full."""
    shown = recorded(tmp_path / "journal", max_size=1, keep=keep)
    journal = Journal(tmp_path / "journal")
    repetition, _ = repeat(journal)
    assert repetition.divergence is None
    assert journal.damages == []
    assert repetition.tally.closed
    assert repetition.tally.resumed == (keep == 1)
    assert len(journal.paths) > 1
    for path in journal.paths[:: 5 if depth.quick else 1]:
        assert repeat(Journal(path))[0].divergence is None, path
    assert shown["koordsched_journal_records_total"] > 200
    if keep == 1000:
        assert shown["koordsched_journal_written_bytes_total"] == sum(path.stat().st_size for path in journal.paths)


def test_one_segment(tmp_path):
    shown = recorded(tmp_path / "journal", max_size=0, keep=3)
    journal = Journal(tmp_path / "journal")
    repetition, _ = repeat(journal)
    assert repetition.divergence is None
    assert repetition.tally.decisions > 20
    assert len(journal.paths) == 1
    assert shown["koordsched_journal_recording"] == 0  # closed
