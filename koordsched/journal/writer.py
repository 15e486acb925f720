"""Writes a journal from a thread of its own, so that a slow disk does not block the scheduler.

What waits to be written is bounded. Beyond that, or when writing fails, recording ends, because a journal with a gap
cannot be replayed: one warning in the log and a metric say so, and scheduling goes on.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import NamedTuple

from koordsched.journal.frames import frame_of
from koordsched.journal.objects import Change, NewestObjects
from koordsched.journal.records import Closed, encode
from koordsched.journal.segments import Segments

_log = logging.getLogger(__name__)

MOST_WAITING = 64 << 20
"""Bytes that may wait for the disk."""

BATCH = 256 << 10
"""Bytes of records after which a frame is written at once."""

PAUSE = 0.25
"""Seconds after which what is there is written: the most that a crash can lose."""


class _Cut(NamedTuple):
    """A segment ends here; the next begins with this header, and this checkpoint after all objects."""

    header: bytes
    checkpoint: bytes


class JournalWriter:
    """`put` and `cut` are for the event loop's thread; `close` ends the thread when everything is written.

    A segment of more than `max_size` bytes is `full`, unless that is 0. Then the caller has to `cut`.
    """

    def __init__(
        self, segments: Segments, *, max_size: int = 0, most_waiting: int = MOST_WAITING, pause: float = PAUSE
    ) -> None:
        self._segments = segments
        self._max_size = max_size
        self._most_waiting = most_waiting
        self._pause = pause
        self._waiting: deque[tuple[bytes, Change | None] | _Cut] = deque()
        self._objects = NewestObjects() if max_size else None
        self._cutting = False
        self._accepting = True
        # Each is counted by one thread alone: the loop's and ours.
        self._put = 0
        self._taken = 0
        self._wanted = threading.Event()
        self._closing = False
        self.records = 0
        """Put so far."""
        self.problem = ""
        """Why recording ended early; empty as long as it did not."""
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def put(self, record: bytes, change: Change | None = None) -> None:
        """Takes a record, to be written soon, and what it means for the objects that there are."""
        if not self._accepting:
            return
        self._waiting.append((record, change))
        self.records += 1
        self._put += len(record)
        waiting = self._put - self._taken
        if waiting > BATCH:
            if waiting > self._most_waiting:
                self.give_up(f"{waiting >> 20} MiB wait to be written, the disk is too slow")
            elif not self._wanted.is_set():
                self._wanted.set()

    @property
    def full(self) -> bool:
        """Whether the segment has reached its size, and is not being ended yet."""
        return self._accepting and not self._cutting and 0 < self._max_size <= self._segments.size

    def cut(self, header: bytes, checkpoint: bytes) -> None:
        """Ends the segment behind what was put so far, and begins another."""
        self._cutting = True
        self._waiting.append(_Cut(header, checkpoint))
        self._wanted.set()

    @property
    def recording(self) -> bool:
        """Whether records are still taken."""
        return self._accepting

    @property
    def written(self) -> int:
        """Bytes on disk, of all segments of this process."""
        return self._segments.written

    def close(self, within: float = 5.0) -> None:
        """Writes what waits, and a final record; takes at most this many seconds."""
        if self._accepting:
            self.put(encode(Closed()))
        self._accepting = False
        self._closing = True
        self._wanted.set()
        self._thread.join(within)
        if self._thread.is_alive():
            _log.warning("the journal %s could not be completed within %g s", self._segments.path, within)

    def give_up(self, problem: str) -> None:
        """Takes no more records; what was taken is still written. Says why, once."""
        if self._accepting:
            self._accepting = False
            self.problem = problem
            _log.warning("the journal %s ends here: %s", self._segments.path, problem)

    # --- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closing:
                self._wanted.wait(self._pause)
                self._wanted.clear()
                self._write_waiting()
            self._write_waiting()
        except OSError as error:
            self.give_up(str(error))
        finally:
            self._segments.close()
            self._waiting.clear()

    def _write_waiting(self) -> None:
        waiting = self._waiting
        while waiting:
            batch: list[bytes] = []
            size = 0
            cut: _Cut | None = None
            while waiting and size < BATCH and cut is None:
                entry = waiting.popleft()
                if isinstance(entry, _Cut):
                    cut = entry
                    continue
                record, change = entry
                batch.append(record)
                size += len(record)
                if change is not None and self._objects is not None:
                    self._objects.apply(record, change)
            if batch:
                self._segments.write(frame_of(batch))
                self._taken += size
            if cut is not None:
                self._begin_segment(cut)

    def _begin_segment(self, cut: _Cut) -> None:
        self._segments.next(cut.header)
        batch: list[bytes] = []
        size = 0
        for record in (*(self._objects or ()), cut.checkpoint):
            batch.append(record)
            size += len(record)
            if size >= BATCH or record is cut.checkpoint:
                self._segments.write(frame_of(batch))
                batch, size = [], 0
        self._cutting = False
