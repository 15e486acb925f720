"""Metrics as text, written in slices so that a scrape never holds up the loop for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

SLICE = 0.002
"""Seconds of work between two turns of the loop."""

_SAMPLES_AT_ONCE = 250


class _Single(Collector):
    """A registry of one metric: generate_latest writes whole registries only."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        yield self._metric


def _pieces(metric: Metric) -> Iterator[bytes]:
    """The text of one metric, a part of its samples at a time; HELP and TYPE come with the first part only."""
    samples = metric.samples
    for start in range(0, max(len(samples), 1), _SAMPLES_AT_ONCE):
        metric.samples = samples[start : start + _SAMPLES_AT_ONCE]
        text = generate_latest(_Single(metric))
        yield text if start == 0 else text.split(b"\n", 2)[2]


async def render(registry: CollectorRegistry, monotonic: Callable[[], float], slice_seconds: float = SLICE) -> bytes:
    """The text exposition of a registry. The values of one metric are read at one instant, then written in pieces."""
    parts = []
    deadline = monotonic() + slice_seconds
    for metric in registry.collect():
        for piece in _pieces(metric):
            parts.append(piece)
            if monotonic() >= deadline:
                await asyncio.sleep(0)
                deadline = monotonic() + slice_seconds
    return b"".join(parts)
