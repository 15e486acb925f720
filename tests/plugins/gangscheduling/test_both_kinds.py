"""Pods that are in a gang of Koordinator, too: both have to be satisfied."""

import asyncio

from tests.plugins.coscheduling.running import GANG, configuration
from tests.plugins.gangscheduling.running import PodGroupCluster, scheduling
from tests.virtualtime import run


def on_cluster(scenario, cpu="8"):
    async def main():
        cluster = PodGroupCluster(cpu=cpu)
        async with scheduling(cluster, configuration()) as running:
            await scenario(cluster, running)

    run(main(), limit=10_000.0)


def annotated(minimum, gang="k"):
    return {f"{GANG}name": gang, f"{GANG}min-available": str(minimum)}


def test_a_gang_that_needs_more_pods_than_the_group():
    async def scenario(cluster, running):
        cluster.group(2)
        cluster.members(2, annotations=annotated(3))
        await asyncio.sleep(10)
        assert cluster.placed() == {}
        cluster.member("m-3", annotations=annotated(3))
        await asyncio.sleep(10)
        assert set(cluster.placed()) == {"m-1", "m-2", "m-3"}
        assert cluster.condition() == ("True", "Scheduled", "")

    on_cluster(scenario)


def test_a_group_that_needs_more_pods_than_the_gang():
    async def scenario(cluster, running):
        cluster.group(3)
        cluster.members(2, annotations=annotated(2))
        await asyncio.sleep(10)
        assert cluster.placed() == {}
        cluster.member("m-3", annotations=annotated(2))
        await asyncio.sleep(10)
        assert set(cluster.placed()) == {"m-1", "m-2", "m-3"}

    on_cluster(scenario)


def test_without_room_for_the_larger_of_both_none_is_placed():
    async def scenario(cluster, running):
        cluster.group(2)
        cluster.members(3, cpu="4", annotations=annotated(3))
        await asyncio.sleep(30)
        assert cluster.placed() == {}
        assert cluster.condition() == ("False", "Unschedulable", "pod group is unschedulable")
        cluster.node("n2")
        await asyncio.sleep(30)
        assert len(cluster.placed()) == 3

    on_cluster(scenario)


def test_a_gang_of_which_only_some_are_in_a_group():
    async def scenario(cluster, running):
        cluster.group(2)
        cluster.members(2, annotations=annotated(3))
        cluster.member("alone", group="", annotations=annotated(3))
        await asyncio.sleep(30)
        placed = set(cluster.placed())
        assert placed in (set(), {"m-1", "m-2", "alone"})
        if not placed:
            assert cluster.says("m-1")[0] == "Unschedulable"
        cluster.member("other", group="")
        await asyncio.sleep(5)
        assert "other" in cluster.placed()

    on_cluster(scenario)


def test_gangs_and_groups_side_by_side():
    async def scenario(cluster, running):
        cluster.group(2)
        cluster.members(2)
        for number in range(3):
            cluster.member(f"k-{number}", group="", annotations=annotated(3))
        await asyncio.sleep(10)
        assert set(cluster.placed()) == {"m-1", "m-2", "k-0", "k-1", "k-2"}

    on_cluster(scenario)
