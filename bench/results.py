"""What one scheduler did with one workload, in figures."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from bench.machine import Machine

PERCENTILES = (50, 90, 99)


class Latency(msgspec.Struct):
    """Milliseconds from a pod's appearance in the watch to its binding there."""

    p50: float
    p90: float
    p99: float
    worst: float


class Result(msgspec.Struct):
    """One run. Times are as the API server's watch showed them.

    `pods_per_second`: mean from the first change of a pod (its binding, or a status that tells of an attempt or of
    victims) to the last binding; `series`: bindings in each second of that time.
    `first_binding`, `last_binding`: seconds from the start of the process, or of the arrivals if it ran already.
    `curve`: (seconds since the first binding or arrival, pods bound), for charts. `cpu_ms_per_pod`: of the scheduler
    process, from the first binding or arrival until its events were written. `events_written`: found on the server;
    `events_dropped`: as the scheduler itself counts, None if it does not say. `block_ms`, `block_cpu_ms`: the longest
    time between two turns of its event loop after the start, on the wall and in CPU time of its thread (what other
    processes took is in the first alone); `gc_pause_ms`: its longest garbage collection, all where it says so.
    `error` is empty if all pods were bound.
    """

    scheduler: str
    command: str
    workload: str
    arrival: str
    nodes: int
    pods: int
    bound: int
    pods_per_second: float
    series: list[int]
    first_binding: float
    last_binding: float
    latency: Latency | None
    cpu_ms_per_pod: float
    startup_cpu_seconds: float
    peak_rss_mib: int
    events_written: int
    events_dropped: int | None
    block_ms: float | None
    block_cpu_ms: float | None
    gc_pause_ms: float | None
    distinct_nodes: int
    curve: list[tuple[float, int]]
    error: str = ""


class Report(msgspec.Struct):
    """Everything of one invocation. `version`: the API server's; `schedulers`: name -> version, where one is told."""

    machine: Machine
    server: str
    version: str
    schedulers: dict[str, str]
    started: str
    results: list[Result]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least so many percent of the values do not exceed (nearest rank)."""
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def latency_of(seconds: list[float]) -> Latency | None:
    """The distribution of latencies; None without any."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    p50, p90, p99 = (round(percentile(ordered, p) * 1e3, 2) for p in PERCENTILES)
    return Latency(p50, p90, p99, round(ordered[-1] * 1e3, 2))


def mean_rate(moments: Sequence[float], began: float) -> float:
    """Bindings per second, from when the first work was seen (`began`) to the last of the ordered moments."""
    if len(moments) < 2 or moments[-1] <= began:
        return 0.0
    # What was done at the very beginning took no time that could be seen.
    return (len(moments) - (moments[0] <= began)) / (moments[-1] - began)


def per_second(moments: Sequence[float]) -> list[int]:
    """How many of the ordered moments fall into each second since the first."""
    if not moments:
        return []
    counts = [0] * (int(moments[-1] - moments[0]) + 1)
    for moment in moments:
        counts[int(moment - moments[0])] += 1
    return counts


def curve_of(moments: Sequence[float], origin: float, points: int = 200) -> list[tuple[float, int]]:
    """(seconds since `origin`, how many of the ordered moments so far), thinned out to about so many points."""
    step = max(1, len(moments) // points)
    chosen = [*range(0, len(moments), step)]
    if moments and chosen[-1] != len(moments) - 1:
        chosen.append(len(moments) - 1)
    return [(round(moments[i] - origin, 3), i + 1) for i in chosen]
