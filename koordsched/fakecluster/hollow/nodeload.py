"""What koordlet measures on one node: samples of the node's usage, and the status of a NodeMetric made of them.

Samples are taken at whole multiples of 15 s. Usage is a function of time, so they are worked out when a report is due.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from koordsched.fakecluster.clock import rfc3339
from koordsched.fakecluster.hollow.amounts import resource_list
from koordsched.fakecluster.hollow.collectpolicy import KEPT_SECONDS, CollectPolicy
from koordsched.fakecluster.hollow.curves import NO_USAGE, Floats, Usage

Object = dict[str, Any]

SAMPLE_SECONDS = 15.0
_PERCENTILES = (("p50", 50), ("p90", 90), ("p95", 95), ("p99", 99))
_NODE, _SYSTEM = slice(0, 2), slice(2, 4)
"""The columns of samples: CPU and memory of the node, and of what is no pod."""


class _Run(NamedTuple):
    """A time in which the containers of a pod ran without a change."""

    begin: float
    started: float
    """When the containers started: their usage is a function of their age."""
    usage: Usage


class PodLoad:
    """A pod on the node."""

    def __init__(self, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name
        self.priority = ""
        self.qos = ""
        self.gone = False
        """Measured for the last time with the next samples, and not reported."""
        self._since = math.inf
        self._run: _Run | None = None
        self._past: list[tuple[_Run, float]] = []
        """Runs that ended, and when."""

    @property
    def started(self) -> float | None:
        """When the containers started that run now."""
        return self._run.started if self._run else None

    def run(self, begin: float, started: float, usage: Usage) -> None:
        """The pod uses this from `begin` on."""
        self.stop(begin)
        self._since = min(self._since, begin)
        self._run = _Run(begin, started, usage)

    def stop(self, end: float) -> None:
        """The pod uses nothing from `end` on."""
        if self._run is not None:
            self._past.append((self._run, end))
            self._run = None

    def add_to(self, total: Floats, times: Floats, window: int) -> tuple[float, float] | None:
        """Adds the pod's usage at `times` (ascending, in steps) to the node's; returns its average over the times from
        index `window` on, from the pod's first one; None if it did not run at any of them.
        """
        cpu = memory = 0.0
        for run, end in self._runs(float(times[0])):
            low, high = _index(times, run.begin), _index(times, end)
            if low >= high:
                continue
            some = times[low:high]
            counted = max(low, window)
            for column, curve in enumerate(run.usage):
                amounts = curve.at(some, run.started)
                total[low:high, column] += amounts
                if isinstance(amounts, np.ndarray):
                    added = float(amounts[counted - low :].sum())
                else:
                    added = amounts * max(0, high - counted)
                if column:
                    memory += added
                else:
                    cpu += added
        count = len(times) - max(window, _index(times, self._since))
        return (cpu / count, memory / count) if count > 0 else None

    def _runs(self, oldest: float) -> Iterator[tuple[_Run, float]]:
        if self._past:
            self._past = [(run, end) for run, end in self._past if end > oldest]
            yield from self._past
        if self._run is not None:
            yield self._run, math.inf


class NodeLoad:
    """The node. `since` is when it was registered: traces of its own usage begin there."""

    def __init__(self, now: float, since: float) -> None:
        self.cpu_capacity = math.inf
        self.system = NO_USAGE
        self.pods: dict[str, PodLoad] = {}
        """By uid."""
        self._since = since
        self._begin = self._sampled = now
        self._times: Floats = np.empty(0)
        self._samples: Floats = np.empty((0, 4))

    def begin(self, now: float) -> None:
        """Measures from now on, after a time without."""
        self._begin = self._sampled = now

    def predate(self, seconds: float) -> None:
        """Measures as if the node had been there for this many seconds already."""
        self._since -= seconds
        self._begin -= seconds
        self._sampled = self._begin

    def status(self, now: float, policy: CollectPolicy) -> Object | None:
        """The status of the NodeMetric; None if there has been no time for a sample."""
        pods = self._measure(now, policy.window)
        if not len(self._times):
            return None
        recent = self._samples[np.searchsorted(self._times, now - policy.window, side="right") :]
        if not len(recent):
            return None
        averages = recent.mean(axis=0).tolist()
        node: Object = {
            "nodeUsage": {"resources": resource_list(*averages[_NODE])},
            "systemUsage": {"resources": resource_list(*averages[_SYSTEM])},
        }
        aggregated = [(text, self._aggregate(now, seconds)) for text, seconds in policy.durations]
        for key, columns in (("aggregatedNodeUsages", _NODE), ("aggregatedSystemUsages", _SYSTEM)):
            node[key] = [
                {"duration": text, "usage": {name: _resources(row, columns) for name, row in rows.items()}}
                for text, rows in aggregated
            ]
        return {"updateTime": rfc3339(now), "nodeMetric": node, "podsMetric": pods}

    def _measure(self, now: float, window: float) -> list[Object]:
        """Takes the samples that are due; returns the metrics of the pods, averages over the window."""
        last = math.floor(now / SAMPLE_SECONDS)
        oldest = max(self._begin, min(self._sampled, now - window), now - KEPT_SECONDS)
        times: Floats = np.arange(math.floor(oldest / SAMPLE_SECONDS) + 1, last + 1, dtype=np.float64)
        times *= SAMPLE_SECONDS
        if not len(times):
            return []
        total = np.zeros((len(times), 4))
        for column, curve in enumerate(self.system):
            total[:, 2 + column] = curve.at(times, self._since)
        total[:, _NODE] = total[:, _SYSTEM]
        first = _index(times, math.nextafter(now - window, math.inf))
        pods = []
        for pod in self.pods.values():
            usage = pod.add_to(total, times, first)
            if usage is not None and not pod.gone:
                pods.append(
                    {
                        "namespace": pod.namespace,
                        "name": pod.name,
                        "podUsage": {"resources": resource_list(*usage)},
                        "priority": pod.priority,
                        "qos": pod.qos,
                    }
                )
        self.pods = {uid: pod for uid, pod in self.pods.items() if not pod.gone}
        np.minimum(total[:, 0], self.cpu_capacity, out=total[:, 0])
        new = int(np.searchsorted(times, self._sampled, side="right"))
        kept = int(np.searchsorted(self._times, now - KEPT_SECONDS, side="right"))
        self._times = np.concatenate((self._times[kept:], times[new:]))
        self._samples = np.concatenate((self._samples[kept:], total[new:]))
        self._sampled = now
        return pods

    def _aggregate(self, now: float, duration: float) -> dict[str, list[float] | None]:
        """Average and percentiles of all columns; None where samples span less than half of the duration.

        Of n samples in order, the percentile p is number floor(n p / 100), or the first (koordlet's metric cache).
        """
        low = int(np.searchsorted(self._times, now - duration, side="right"))
        count = len(self._times) - low
        if not count or self._times[-1] - self._times[low] < duration / 2:
            return dict.fromkeys(("avg", *(name for name, _ in _PERCENTILES)))
        samples = np.sort(self._samples[low:], axis=0)
        rows: dict[str, list[float] | None] = {"avg": samples.mean(axis=0).tolist()}
        for name, percent in _PERCENTILES:
            rows[name] = samples[max(0, count * percent // 100 - 1)].tolist()
        return rows


def _resources(row: list[float] | None, columns: slice) -> Object:
    return {} if row is None else {"resources": resource_list(*row[columns])}


def _index(times: Floats, at: float) -> int:
    """The index of the first sample that is not before `at`."""
    if at == math.inf:
        return len(times)
    return min(len(times), max(0, math.ceil((at - float(times[0])) / SAMPLE_SECONDS)))
