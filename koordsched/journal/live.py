"""The journal of a running scheduler: its recorder, its file, its metrics."""

from __future__ import annotations

import uuid
from pathlib import Path

from koordsched.framework.handle import Clock
from koordsched.journal.header import Setting, header_maker
from koordsched.journal.recorder import JournalRecorder
from koordsched.journal.records import encode
from koordsched.journal.segments import Segments
from koordsched.journal.writer import JournalWriter
from koordsched.observability.metric_registry import MetricRegistry


class LiveJournal:
    """Begins a journal at `path`; one that is there already becomes an older segment, of which `keep` stay."""

    def __init__(self, path: Path, setting: Setting, clock: Clock, *, keep: int) -> None:
        """Raises OSError if the file cannot be written, NotAJournal if another one is in its place."""
        header = header_maker(setting, uuid.uuid4().hex, clock)
        self._writer = JournalWriter(Segments(path, encode(header(0)), keep=keep))
        self.recorder = JournalRecorder(self._writer.put, clock.monotonic)

    def observe(self, metrics: MetricRegistry) -> None:
        """Shows how recording fares."""
        writer = self._writer
        metrics.read_gauges(
            "koordsched_journal_recording",
            "1 while the journal is being written, 0 once it had to be given up.",
            lambda: float(writer.recording),
        )
        metrics.read_counters(
            "koordsched_journal_records_total", "Records given to the journal.", lambda: writer.records
        )
        metrics.read_counters(
            "koordsched_journal_written_bytes_total", "Bytes of the journal on disk.", lambda: writer.written
        )

    def close(self) -> None:
        """Completes the file."""
        self._writer.close()
