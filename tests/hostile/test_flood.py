"""A flood of pods that fit nowhere, from one namespace: what it costs the pods of all others.

Cost is what the loop does until a pod is bound: on virtual time in steps, and where a test is slow, in CPU time.
"""

import asyncio
import gc
import time
from contextlib import contextmanager
from statistics import quantiles

import pytest

from koordsched.cli.daemon import GC_THRESHOLDS
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.steps import counted
from tests.virtualtime import run

OTHERS = 150
"""Pods of the other tenant per measurement of time; of steps, which are the same in each run, a fifth."""

NODES = 100

NETWORK = 0.002
"""Seconds that the watch event and the binding of a pod take on their way to and from an API server, at least."""


class CpuTime:
    """`count`: seconds of it."""

    count = 0.0


@contextmanager
def timed():
    used, began = CpuTime(), time.process_time()
    yield used
    used.count = time.process_time() - began


class Others:
    """Pods of the other tenant, one after the other; and what goes on in the cluster meanwhile."""

    def __init__(self, embedded, movement, meter):
        self.embedded = embedded
        self.movement = movement
        self.meter = meter

    async def costs(self, label):
        """From creation to binding."""
        embedded, found = self.embedded, []
        for i in range(OTHERS // 5 if self.meter is counted else OTHERS):
            name = f"{label}-{i}"
            bound = asyncio.Event()

            def changed(kind, old, new, name=name, bound=bound):
                if new["metadata"]["name"] == name and new["spec"].get("nodeName"):
                    bound.set()

            unsubscribe = embedded.registry.subscribe(embedded.resource("Pod"), changed, replay=False)
            with self.meter() as used:
                embedded.insert(pod(name, container(cpu="100m"), namespace="tenant"))
                await bound.wait()
            found.append(used.count)
            unsubscribe()
            if i % 10 == 9:
                self.movement(embedded, name, i)
            await asyncio.sleep(0.002)
        return found

    async def p99(self, label):
        """The better of two measurements: caches shared with others can only add."""
        measured = [await self.costs(f"{label}-{attempt}") for attempt in range(2)]
        return min(quantiles(values, n=100)[98] for values in measured)


def nothing(embedded, name, i):
    """The cluster is at rest."""


def pods_end(embedded, name, i):
    """A pod of the others ends: there is room for something, though not for the flood."""
    embedded.registry.delete(embedded.resource("Pod"), "tenant", name, grace_period_seconds=0)


def nodes_change(embedded, name, i):
    """A node takes more pods than before, which might be what the flood waits for."""
    status = embedded.get("Node", f"n{i % NODES}")["status"]
    status = {**status, "allocatable": {**status["allocatable"], "pods": str(1000 + i)}}
    embedded.registry.replace_status(embedded.resource("Node"), None, f"n{i % NODES}", status)


def equal(i):
    """Nodes are large enough for it, but none has so much to spare."""
    return pod(f"flood-{i}", container(cpu="31"), namespace="flooding")


def distinct(i):
    return pod(f"flood-{i}", container(cpu="31", memory=f"{i + 1}Ki"), namespace="flooding")


def cluster():
    embedded = Embedded()
    for name in ("tenant", "flooding", "resident"):
        embedded.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for i in range(NODES):
        embedded.insert(node(f"n{i}", cpu="32", memory="128Gi"))
        embedded.insert(pod(f"p{i}", container(cpu="2"), namespace="resident", on=f"n{i}"))
    return embedded


@pytest.fixture(autouse=True)
def collected_as_in_the_daemon():
    """The collector as `koordsched run` sets it: its pauses are not what is measured here."""
    before = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def settle_memory():
    gc.collect()
    gc.freeze()


async def pour(embedded, running, flood, make):
    """The flood arrives, and has been tried."""
    for start in range(0, flood, 500):
        for i in range(start, min(start + 500, flood)):
            embedded.insert(make(i))
        await asyncio.sleep(0)
    queue = running.scheduler.queue
    for _ in range(12_000):
        if queue.pending()["unschedulable"] >= flood and await running.lanes.drain(1):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(queue.pending())


async def measure(flood, movement, make, meter, **options):
    """p99 before the flood, and with it waiting."""
    embedded = cluster()
    others = Others(embedded, movement, meter)
    async with scheduler_on(embedded, **options) as running:
        await others.costs("warm-up")
        before = await others.p99("before")
        await pour(embedded, running, flood, make)
        settle_memory()
        after = await others.p99("after")
        pending = running.scheduler.queue.pending()
        assert pending["unschedulable"] + pending["backoff"] + pending["active"] >= flood
    return before, after


FEW = 750
"""Steps: about a fifth of what a pod takes. The cheaper pods become, the more a constant part of it counts."""


def check_steps(movement, make, **options):
    before, after = run(measure(500, movement, make, counted, **options))
    assert after <= max(1.2 * before, before + FEW)


def check_seconds(flood, movement, make, **options):
    before, after = asyncio.run(measure(flood, movement, make, timed, **options))
    print(f"p99 {before * 1000:.2f} ms before, {after * 1000:.2f} ms with {flood} waiting")
    assert after + NETWORK <= 3 * (before + NETWORK)


async def bound_after(made, flood, meter):
    """The cost of binding pods that a big node has room for: there before it (`flood`), or created after it."""
    embedded = Embedded()
    embedded.insert(node("small", cpu="1", memory="1Gi"))
    big = node("big", cpu="1000000", memory="1000Ti")
    big["status"]["allocatable"]["pods"] = "100000"
    left = made
    done = asyncio.Event()

    def changed(kind, old, new):
        nonlocal left
        if new["spec"].get("nodeName") and not (old and old["spec"].get("nodeName")):
            left -= 1
            if not left:
                done.set()

    embedded.registry.subscribe(embedded.resource("Pod"), changed, replay=False)
    async with scheduler_on(embedded) as running:
        if flood:
            await pour(embedded, running, made, equal)
        with meter() as used:
            embedded.insert(big)
            if not flood:
                for i in range(made):
                    embedded.insert(equal(i))
            await asyncio.wait_for(done.wait(), 600)
        assert running.scheduler.queue.pending()["unschedulable"] == 0
        return used.count


def test_waiting_pods_that_fit_at_last_take_no_more_steps_than_new_ones():
    fresh, waiting = (run(bound_after(100, flood, counted)) for flood in (False, True))
    assert waiting <= 1.5 * fresh


@pytest.mark.slow
def test_waiting_pods_that_fit_at_last_are_bound_as_fast_as_new_ones():
    fresh, waiting = (asyncio.run(bound_after(3000, flood, timed)) for flood in (False, True))
    print(f"3000 pods: {fresh:.2f} s as new ones, {waiting:.2f} s from waiting")
    assert waiting <= 1.5 * fresh


MOVEMENTS = pytest.mark.parametrize("movement", [nothing, pods_end, nodes_change])
SIZES = pytest.mark.parametrize("flood", [3000, 50_000])


@MOVEMENTS
def test_equal_pods_that_fit_nowhere_add_few_steps_for_the_others(movement):
    check_steps(movement, equal)


def test_nor_do_distinct_ones_when_namespaces_take_turns():
    check_steps(pods_end, distinct, fair_namespaces=True)


@pytest.mark.slow
@SIZES
@MOVEMENTS
def test_equal_pods_that_fit_nowhere_do_not_hold_up_the_others(movement, flood):
    check_seconds(flood, movement, equal)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flood", "movement"),
    [(3000, pods_end), (50_000, pods_end), (3000, nodes_change)],
    ids=["3000, pods end", "50000, pods end", "3000, nodes change"],
)
def test_distinct_ones_do_not_hold_up_the_others_when_namespaces_take_turns(flood, movement):
    check_seconds(flood, movement, distinct, fair_namespaces=True)
