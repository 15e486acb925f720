"""The journal of a running scheduler: its recorder, its file, its metrics."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from koordsched.framework.handle import Clock
from koordsched.journal.checkpoint import checkpoint_of
from koordsched.journal.header import Setting, header_maker
from koordsched.journal.recorder import JournalRecorder
from koordsched.journal.records import encode
from koordsched.journal.segments import Segments
from koordsched.journal.writer import JournalWriter
from koordsched.observability.metric_registry import MetricRegistry
from koordsched.scheduling.scheduler import Scheduler

MAX_CUT_DELAY = 30.0
"""Seconds for which a full segment goes on while pods are in flight: a checkpoint lacks the events for them."""


class LiveJournal:
    """Begins a journal at `path`; one that is there already becomes an older segment, of which `keep` stay.

    A segment that has reached `max_size` bytes (0: never) ends, and the next begins.
    """

    def __init__(self, path: Path, setting: Setting, run: str, clock: Clock, *, max_size: int, keep: int) -> None:
        """`run`: a name that no other process has.

        Raises OSError if the file cannot be written, NotAJournal if another one is in its place.
        """
        self._header = header_maker(setting, run, clock)
        self._segment = 0
        self._clock = clock
        self._full_since: float | None = None
        self._writer = JournalWriter(Segments(path, encode(self._header(0, 0)), keep=keep), max_size=max_size)
        self.recorder = JournalRecorder(self._writer.put, self._writer.give_up, clock.monotonic)

    def attach(self, scheduler: Scheduler) -> None:
        """Lets segments begin with the state of the scheduler, which tells the recorder."""
        self.recorder.between = partial(self._cut_if_full, scheduler)

    def _cut_if_full(self, scheduler: Scheduler) -> None:
        if not self._writer.full:
            return
        now = self._clock.monotonic()
        if self._full_since is None:
            self._full_since = now
        if scheduler.queue.in_flight_pods() and now < self._full_since + MAX_CUT_DELAY:
            return
        self._full_since = None
        self._segment += 1
        header = self._header(self._segment, self._writer.records)
        self._writer.cut(encode(header), encode(checkpoint_of(scheduler)))

    def observe(self, metrics: MetricRegistry) -> None:
        """Shows metrics of the recording."""
        writer = self._writer
        metrics.read(
            "koordsched_journal_recording",
            "1 while the journal is being written, 0 after it had to be given up.",
            lambda: float(writer.recording),
        )
        metrics.read("koordsched_journal_records_total", "Records given to the journal.", lambda: writer.records)
        metrics.read("koordsched_journal_written_bytes_total", "Bytes of the journal on disk.", lambda: writer.written)

    def close(self) -> None:
        """Completes the file."""
        self._writer.close()
