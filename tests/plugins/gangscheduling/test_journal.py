"""Pod groups are placed, and refused, the same way in replays."""

import asyncio
from random import Random

import pytest

from koordsched.journal.records import Attempt, Member
from tests.depth import quick_first
from tests.journal.recording import Recorded, places, replayed_from_each_segment
from tests.plugins.gangscheduling.running import GATES, PodGroupCluster
from tests.plugins.gangscheduling.test_topology import CONSTRAINT, RACK
from tests.plugins.gangscheduling.test_topology import GATES as TOPOLOGY
from tests.virtualtime import run

WHOLE = (*GATES, "WorkloadAwarePreemption=true")


async def living(seed, gates=GATES):
    """Groups of two to four pods come and go on four nodes, some in two parts, and with pods of other priorities."""
    draw = Random(seed)
    cluster = PodGroupCluster([f"n{number}" for number in range(4)])
    recorded = Recorded(cluster, None, seed=seed, seconds_per_segment=10, gates=gates)
    async with recorded.running():
        recorded.groups = 0
        groups = []
        for number in range(14):
            size = draw.choice((2, 3, 4))
            name = f"g{number}"
            whole = {"priority": draw.choice((0, 5, 9)), "disruptionMode": draw.choice(("Pod", "PodGroup"))}
            cluster.group(draw.choice((0, size, size - 1)), name, **(whole if gates is WHOLE else {}))
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
    recorded.preempted = sum(event["reason"] == "Preempted" for event in cluster.events())
    return recorded


@pytest.mark.parametrize("seed", quick_first(range(1, 7), 2))
def test_a_journal_is_replayed_equal(seed):
    recorded = run(living(seed))
    assert recorded.groups > 3
    for replayed in replayed_from_each_segment(recorded.journal):
        assert places(replayed) == places(recorded.scheduler)


@pytest.mark.parametrize("seed", quick_first(range(1, 7), 2))
def test_room_for_whole_groups_is_made_again_in_a_replay(seed):
    recorded = run(living(seed, WHOLE))
    assert recorded.preempted > 1
    for replayed in replayed_from_each_segment(recorded.journal):
        assert places(replayed) == places(recorded.scheduler)


def test_each_member_is_named_as_often_as_it_is_tried():
    """On each of two racks, and again on the better one."""

    async def main():
        cluster = PodGroupCluster(nodes=())
        for rack in "ab":
            cluster.node(f"n{rack}", "8", {RACK: rack})
        recorded = Recorded(cluster, gates=TOPOLOGY)
        async with recorded.running():
            cluster.group(2, **CONSTRAINT)
            cluster.members(2, cpu="4")
            await asyncio.sleep(5)
            assert len(cluster.placed()) == 2
        return recorded.journal.records()

    tried = [record.uid for record in run(main()) if isinstance(record, Attempt | Member)]
    assert len(set(tried)) == 2
    assert tried == 3 * tried[:2]
