"""Metrics of our own machinery."""

from __future__ import annotations

import asyncio

from koordsched.observability.exposition import render
from koordsched.observability.internals import (
    observe_events,
    observe_gc,
    observe_lanes,
    observe_loop,
    observe_reflectors,
)
from koordsched.observability.metrics import Metrics
from koordsched.observability.watchdog import GcMonitor, LoopMonitor, Watchdog


class Events:
    sent = 5
    coalesced = 3
    dropped = {"full": 1, "rejected": 0}
    pending = 2


def test_all_of_them() -> None:
    metrics = Metrics(process_metrics=False)
    monitor = LoopMonitor(lambda: 0.0, lambda: 0.0)
    watchdog = Watchdog(monitor, lambda: 0.0)
    watchdog.stalls = 4
    observe_loop(metrics, monitor, watchdog)
    observe_gc(metrics, GcMonitor(lambda: 0.0, lambda: 0.0, metrics.gc_pause))
    observe_events(metrics, Events())
    observe_lanes(metrics, lambda: {"binding": 7, "event": 9})
    observe_reflectors(metrics, lambda: {"pods": 1}, lambda: {"pods": 2, "nodes": 0})
    text = asyncio.run(render(metrics, lambda: 0.0)).decode()
    ours = [line for line in text.splitlines() if line.startswith("koordsched_") and "_bucket" not in line]
    assert ours == [
        'koordsched_gc_pause_seconds_sum{generation="0"} 0.0',
        'koordsched_gc_pause_seconds_count{generation="0"} 0',
        'koordsched_gc_pause_seconds_sum{generation="1"} 0.0',
        'koordsched_gc_pause_seconds_count{generation="1"} 0',
        'koordsched_gc_pause_seconds_sum{generation="2"} 0.0',
        'koordsched_gc_pause_seconds_count{generation="2"} 0',
        "koordsched_event_loop_lag_seconds 0.0",
        'koordsched_event_loop_block_max_seconds{clock="cpu"} 0.0',
        'koordsched_event_loop_block_max_seconds{clock="wall"} 0.0',
        "koordsched_event_loop_stalls_total 4.0",
        "koordsched_gc_pause_max_seconds 0.0",
        "koordsched_events_sent_total 5.0",
        "koordsched_events_coalesced_total 3.0",
        'koordsched_events_dropped_total{reason="full"} 1.0',
        'koordsched_events_dropped_total{reason="rejected"} 0.0',
        "koordsched_events_pending 2.0",
        'koordsched_write_lane_depth{lane="binding"} 7.0',
        'koordsched_write_lane_depth{lane="event"} 9.0',
        'koordsched_reflector_restarts_total{resource="pods"} 1.0',
        'koordsched_watch_errors_total{resource="nodes"} 0.0',
        'koordsched_watch_errors_total{resource="pods"} 2.0',
    ]
