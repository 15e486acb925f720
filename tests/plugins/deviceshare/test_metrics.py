"""How many devices there are, and which were given too often: the metrics of DeviceShare."""

import asyncio

import pytest

from koordsched.cli.pluginmetrics import observe_plugins
from koordsched.plugins.deviceshare.metrics import devices, overcommitted
from koordsched.plugins.deviceshare.reports.report import overview
from koordsched.plugins.shared.devices.resources import TYPES
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.parity.koord import custom_resources
from tests.plugins.deviceshare.machines import GIB, bound, device, fpga, gpu, m2, nic, node, pod, used, used_nic
from tests.plugins.deviceshare.naive.books import NODE
from tests.plugins.deviceshare.randomstates import random_state
from tests.plugins.deviceshare.world import World
from tests.plugins.loadaware.running import remove
from tests.plugins.nodenumaresource.running import put, replace
from tests.virtualtime import run

ENABLED = {"filter": {"enabled": [{"name": "DeviceShare"}]}}
CONFIG = {**DEFAULT_CONFIG, "profiles": [{"schedulerName": "default-scheduler", "plugins": ENABLED}]}
WELL_PLANNED = f"{NODE}secondary-device-well-planned"


def exposed(metrics, name):
    """Values of label tuples, those of 0 left out."""
    return {
        tuple(sample.labels.values()): sample.value
        for metric in metrics.collect()
        for sample in metric.samples
        if sample.name == name and sample.value
    }


def test_devices_of_a_running_scheduler():
    async def main():
        embedded = Embedded()
        for thing in (*custom_resources(), node()):
            embedded.insert(thing)
        async with scheduler_on(embedded, CONFIG) as running:
            metrics = running.scheduler.metrics
            observe_plugins(metrics, running.scheduler.profiles)

            async def settled():
                await asyncio.sleep(2)
                found = {tuple(sorted(key)): value for key, value in exposed(metrics, "koordsched_devices").items()}
                over = exposed(metrics, "koordsched_overcommitted_devices")
                return found, over, exposed(metrics, "scheduler_secondary_device_not_well_planned")

            assert await settled() == ({}, {}, {})
            entries = [gpu(0, "8Gi"), gpu(1, "8Gi"), gpu(2, health=False), nic(1), fpga(0)]
            report = device(*entries, labels={WELL_PLANNED: "false"})
            embedded.insert(report)
            embedded.insert(device(gpu(0), name="nowhere"))
            alone = {("fpga", "free"): 1, ("free", "gpu"): 2, ("gpu", "unhealthy"): 1, ("free", "rdma"): 1}
            assert await settled() == (alone, {}, {("n",): 1})
            put(embedded, used(0, memory="8Gi"))
            put(embedded, used_nic(1, 5))
            some = {**alone, ("free", "gpu"): 1, ("allocated", "gpu"): 1, ("partly_allocated", "rdma"): 1}
            del some["free", "rdma"]
            assert await settled() == (some, {}, {("n",): 1})
            replace(embedded, device(gpu(0, "8Gi", health=False), *entries[1:], labels={WELL_PLANNED: "true"}))
            sick = {**some, ("gpu", "unhealthy"): 2}
            del sick["allocated", "gpu"]
            assert await settled() == (sick, {("gpu",): 1}, {})
            remove(embedded, report)
            found, over, _ = await settled()
            assert found == {("gpu", "unhealthy"): 3, ("rdma", "unhealthy"): 1, ("fpga", "unhealthy"): 1}
            assert over == {("gpu",): 1, ("rdma",): 1}

    run(main())


def test_without_the_plugin_there_are_none():
    async def main():
        async with scheduler_on(Embedded()) as running:
            metrics = running.scheduler.metrics
            observe_plugins(metrics, running.scheduler.profiles)
            assert exposed(metrics, "koordsched_devices") == {}

    run(main())


def test_rounded_shares_are_not_given_twice():
    thirds = [bound(pod(), f"third-{n}", gpu=[(0, {"memory": 8 * GIB // 3 + 1024, "ratio": 33})]) for n in range(3)]
    world = World(*m2(), *thirds)
    assert overcommitted(world.plugin.columns, "gpu") == 0
    world.put(used(0, share=10, memory="8Gi"))
    assert overcommitted(world.plugin.columns, "gpu") == 1


def test_memory_of_which_pods_have_more_than_there_is():
    """Though of the shares there is enough."""
    halves = [bound(pod(), f"half-{n}", gpu=[(0, {"memory": 5 * GIB, "ratio": 50})]) for n in range(2)]
    assert overcommitted(World(*m2(), *halves).plugin.columns, "gpu") == 1


def test_a_device_that_has_nothing_is_of_no_use():
    counts = devices(World(node(), device(gpu(0, **{"koordinator.sh/gpu-core": "0"}))).plugin.columns)
    assert {state: count for (kind, state), count in counts.items() if kind == "gpu" and count} == {"unhealthy": 1}


def test_what_a_device_does_not_list_is_not_given_twice():
    world = World(node(), device(gpu(0, **{"koordinator.sh/gpu-core": "100"})), used(0, share=50))
    assert overcommitted(world.plugin.columns, "gpu") == 0
    assert devices(world.plugin.columns)["gpu", "partly_allocated"] == 1


@pytest.mark.parametrize("seed", range(20))
def test_devices_as_counted_one_by_one(seed):
    state = random_state(seed)
    world = World(*state.objects, args=state.args)
    found = dict.fromkeys(devices(world.plugin.columns), 0)
    for book in world.books().values():
        for place, kind in (
            (place, kind) for kind, of in zip(TYPES, book["equipment"].devices, strict=True) for place in of
        ):
            has, holds = place.amounts, book["used"].get((kind, place.minor), ())
            touched = [(there, taken) for there, taken in zip(has, holds, strict=False) if there > 0 and taken]
            said = "unhealthy"
            if any(there > 0 for there in has):
                full = touched and all(taken >= there for there, taken in touched)
                said = "free" if not any(holds) else "allocated" if full else "partly_allocated"
            found[kind, said] += 1
    assert devices(world.plugin.columns) == found
    assert sum(found.values()) > 0
    free = {
        kind: sum(of.free for line in overview(world.plugin).nodes for of in line.types if of.type == kind)
        for kind in TYPES
    }
    assert free == {kind: found[kind, "free"] for kind in TYPES}
