"""Monitoring of the event loop: its lag, pauses of the garbage collector, and a thread that detects when it hangs."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import KW_ONLY, InitVar, dataclass
from types import FrameType

from koordsched.observability.instruments import HistogramFamily

_log = logging.getLogger(__name__)


class WindowedMaximum:
    """The greatest value of the last one to two windows (seconds): so no scrape interval below a window misses it."""

    __slots__ = ("_current", "_monotonic", "_previous", "_start", "_window")

    def __init__(self, monotonic: Callable[[], float], window: float = 60.0) -> None:
        self._monotonic = monotonic
        self._window = window
        self._start = monotonic()
        self._current = self._previous = 0.0

    def add(self, value: float) -> None:
        """Takes a value in."""
        self._roll()
        self._current = max(self._current, value)

    def read(self) -> float:
        """The maximum, 0 if there was no value."""
        self._roll()
        return max(self._current, self._previous)

    def _roll(self) -> None:
        passed = self._monotonic() - self._start
        if passed < self._window:
            return
        self._previous = self._current if passed < 2 * self._window else 0.0
        self._current = 0.0
        self._start += passed // self._window * self._window

    def forget(self) -> None:
        """Begins anew."""
        self._current = self._previous = 0.0


class LoopMonitor:
    """Asks the loop to call back every `interval` seconds and measures how late it does.

    `cpu_time` counts the CPU seconds of the calling thread. `last_beat` is when the loop last called back (monotonic
    seconds); the watchdog thread reads it. `longest_wall`, `longest_cpu`: the longest time between two calls since the
    process had `settled`, in seconds of either clock: nothing can have blocked the loop for longer, only up to an
    interval less. Where a busy machine keeps the whole process waiting, only the first of the two is long.
    """

    def __init__(self, monotonic: Callable[[], float], cpu_time: Callable[[], float], interval: float = 0.02) -> None:
        self._monotonic = monotonic
        self._cpu_time = cpu_time
        self._interval = interval
        self._maximum = WindowedMaximum(monotonic)
        self._cpu_at_beat = 0.0
        self.last_beat = monotonic()
        self.thread_id = 0
        self.longest_wall = self.longest_cpu = 0.0

    def lag(self) -> float:
        """The longest that a callback was late in the last minute or two, seconds."""
        return self._maximum.read()

    async def run(self) -> None:
        """Measures until cancelled."""
        self.thread_id = threading.get_ident()
        self._begin()
        while True:
            await asyncio.sleep(self._interval)
            now, cpu = self._monotonic(), self._cpu_time()
            passed = now - self.last_beat
            self._maximum.add(max(passed - self._interval, 0.0))
            self.longest_wall = max(self.longest_wall, passed)
            self.longest_cpu = max(self.longest_cpu, cpu - self._cpu_at_beat)
            self.last_beat, self._cpu_at_beat = now, cpu

    def settled(self) -> None:
        """The start is over: the longest times are measured from here on. To be called in the loop's thread."""
        self.longest_wall = self.longest_cpu = 0.0
        self._begin()

    def _begin(self) -> None:
        self.last_beat, self._cpu_at_beat = self._monotonic(), self._cpu_time()


class GcMonitor:
    """Measures garbage collections through `gc.callbacks`, by generation; `pauses` is labelled by generation."""

    def __init__(
        self, perf_counter: Callable[[], float], monotonic: Callable[[], float], pauses: HistogramFamily
    ) -> None:
        self._perf_counter = perf_counter
        self._maximum = WindowedMaximum(monotonic)
        self._histograms = [pauses.labels(str(generation)) for generation in range(3)]
        self._started = 0.0

    def longest(self) -> float:
        """The longest pause of the last minute or two, seconds."""
        return self._maximum.read()

    def settled(self) -> None:
        """The start is over: its long pauses are forgotten."""
        self._maximum.forget()

    def start(self) -> None:
        """Begins to measure."""
        gc.callbacks.append(self._callback)

    def stop(self) -> None:
        """Ends it."""
        gc.callbacks.remove(self._callback)

    def _callback(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._started = self._perf_counter()
            return
        pause = self._perf_counter() - self._started
        self._histograms[info["generation"]].observe(pause)
        self._maximum.add(pause)


@dataclass(eq=False, repr=False)
class Watchdog:
    """Detects from another thread that the loop is blocked, and logs where.

    A stall is reported after `threshold` seconds, and again each time it has become twice as long. `limit`: after this
    many seconds `on_limit` is called once, in the watchdog's thread; a leader that cannot renew its lease ends itself
    there. A loop stuck in foreign code that holds the interpreter lock stops this thread too.
    """

    monitor: LoopMonitor
    monotonic: Callable[[], float]
    _: KW_ONLY
    threshold: float = 1.0
    limit: Callable[[], float | None] = lambda: None
    on_limit: Callable[[], None] = lambda: None
    report: InitVar[Callable[[float, str], None] | None] = None

    def __post_init__(self, report: Callable[[float, str], None] | None) -> None:
        self._report = report or _report
        self._next_report = self.threshold
        self._limit_reached = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.stalls = 0

    def start(self) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def check(self) -> None:
        """Checks once."""
        stalled = self.monotonic() - self.monitor.last_beat
        if stalled < self.threshold:
            self._next_report = self.threshold
            self._limit_reached = False
            return
        if stalled >= self._next_report:
            if self._next_report == self.threshold:
                self.stalls += 1
            self._next_report = max(self._next_report, stalled) * 2
            self._report(stalled, stack_of(self.monitor.thread_id))
        limit = self.limit()
        if limit is not None and stalled >= limit and not self._limit_reached:
            self._limit_reached = True
            self.on_limit()

    def _run(self) -> None:
        while not self._stop.wait(self.threshold / 4):
            self.check()


def _report(seconds: float, stack: str) -> None:
    _log.error("The event loop has been blocked for %.1f s; stack:", seconds, extra={"trace": stack})


def stack_of(thread_id: int) -> str:
    """Where a thread is, innermost call last; a note if it is gone."""
    frame: FrameType | None = sys._current_frames().get(thread_id)
    return "".join(traceback.format_stack(frame)) if frame is not None else "(no such thread)\n"
