"""What allocations cost at 5,000 nodes: preemption asks all of them at once, a gang is planned whole."""

import gc
import time
from random import Random
from statistics import median

import pytest

from koordsched.engine.transaction import Transaction
from koordsched.framework.interface import CycleState
from koordsched.framework.status import PASS
from tests.engine.objects import gpu_node, gpu_pod, offline, used
from tests.engine.plans import Plan

NODES, MEMBERS = 5000, 1000


@pytest.mark.slow
def test_a_preemption():
    running = [
        gpu_pod(f"n{i}-{k}", 200, on=f"n{i}", allocated=((2 * k, 100), (2 * k + 1, 100)), priority=k)
        for i in range(NODES)
        for k in range(4)
    ]
    waiting = [gpu_pod(f"p{i}", 400, priority=100) for i in range(12)]
    scheduler = offline(*(gpu_node(f"n{i}") for i in range(NODES)), *running, *waiting)
    profile = scheduler.profiles["default-scheduler"]
    before = used(scheduler)
    times = []
    for i in range(12):
        cycle = CycleState(scheduler.pending[f"default/p{i}"])
        verdicts = profile.filtering.filter(cycle)
        assert not (verdicts.codes == PASS).any()
        began = time.thread_time()
        outcome = profile.run_post_filter(cycle, verdicts.codes)
        times.append(time.thread_time() - began)
        assert len(outcome.victims) == 2
    assert used(scheduler) == before
    print(f"first {times[0] * 1e3:.1f} ms, asked again {median(times[1:]) * 1e3:.2f} ms")
    assert times[0] < 0.02
    assert median(times[1:]) < 0.006


@pytest.mark.slow
def test_a_gang_of_a_thousand():
    """A member with an allocation, planned and taken back, costs little more than a plain pod does."""
    nodes = [gpu_node(f"n{i}") for i in range(NODES)]
    members = [gpu_pod(f"m{i}", 100) for i in range(MEMBERS)]
    plain = [gpu_pod(f"p{i}") for i in range(MEMBERS)]
    scheduler = offline(*nodes, *members, *plain)
    profile, pods = scheduler.profiles["default-scheduler"], [*scheduler.pending.values()]
    spent = {"plain": [], "gang": [], "taken back": []}
    for attempt in range(5):
        for name, some in (("plain", pods[MEMBERS:]), ("gang", pods[:MEMBERS])):
            gc.collect()
            gc.disable()
            began = time.thread_time()
            with Transaction(scheduler.cluster, scheduler.nominator) as transaction:
                plan = Plan(scheduler.cluster, transaction, Random(attempt))
                assert all(plan.place_all(profile, some))
                planned = time.thread_time()
            spent[name].append(planned - began)
            if name == "gang":
                spent["taken back"].append(time.thread_time() - planned)
            gc.enable()
    medians = {name: median(times) * 1e3 for name, times in spent.items()}
    print(", ".join(f"{name} {value:.1f} ms" for name, value in medians.items()))
    assert medians["gang"] < 2 * medians["plain"]
    assert medians["taken back"] < medians["plain"]
