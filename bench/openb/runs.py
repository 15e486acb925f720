"""One run: a trace, a seed, and what became of the tasks."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol, TypeVar

from bench.openb.cluster import Cluster
from bench.openb.rivals import FGD, BestFit
from bench.openb.traces import GPU, Machine, TraceTask, arrivals, machines, tasks
from koordsched import config
from koordsched.plugins import CATALOG

MARKS = (50, 70, 80, 85, 90, 95, 100, 105, 110, 120, 130)
"""Per cent of all GPUs that have arrived."""

ENGINE, FITS_BEST, PUBLISHED = "GPUFragmentation", "BestFit", "FGD"
POLICIES = (ENGINE, PUBLISHED, FITS_BEST)

P = TypeVar("P")


class Job(NamedTuple):
    """`config`: a file, for the engine."""

    directory: Path
    trace: str
    seed: int
    config: Path


class Filled(NamedTuple):
    """`allocated`: per cent of all GPUs, by MARKS. `decisions` in `seconds` of CPU."""

    trace: str
    allocated: list[float]
    decisions: int
    seconds: float


class Departures(NamedTuple):
    """How much lives, and for how long the run lasts. `load`: per cent of all GPUs that tasks ask for on average;
    `turnovers`: mean lifetimes."""

    load: int
    turnovers: int


class Rejected(NamedTuple):
    """`percent`: of the GPUs asked for."""

    trace: str
    policy: str
    percent: float


class _Policy(Protocol[P]):
    """Places tasks, and has them end."""

    def place(self, task: TraceTask) -> P | None: ...

    def remove(self, task: TraceTask, place: P) -> None: ...


def fill(job: Job) -> Filled:
    """Tasks come, and stay. Raises TraceError, ConfigError."""
    every = machines(job.directory)
    gpus = sum(machine.gpus for machine in every)
    rng = Random(job.seed)
    waiting = arrivals(tasks(job.directory, job.trace), gpus, MARKS[-1], rng)
    cluster = _engine(job, every, rng)
    points = [(0.0, 0.0)]
    arrived = allocated = 0
    for task in waiting:
        arrived += task.gpu
        if cluster.place(task) is not None:
            allocated += task.gpu
        points.append((arrived / gpus / GPU * 100, allocated / gpus / GPU * 100))
    at = [min(points, key=lambda point: abs(point[0] - mark))[1] for mark in MARKS]
    return Filled(job.trace, at, cluster.decisions, cluster.cpu_seconds)


def turn_over(job: Job, policy: str, departures: Departures) -> Rejected:
    """Tasks are drawn from the trace, and live for a time of exponential distribution. Raises TraceError, ConfigError.

    A task comes in every unit of time.
    """
    every, trace = machines(job.directory), tasks(job.directory, job.trace)
    gpus = sum(machine.gpus for machine in every)
    rng = Random(job.seed)
    lifetime = gpus * GPU * departures.load / 100 / (sum(task.gpu for task in trace) / len(trace))
    drawn = rng.choices(trace, k=round(lifetime * departures.turnovers))
    arriving = [(task, rng.expovariate(1 / lifetime)) for task in drawn]
    if policy == ENGINE:
        rejected = _rejected(_engine(job, every, rng), arriving)
    elif policy == PUBLISHED:
        rejected = _rejected(FGD(every, trace), arriving)
    else:
        rejected = _rejected(BestFit(every), arriving)
    return Rejected(job.trace, policy, 100 * rejected / sum(task.gpu for task, _ in arriving))


def _rejected(policy: _Policy[P], arriving: Sequence[tuple[TraceTask, float]]) -> int:
    """Thousandths of GPUs."""
    ends: list[tuple[float, int, TraceTask, P]] = []
    rejected = 0
    for now, (task, lifetime) in enumerate(arriving):
        while ends and ends[0][0] <= now:
            _, _, gone, place = heappop(ends)
            policy.remove(gone, place)
        placed = policy.place(task)
        if placed is None:
            rejected += task.gpu
        else:
            heappush(ends, (now + lifetime, now, task, placed))
    return rejected


def _engine(job: Job, every: Sequence[Machine], rng: Random) -> Cluster:
    return Cluster(config.resolve(config.load(job.config, catalog=CATALOG), catalog=CATALOG), every, rng)
