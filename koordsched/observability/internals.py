"""Metrics of the scheduler's internals, read from their owners at every scrape."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from koordsched.observability.events import EventBroadcaster
from koordsched.observability.metric_registry import MetricRegistry
from koordsched.observability.watchdog import GcMonitor, LoopMonitor, Watchdog


def observe_loop(metrics: MetricRegistry, monitor: LoopMonitor, watchdog: Watchdog | None = None) -> None:
    """Shows how late the event loop runs, the longest that it was blocked, and how often it hung."""
    metrics.read(
        "koordsched_event_loop_lag_seconds",
        "The longest delay of the event loop in the last minute or two.",
        monitor.lag,
    )
    metrics.read(
        "koordsched_event_loop_block_max_seconds",
        "The longest time between two turns of the event loop since the first lists were taken in, on the wall and in "
        "CPU time of its thread.",
        lambda: {"wall": monitor.longest_wall, "cpu": monitor.longest_cpu},
        ("clock",),
    )
    if watchdog is not None:
        metrics.read(
            "koordsched_event_loop_stalls_total",
            "Times that the watchdog found the event loop hanging.",
            lambda: watchdog.stalls,
        )


def observe_gc(metrics: MetricRegistry, monitor: GcMonitor) -> None:
    """Shows the longest pause; all of them are in the histogram that the monitor writes."""
    metrics.read(
        "koordsched_gc_pause_max_seconds",
        "The longest pause for garbage collection in the last minute or two.",
        monitor.longest,
    )


def observe_events(metrics: MetricRegistry, events: EventBroadcaster) -> None:
    """Metrics of Events: written, failed, dropped."""
    metrics.read("koordsched_events_sent_total", "Events written.", lambda: events.sent)
    metrics.read(
        "koordsched_events_coalesced_total",
        "Events that were merged into another one's count.",
        lambda: events.coalesced,
    )
    metrics.read("koordsched_events_dropped_total", "Events lost.", lambda: events.dropped, ("reason",))
    metrics.read("koordsched_events_pending", "Events that wait to be written.", lambda: events.pending)


def observe_lanes(metrics: MetricRegistry, depths: Callable[[], Mapping[str, int]]) -> None:
    """Shows the writes that wait, by lane."""
    metrics.read("koordsched_write_lane_depth", "API writes that wait or are in progress.", depths, ("lane",))


def observe_reflectors(
    metrics: MetricRegistry, restarts: Callable[[], Mapping[str, int]], watch_errors: Callable[[], Mapping[str, int]]
) -> None:
    """Shows the state of the watches, by resource."""
    metrics.read(
        "koordsched_reflector_restarts_total", "Times that a resource was listed again.", restarts, ("resource",)
    )
    metrics.read("koordsched_watch_errors_total", "Watches that ended with an error.", watch_errors, ("resource",))
