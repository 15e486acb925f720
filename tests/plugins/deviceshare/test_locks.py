"""Locks of nodes for vendors' device plugins: what was written counts before a watch event shows it."""

import asyncio
from types import SimpleNamespace

import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.api.meta import ObjectMeta
from koordsched.cluster.state import ClusterState
from koordsched.fakecluster.clock import rfc3339
from koordsched.framework.interface import CycleState
from koordsched.framework.status import SUCCESS, Code
from koordsched.plugins.deviceshare.adapters import LOCK_SECONDS, DevicePluginAdapters
from koordsched.plugins.deviceshare.kinds import HAMI_LOCK
from koordsched.plugins.shared.devices.allocation import Given
from koordsched.plugins.shared.devices.kinds import GPU_VENDOR, Device
from koordsched.plugins.shared.devices.resources import GPU, GPU_CORE, GPU_MEMORY
from tests.plugins.objects import container, node, pod
from tests.virtualtime import VirtualClock, run

GIVEN = (Given(GPU, 0, ((GPU_CORE, 50), (GPU_MEMORY, 1 << 30))),)
DEVICE = Device(metadata=ObjectMeta(name="n1", labels={GPU_VENDOR: "metax"}))


class World:
    """A node with GPUs, two pods that have a place there, and an API server that takes a while."""

    def __init__(self):
        self.cluster = ClusterState()
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.version = 0
        self.sent = []
        self.adapters = DevicePluginAdapters(SimpleNamespace(cluster=self.cluster, clock=self.clock, writes=self))
        self.see({})
        for name in ("one", "two"):
            self.cluster.set_pod(self.built(name))

    def built(self, name):
        return self.cluster.pods.build(convert(pod(name, container(cpu="1"), on="n1"), core.Pod))

    def stored(self, annotations):
        self.version += 1
        thing = node("n1")
        thing["metadata"] |= {"annotations": annotations, "resourceVersion": str(self.version)}
        return convert(thing, core.Node)

    def see(self, annotations):
        """A watch event."""
        self.cluster.upsert_node(self.stored(annotations))

    async def patch(self, kind, thing, changes):
        await asyncio.sleep(0.1)
        self.sent.append(thing.metadata.resource_version)
        return self.stored(changes["metadata"]["annotations"])

    async def adapt(self, name):
        cycle = CycleState(self.built(name))
        return await self.adapters.adapt(cycle, cycle.pod, GIVEN, DEVICE)


def test_a_lock_that_was_written_counts_at_once():
    async def scenario():
        world = World()
        first, second = await asyncio.gather(world.adapt("one"), world.adapt("two"))
        assert first == SUCCESS
        assert second.code is Code.ERROR
        assert "has been locked" in second.message

    run(scenario())


def test_a_node_is_locked_while_an_attempt_at_other_pods_is_under_way():
    """The table must not change meanwhile."""

    async def scenario():
        world = World()
        before = world.cluster.table.nodes[0]
        world.cluster.begin()
        assert await world.adapt("one") == SUCCESS
        assert world.cluster.table.nodes[0] is before
        assert (await world.adapt("two")).code is Code.ERROR
        world.cluster.end()

    run(scenario())


def test_a_lock_that_the_device_plugin_has_taken_away_is_over():
    async def scenario():
        world = World()
        assert await world.adapt("one") == SUCCESS
        world.see({})
        assert await world.adapt("two") == SUCCESS
        assert world.sent == ["1", "3"]

    run(scenario())


def test_the_next_write_is_made_on_what_was_written():
    async def scenario():
        world = World()
        assert await world.adapt("one") == SUCCESS
        world.cluster.remove_pod(world.built("one").uid)  # the pod of the lock is gone: it holds no longer
        assert await world.adapt("two") == SUCCESS
        assert world.sent == ["1", "2"]

    run(scenario())


def test_a_lock_of_another_client_counts():
    async def scenario():
        world = World()
        world.see({HAMI_LOCK: f"{rfc3339(world.clock.wall())},default,two"})
        assert (await world.adapt("one")).code is Code.ERROR
        await asyncio.sleep(LOCK_SECONDS + 1)
        assert await world.adapt("one") == SUCCESS

    run(scenario())


@pytest.mark.parametrize(("memory", "taken"), [((1 << 20) - 1, False), (1 << 20, True)])
def test_a_gpu_is_shared_by_whole_units_of_memory(memory, taken):
    async def scenario():
        world = World()
        cycle = CycleState(world.built("one"))
        given = (Given(GPU, 0, ((GPU_CORE, 50), (GPU_MEMORY, memory))),)
        assert (await world.adapters.adapt(cycle, cycle.pod, given, DEVICE)).ok is taken

    run(scenario())
