"""Allocations: decided in Reserve, given back by preemption, written before the binding, read again at any start."""

import asyncio
import json
from itertools import permutations

import pytest

from koordsched.client.transport import Response
from tests.embedded import Embedded, scheduler_on
from tests.engine.gpushare import ALLOCATED, GpuShare
from tests.engine.objects import gpu_node, gpu_pod, offline, used
from tests.virtualtime import run

SOME = (
    gpu_node("n", gpus=4),
    gpu_pod("whole", on="n", allocated=((0, 100), (1, 100))),
    gpu_pod("half", on="n", allocated=((2, 50),)),
    gpu_pod("third", on="n", allocated=((2, 30),)),
)


@pytest.mark.parametrize(
    "order", list(permutations(SOME)), ids=lambda order: "-".join(o["metadata"]["name"] for o in order)
)
def test_allocations_are_read_in_any_order(order):
    assert used(offline(*order)) == {"n": [100, 100, 80, 0]}


def test_a_node_that_comes_again_finds_its_allocations():
    scheduler = offline(*SOME)
    scheduler.cluster.remove_node("n")
    assert used(scheduler) == {}
    scheduler.add(SOME[0])
    assert used(scheduler) == {"n": [100, 100, 80, 0]}


def test_an_allocation_that_changes_is_counted_anew():
    scheduler = offline(*SOME)
    moved = gpu_pod("half", on="n", allocated=((3, 50),))
    moved["metadata"]["resourceVersion"] = "2"
    scheduler.add(moved)
    assert used(scheduler) == {"n": [100, 100, 30, 50]}
    scheduler.cluster.remove_pod("uid-default-half")
    assert used(scheduler) == {"n": [100, 100, 30, 0]}


@pytest.mark.parametrize("text", ["{", "[[0]]", "[[9, 100]]", "[[0, -1]]", "7", '"x"', "[" * 10_000])
def test_a_malformed_allocation_harms_its_pod_alone(text):
    bad = gpu_pod("bad", on="n")
    bad["metadata"]["annotations"][ALLOCATED] = text
    scheduler = offline(gpu_node("n", gpus=1), bad, gpu_pod("p", 100))
    assert used(scheduler) == {"n": [0]}
    assert scheduler.schedule("default/p").node == "n"


@pytest.mark.parametrize("request_", ["", "x", "-100", "0", "801", "1" * 5000])
def test_a_malformed_request_is_refused_with_a_reason(request_):
    scheduler = offline(gpu_node("n"), gpu_pod("p", request_ or None), gpu_pod("good", 100))
    outcome = scheduler.schedule("default/p")
    if request_:
        assert "annotation example.com/gpu-core must be a number of hundredths" in outcome.message
    assert scheduler.schedule("default/good").node == "n"


def test_pods_of_one_spec_with_different_annotations_have_verdicts_of_their_own():
    scheduler = offline(
        gpu_node("n", gpus=2),
        gpu_pod("first", on="n", allocated=((0, 50),)),
        gpu_pod("packed", 30),
        gpu_pod("spread", 30, hint="spread"),
        gpu_pod("none"),
    )
    for name in ("packed", "spread", "none"):
        assert scheduler.schedule(f"default/{name}").node == "n"
    assert used(scheduler) == {"n": [80, 30]}


def test_a_confirmed_allocation_is_not_taken_back_by_a_binding_that_failed():
    scheduler = offline(gpu_node("n", gpus=2), gpu_pod("p", 100))
    assumed = scheduler.pending["default/p"]
    assert scheduler.schedule("default/p").node == "n"
    scheduler.add(gpu_pod("p", 100, on="n", allocated=((0, 100),)))  # the binding got through
    profile = scheduler.profiles["default-scheduler"]
    profile.run_unreserve(None, assumed, 0)
    assert not scheduler.cluster.forget(assumed)
    assert used(scheduler) == {"n": [100, 0]}
    scheduler.cluster.remove_pod("uid-default-p")
    assert used(scheduler) == {"n": [0, 0]}


def test_partitions():
    scheduler = offline(gpu_node("n", gpus=4), gpu_pod("one", on="n", allocated=((1, 100),)), gpu_pod("two", 200))
    assert scheduler.schedule("default/two").node == "n"
    assert used(scheduler) == {"n": [0, 100, 100, 100]}


def test_victims_give_their_minors_back():
    low = [
        gpu_pod("a", on="n", allocated=((0, 100),), priority=1),
        gpu_pod("b", on="n", allocated=((1, 100),), priority=2),
        gpu_pod("c", on="n", allocated=((2, 100),), priority=3),
        gpu_pod("d", on="n", allocated=((3, 100),), priority=4),
    ]
    scheduler = offline(gpu_node("n", gpus=4), *low, gpu_pod("p", 200, priority=10))
    before = used(scheduler)
    found = scheduler.explain("default/p")
    assert found.nominated_node == "n"
    assert sorted(found.victims) == ["default/a", "default/b"]  # a partition of neighbours, the least important
    assert used(scheduler) == before


def test_the_daemon_writes_what_the_next_one_reads():
    async def main():
        embedded = Embedded()
        for name, gpus in (("alder", 2), ("birch", 1)):
            embedded.insert(gpu_node(name, gpus=gpus))
        names = [f"p{i}" for i in range(7)]
        async with scheduler_on(embedded, plugins=[GpuShare]) as running:
            for name in names:
                embedded.insert(gpu_pod(name, 50))
            await asyncio.sleep(5)
            first = used(running.scheduler)
        pods = [embedded.get("Pod", name) for name in names]
        bound = [each for each in pods if on(each)]
        (waiting,) = (each for each in pods if not on(each))
        assert first == {"alder": [100, 100], "birch": [100]}
        assert "Insufficient example.com/gpu-core" in waiting["status"]["conditions"][0]["message"]
        assert all(json.loads(each["metadata"]["annotations"][ALLOCATED])[0][1] == 50 for each in bound)
        async with scheduler_on(embedded, plugins=[GpuShare], seed=2) as running:
            assert used(running.scheduler) == first
            embedded.registry.delete(embedded.resource("Pod"), "default", name_of(bound[0]), grace_period_seconds=0)
            await asyncio.sleep(5)
            assert used(running.scheduler) == first  # the waiting pod took the half that became free
            assert on(embedded.get("Pod", name_of(waiting)))

    run(main())


def test_a_binding_that_fails_gives_the_allocation_back():
    async def main():
        embedded = Embedded()
        embedded.insert(gpu_node("n", gpus=1))
        refused = 0

        async def fault(call, proceed):
            nonlocal refused
            if call.path.endswith("/binding") and not refused:
                refused += 1
                return Response(403, {}, b'{"kind":"Status","code":403,"reason":"Forbidden","message":"not now"}')
            return await proceed()

        async with scheduler_on(embedded, plugins=[GpuShare], fault=fault) as running:
            embedded.insert(gpu_pod("p", 100))
            await asyncio.sleep(0.5)
            assert refused == 1
            assert used(running.scheduler) == {"n": [0]}
            await asyncio.sleep(30)
            assert used(running.scheduler) == {"n": [100]}
        assert on(embedded.get("Pod", "p"))

    run(main())


def on(thing):
    return thing["spec"].get("nodeName")


def name_of(thing):
    return thing["metadata"]["name"]
