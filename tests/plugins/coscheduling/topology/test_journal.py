"""Gangs that ask to be gathered go to the same nodes in replays."""

import asyncio
from random import Random

import pytest

from tests.depth import quick_first
from tests.journal.recording import Recorded, places, replayed_from_each_segment
from tests.plugins.coscheduling.running import configuration
from tests.plugins.coscheduling.topology.objects import SPINES_AND_BLOCKS, topology
from tests.plugins.coscheduling.topology.test_running import PLACES, TopologyCluster
from tests.virtualtime import run


async def living(seed):
    """Jobs of two or three members, which go again; nodes change their block."""
    draw = Random(seed)
    cluster = TopologyCluster()
    await cluster.label_all()
    cluster.create(topology(*SPINES_AND_BLOCKS))
    gates = ("NetworkTopologyManager=true",)
    config = configuration(awareNetworkTopology=True)
    recorded = Recorded(cluster, config, seed=seed, seconds_per_segment=10, gates=gates)
    async with recorded.running():
        recorded.gangs = 0
        jobs = []
        for number in range(14):
            size = draw.choice((2, 3, 3, 4))
            jobs.append((f"g{number}", size))
            cluster.job(f"g{number}", size)
            await asyncio.sleep(draw.choice((0.5, 3)))
            recorded.gangs += all(cluster.nodes(f"g{number}", size))
            if draw.random() < 0.8:
                name, size = jobs.pop(draw.randrange(len(jobs)))
                await cluster.delete(*(f"{name}-{at}" for at in range(size)))
            if draw.random() < 0.3:
                await cluster.label(draw.choice(list(PLACES)), block=draw.choice(("b1", "b2")))
            await asyncio.sleep(draw.choice((0.5, 3)))
    return recorded


@pytest.mark.parametrize("seed", quick_first(range(1, 7), 2))
def test_a_journal_is_replayed_equal(seed):
    recorded = run(living(seed))
    assert recorded.gangs > 3
    for replayed in replayed_from_each_segment(recorded.journal):
        assert places(replayed) == places(recorded.scheduler)
