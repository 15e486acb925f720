"""Cost per pod in CPU time: repeats, medians, and the spread that tells how far to trust them."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import msgspec

from bench.engine.state import Engine
from bench.workloads import Catalog, Workload

REPEATS = 5
"""Batches of pods that are timed one by one; the median of them is reported."""


class Cost(msgspec.Struct):
    """Microseconds per pod: the first pod alone (nothing is cached yet), then the median, best and worst batch.

    `placed` of `pods` found a node.
    """

    workload: str
    nodes: int
    pods: int
    placed: int
    first: float
    median: float
    best: float
    worst: float


class Preemptions(msgspec.Struct):
    """Decisions of preemption on a full cluster."""

    nodes: int
    decisions: int
    victims: int
    per_second: float


def cost_of(catalog: Catalog, name: str, nodes: int = 0, pods: int = 500, existing: int = 0) -> Cost:
    """The cost per pod of a workload on so many nodes (0: as the workload says), in batches of `pods` / REPEATS.

    `existing`: how many pods are on the nodes at least.
    """
    workload = catalog.workload(name)
    warm_up = workload.warm_up
    workload = workload.scaled(nodes=nodes, pods=pods + warm_up).filled(existing)
    engine = Engine(catalog, workload)
    waiting = list(engine.pods(workload.measure))
    with no_garbage_collection():
        started = time.process_time()
        placed = int(engine.place(waiting[0]))
        first = time.process_time() - started
        for pod in waiting[1:warm_up]:
            placed += engine.place(pod)
        batches = []
        size = pods // REPEATS
        for batch in range(REPEATS):
            chosen = waiting[warm_up + batch * size : warm_up + (batch + 1) * size]
            started = time.process_time()
            for pod in chosen:
                placed += engine.place(pod)
            batches.append((time.process_time() - started) / size)
    return Cost(
        workload=name,
        nodes=workload.node_count,
        pods=warm_up + size * REPEATS,
        placed=placed,
        first=first * 1e6,
        median=median(batches) * 1e6,
        best=min(batches) * 1e6,
        worst=max(batches) * 1e6,
    )


def preemptions(catalog: Catalog, name: str = "PreemptionBasic", decisions: int = 1000) -> Preemptions:
    """How fast preemption is decided, each decision on what the ones before it left."""
    workload: Workload = catalog.workload(name).scaled(pods=decisions)
    engine = Engine(catalog, workload)
    waiting = list(engine.pods(workload.measure))
    victims = 0
    with no_garbage_collection():
        started = time.process_time()
        for pod in waiting:
            victims += engine.preempt(pod)
        seconds = time.process_time() - started
    return Preemptions(workload.node_count, decisions, victims, decisions / seconds)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """As good as in the daemon, where what exists after the first lists is frozen."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def sweep(catalog: Catalog, names: list[str], sizes: list[int], pods: int, existing: int = 0) -> Iterator[Cost]:
    """Every workload at every size; what is about a single node, once."""
    for name in names:
        measured = set()
        for nodes in sizes:
            count = catalog.workload(name).scaled(nodes=nodes).node_count
            if count not in measured:
                measured.add(count)
                yield cost_of(catalog, name, nodes, pods, existing)
