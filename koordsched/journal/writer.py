"""Writes a journal from a thread of its own, so that a slow disk holds up nobody.

What waits to be written is bounded. Beyond that, or when the disk does not take it, recording ends, for a journal with
a gap cannot be replayed: one warning in the log and a metric say so, and scheduling goes on.
"""

from __future__ import annotations

import logging
import threading
from collections import deque

from koordsched.journal.frames import frame_of
from koordsched.journal.records import Closed, encode
from koordsched.journal.segments import Segments

_log = logging.getLogger(__name__)

MOST_WAITING = 64 << 20
"""Bytes that may wait for the disk."""

BATCH = 256 << 10
"""Bytes of records after which a frame is written at once."""

PAUSE = 0.25
"""Seconds after which whatever is there is written: what a crash may cost at most."""


class JournalWriter:
    """`put` is for the event loop's thread; `close` ends the thread when everything is written."""

    def __init__(self, segments: Segments, *, most_waiting: int = MOST_WAITING, pause: float = PAUSE) -> None:
        self._segments = segments
        self._most_waiting = most_waiting
        self._pause = pause
        self._waiting: deque[bytes] = deque()
        self._accepting = True
        # Each is counted by one thread alone: the loop's and ours.
        self._put = 0
        self._taken = 0
        self._wanted = threading.Event()
        self._closing = False
        self.records = 0
        """Put so far."""
        self.problem = ""
        """Why recording ended before its time; empty as long as it did not."""
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def put(self, record: bytes) -> None:
        """Takes a record, to be written soon."""
        if not self._accepting:
            return
        self._waiting.append(record)
        self.records += 1
        self._put += len(record)
        waiting = self._put - self._taken
        if waiting > BATCH:
            if waiting > self._most_waiting:
                self._give_up(f"{waiting >> 20} MiB wait to be written, the disk is too slow")
            elif not self._wanted.is_set():
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
        """Writes what waits, and a last record that says that this was all; takes at most so many seconds."""
        if self._accepting:
            self.put(encode(Closed()))
        self._accepting = False
        self._closing = True
        self._wanted.set()
        self._thread.join(within)
        if self._thread.is_alive():
            _log.warning("the journal %s could not be completed within %g s", self._segments.path, within)

    def _give_up(self, problem: str) -> None:
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
            self._give_up(str(error))
        finally:
            self._segments.close()
            self._waiting.clear()

    def _write_waiting(self) -> None:
        waiting = self._waiting
        while waiting:
            batch: list[bytes] = []
            size = 0
            while waiting and size < BATCH:
                record = waiting.popleft()
                batch.append(record)
                size += len(record)
            self._segments.write(frame_of(batch))
            self._taken += size
