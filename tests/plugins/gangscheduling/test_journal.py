"""Pod groups are placed, and refused, the same way in replays."""

import asyncio
from random import Random

import pytest

from tests.depth import quick_first
from tests.journal.recording import Recorded, places, replayed_from_each_segment
from tests.plugins.gangscheduling.running import GATES, PodGroupCluster
from tests.virtualtime import run


async def living(seed):
    """Groups of two to four pods come and go on four nodes, some in two parts, and with pods of other priorities."""
    draw = Random(seed)
    cluster = PodGroupCluster([f"n{number}" for number in range(4)])
    recorded = Recorded(cluster, None, seed=seed, seconds_per_segment=10, gates=GATES)
    async with recorded.running():
        recorded.groups = 0
        groups = []
        for number in range(14):
            size = draw.choice((2, 3, 4))
            name = f"g{number}"
            cluster.group(draw.choice((0, size, size - 1)), name)
            members = [f"{name}-{at}" for at in range(size)]
            late = draw.random() < 0.3
            for at, member in enumerate(members):
                if late and at == size - 1:
                    await asyncio.sleep(1.5)
                cluster.member(member, name, cpu=draw.choice(("2", "3", "5")), priority=draw.choice((0, 0, 5)))
            groups.append((name, members))
            await asyncio.sleep(draw.choice((0.5, 3)))
            recorded.groups += any(member in cluster.placed() for member in members)
            if draw.random() < 0.7:
                _, members = groups.pop(draw.randrange(len(groups)))
                await cluster.delete(*(name for name in members if cluster.get("Pod", name)))
            await asyncio.sleep(draw.choice((0.5, 3)))
    return recorded


@pytest.mark.parametrize("seed", quick_first(range(1, 7), 2))
def test_a_journal_is_replayed_equal(seed):
    recorded = run(living(seed))
    assert recorded.groups > 3
    for replayed in replayed_from_each_segment(recorded.journal):
        assert places(replayed) == places(recorded.scheduler)
