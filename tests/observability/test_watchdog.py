"""Lag, pauses and stalls, on clocks that are set by hand."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import pytest

from koordsched.observability.instruments import HistogramFamily
from koordsched.observability.watchdog import GcMonitor, LoopMonitor, Watchdog, WindowedMaximum, stack_of
from tests.virtualtime import VirtualClock, run


class Hand:
    """A clock set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], 0.0),
        ([(0, 3.0), (10, 1.0)], 3.0),
        # Still there in the window after its own, gone in the next.
        ([(0, 3.0), (60, 1.0)], 3.0),
        ([(0, 3.0), (60, 1.0), (119, 2.0)], 3.0),
        ([(0, 3.0), (60, 1.0), (120, 0.5)], 1.0),
        ([(0, 3.0), (500, 0.0)], 0.0),
    ],
)
def test_windowed_maximum(values: list[tuple[float, float]], expected: float) -> None:
    clock = Hand()
    maximum = WindowedMaximum(clock, window=60.0)
    for at, value in values:
        clock.now = 1000.0 + at
        maximum.add(value)
    assert maximum.read() == expected


def test_lag_of_a_loop() -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        late = cpu = 0.0

        def monotonic() -> float:
            return clock.monotonic() + late

        monitor = LoopMonitor(monotonic, lambda: cpu)
        task = asyncio.create_task(monitor.run())
        await asyncio.sleep(1.05)
        assert monitor.lag() == pytest.approx(0.0, abs=1e-9)
        late += 2.5  # as if a callback had taken that long
        await asyncio.sleep(0.2)
        assert monitor.lag() == pytest.approx(2.5)
        assert monotonic() - monitor.last_beat <= 0.1
        assert (monitor.longest_wall, monitor.longest_cpu) == (pytest.approx(2.52), 0.0)
        late += 1.0
        cpu += 0.75  # as if a callback had computed for that long, and other processes besides
        await asyncio.sleep(0.2)
        assert (monitor.longest_wall, monitor.longest_cpu) == (pytest.approx(2.52), 0.75)
        late += 5.0
        cpu += 5.0
        monitor.settled()  # what the start took is no news
        await asyncio.sleep(0.2)
        assert (monitor.longest_wall, monitor.longest_cpu) == (pytest.approx(0.02), 0.0)
        assert monitor.lag() == pytest.approx(2.5)
        task.cancel()

    run(main())


def test_gc_pauses() -> None:
    clock = Hand()
    pauses = HistogramFamily("koordsched_gc_pause_seconds", "", ("generation",), bounds=(0.001, 1.0))
    ticks = iter([1.0, 1.5, 2.0, 2.25])
    monitor = GcMonitor(lambda: next(ticks), clock, pauses)
    enabled = gc.isenabled()
    gc.disable()
    monitor.start()
    try:
        gc.collect(0)
        gc.collect(2)
    finally:
        monitor.stop()
        if enabled:
            gc.enable()
    gc.collect()
    assert [pauses.labels(str(g)).sum for g in range(3)] == [0.5, 0.0, 0.25]
    assert monitor.longest() == 0.5


def test_the_watchdog_reports_a_stall_once_then_as_it_doubles() -> None:
    clock = Hand()
    monitor = LoopMonitor(clock, clock)
    monitor.thread_id = threading.get_ident()
    reports: list[tuple[float, str]] = []
    ended: list[float] = []
    watchdog = Watchdog(
        monitor,
        clock,
        threshold=1.0,
        limit=lambda: 10.0,
        on_limit=lambda: ended.append(clock.now),
        report=lambda seconds, stack: reports.append((seconds, stack)),
    )
    for _ in range(60):
        watchdog.check()
        clock.now += 0.25
    assert [seconds for seconds, _ in reports] == [1.0, 2.0, 4.0, 8.0]
    assert "test_the_watchdog_reports_a_stall_once_then_as_it_doubles" in reports[0][1]
    assert (ended, watchdog.stalls) == ([1010.0], 1)
    monitor.last_beat = clock.now
    watchdog.check()
    clock.now += 1.5
    watchdog.check()
    assert (len(reports), watchdog.stalls) == (5, 2)


def test_the_thread_sees_a_real_stall() -> None:
    reported = threading.Event()

    def report(seconds: float, stack: str) -> None:
        # A busy machine may stall the loop before.
        if "in hang" in stack:
            reported.set()

    def hang() -> None:
        assert reported.wait(30)

    async def main() -> None:
        monitor = LoopMonitor(time.monotonic, lambda: 0.0, interval=0.005)
        task = asyncio.create_task(monitor.run())
        await asyncio.sleep(0)
        watchdog = Watchdog(monitor, time.monotonic, threshold=0.05, report=report)
        watchdog.start()
        hang()
        watchdog.stop()
        task.cancel()

    asyncio.run(main())


def test_the_stack_of_a_thread_that_is_gone() -> None:
    assert stack_of(-1) == "(no such thread)\n"
