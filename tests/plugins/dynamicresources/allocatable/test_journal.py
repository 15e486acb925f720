"""What devices take of nodes counts the same in replays, from the start and from checkpoints."""

import asyncio
from random import Random

import pytest

from tests.depth import quick_first
from tests.embedded import Embedded
from tests.journal.recording import Recorded, replayed_from_each_segment
from tests.plugins.dynamicresources import test_journal
from tests.plugins.dynamicresources.allocatable.test_over_the_api import GATES, STATUS, taking, using
from tests.plugins.dynamicresources.deviceworld import claim, device_class, slice_of
from tests.plugins.dynamicresources.test_journal import unreliable
from tests.plugins.objects import container, node, pod
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import run


def state_of(scheduler):
    """As of devices, and what is requested of CPU and memory on each node."""
    table = scheduler.cluster.table
    requested = {
        name: [int(table.requested[resource].data[row]) for resource in (0, 1)] for name, row in table.row_of.items()
    }
    return test_journal.state_of(scheduler), requested


async def living(seed):
    """Pods whose devices take CPUs, and pods without claims, on nodes with room for few of them; they come and go."""
    embedded, draw = Embedded(seed), Random(seed)
    embedded.insert(device_class())
    for at in range(3):
        embedded.insert(node(f"n{at}", "6"))
        devices = [taking(f"d{number}", cpu=draw.choice(("500m", "2")), memory="1Gi") for number in range(3)]
        embedded.insert(slice_of(f"n{at}", *devices))
    Kubelet(embedded)
    recorded = Recorded(embedded, seed=seed, seconds_per_segment=4, fault=unreliable, gates=GATES)
    recorded.shown = 0
    async with recorded.running():
        for at in range(14):
            priority = draw.choice((0, 0, 10))
            if draw.random() < 0.4:
                embedded.insert(pod(f"p{at}", container(cpu=draw.choice(("1", "3"))), priority=priority))
            else:
                embedded.insert(claim(f"c{at}", count=draw.choice((1, 1, 2))))
                embedded.insert(using(f"p{at}", f"c{at}", cpu=draw.choice(("100m", "1")), priority=priority))
            await asyncio.sleep(draw.choice((0.0, 0.1, 1.0, 2.0)))
            if draw.random() < 0.3:
                name = f"p{draw.randrange(at + 1)}"
                await embedded.call("DELETE", f"/api/v1/namespaces/default/pods/{name}", {"gracePeriodSeconds": 0})
        await asyncio.sleep(20)
        for each in embedded.registry.list(embedded.resource("Pod")):
            recorded.shown += STATUS in each["status"] and "nodeName" in each["spec"]
    return recorded


@pytest.mark.parametrize("seed", quick_first(range(1, 6), 1))
def test_replays_repeat_what_devices_take(seed):
    recorded = run(living(seed))
    assert recorded.shown > 1
    assert len(recorded.journal.segments) > 2
    for scheduler in replayed_from_each_segment(recorded.journal):
        assert state_of(scheduler) == state_of(recorded.scheduler)
