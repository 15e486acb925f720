"""Devices of nodes that are not there: an Event says so, after a while, for nodes and Devices come in any order."""

import asyncio

import pytest

from tests.plugins.deviceshare.machines import device, g8, gpu, node, pod
from tests.plugins.deviceshare.world import World, configuration, profile
from tests.plugins.nodenumaresource.running import cluster, events_about, put, remove, replace, where
from tests.virtualtime import run

DOCUMENT = configuration(profile())
TOLD = "there is no node x: the devices are not used"
GPUS = device(gpu(0), gpu(1), name="x")


def told(embedded, name="x"):
    """Notes of the events about a Device."""
    return events_about(embedded, "Device", name)


def scenario(*steps):
    """Takes steps of (seconds, function of the API server); returns what was told after each."""

    async def main():
        found = []
        async with cluster(*g8(), document=DOCUMENT) as (embedded, _):
            for seconds, step in steps:
                step(embedded)
                await asyncio.sleep(seconds)
                found.append(told(embedded))
            return found

    return run(main())


def appears(embedded):
    put(embedded, GPUS)


def changes(embedded):
    replace(embedded, device(gpu(0), name="x"))


def goes(embedded):
    remove(embedded, GPUS)


def node_appears(embedded):
    put(embedded, node("x"))


def node_goes(embedded):
    remove(embedded, node("x"))


@pytest.mark.parametrize(
    "steps, expected",
    [
        ([(50, appears), (20, changes)], [[], [TOLD]]),
        ([(70, appears), (100, changes)], [[TOLD], [TOLD]]),
        ([(50, appears), (100, node_appears)], [[], []]),
        ([(50, appears), (100, goes)], [[], []]),
        ([(50, node_appears), (100, appears)], [[], []]),
        ([(50, node_appears), (100, appears), (50, node_goes), (20, changes)], [[], [], [], [TOLD]]),
        ([(50, node_appears), (100, appears), (50, node_goes), (100, goes)], [[], [], [], []]),
        ([(50, appears), (50, goes), (50, appears), (20, changes)], [[], [], [], [TOLD]]),
    ],
)
def test_an_event_after_a_minute(steps, expected):
    assert scenario(*steps) == expected


def test_lists_that_come_devices_first():
    """At a start Devices may be listed before nodes: nothing is missing."""

    async def main():
        async with cluster(*reversed(g8()), document=DOCUMENT) as (embedded, _):
            await asyncio.sleep(200)
            return told(embedded, "n"), told(embedded, "x")

    assert run(main()) == ([], [])


def test_the_devices_are_used_when_the_node_comes_at_last():
    async def main():
        wanted = {**pod(gpu=100), "spec": {**pod(gpu=100)["spec"], "schedulerName": "default-scheduler"}}
        document = configuration(profile(name="default-scheduler"))
        async with cluster(GPUS, document=document) as (embedded, _):
            put(embedded, wanted)
            await asyncio.sleep(100)
            assert where(embedded, "p") is None
            put(embedded, node("x"))
            await asyncio.sleep(20)
            return where(embedded, "p"), embedded.get("Pod", "p")["metadata"]["annotations"]

    where_it_is, annotations = run(main())
    assert where_it_is == "x"
    assert '"minor":0' in annotations["scheduling.koordinator.sh/device-allocated"]


def test_nothing_is_kept_of_what_is_gone():
    world = World()
    nodes = world.plugin.nodes
    for order in (("device", "node"), ("node", "device")):
        for name in order:
            world.put(GPUS if name == "device" else node("x"))
        world.remove(node("x"))
        world.remove(GPUS)
        assert nodes.of_node("x") is None
        world.put(GPUS)
        world.put(node("x"))
        world.remove(GPUS)
        assert nodes.of_node("x").deleted
        world.remove(node("x"))
        assert nodes.of_node("x") is None
        assert not nodes._departed
