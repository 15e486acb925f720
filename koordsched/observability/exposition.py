"""Metrics as text, written in slices so that a scrape never blocks the loop for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from koordsched.observability.groupedgauges import GroupedGauges
from koordsched.observability.instruments import HistogramFamily
from koordsched.observability.metric_registry import MetricRegistry

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

SLICE = 0.002
"""Seconds of work between two turns of the loop."""


class _Single(Collector):
    """A registry of one metric: generate_latest writes whole registries only."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        yield self._metric


def _pieces(metrics: MetricRegistry) -> Iterator[bytes]:
    for family in metrics.families():
        if isinstance(family, HistogramFamily | GroupedGauges):
            for text in family.write():
                yield text.encode()
        elif (metric := family.collect()) is not None:
            yield generate_latest(_Single(metric))
    for collector in metrics.collectors:
        yield generate_latest(collector)


async def render(metrics: MetricRegistry, monotonic: Callable[[], float], slice_seconds: float = SLICE) -> bytes:
    """The text exposition. A histogram, a group of gauges, a family of other kinds is written at one instant."""
    parts = []
    deadline = monotonic() + slice_seconds
    for piece in _pieces(metrics):
        parts.append(piece)
        if monotonic() >= deadline:
            await asyncio.sleep(0)
            deadline = monotonic() + slice_seconds
    return b"".join(parts)
