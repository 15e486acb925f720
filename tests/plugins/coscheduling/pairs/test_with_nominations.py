"""Gangs and nominated pods: room that is promised is kept, for members and from them."""

import asyncio

import pytest

from tests.plugins.coscheduling.placing import Gangs, configuration, scheduling, settle
from tests.virtualtime import run

PREEMPTING = configuration(enablePreemption=True)


def playing(scenario, *, nodes=("n1",), cpu="8", config=PREEMPTING, settled=True):
    async def work():
        cluster = Gangs(nodes, cpu)
        async with scheduling(cluster, config) as running:
            await scenario(cluster, running)
            if settled:
                await settle(running)

    run(work())


def leaving(cluster, name, node, cpu="8", priority=0):
    """A pod that takes long to leave."""
    cluster.pod(name, by=None, node=node, cpu=cpu, priority=priority, finalizers=["x.io/keep"])


@pytest.mark.parametrize(("priority", "kept"), [(50, True), (200, False)])
def test_room_that_a_more_important_pod_is_promised_is_not_for_the_gang(priority, kept):
    """The preemptor waits for its victim on n1; the rest of n1 and n2 would do for the gang."""

    async def scenario(cluster, running):
        leaving(cluster, "low", "n1", cpu="4")
        cluster.pod("fixed", by=None, node="n2", cpu="4", priority=1000)
        cluster.pod("preemptor", by=None, cpu="6", priority=100)
        await asyncio.sleep(3)
        assert cluster.nominated("preemptor") == "n1"
        cluster.group(2)
        cluster.pods("m-1", "m-2", cpu="4", priority=priority)
        await asyncio.sleep(20)
        assert cluster.bound() == (["fixed", "low"] if kept else ["fixed", "low", "m-1", "m-2"])
        cluster.finish("low")
        await asyncio.sleep(20)
        assert ("preemptor" in cluster.bound()) is kept

    playing(scenario, nodes=("n1", "n2"), settled=False)


@pytest.mark.parametrize("priorities", [(100, 100), (100, 60), (60, 100)])
def test_members_do_not_keep_each_other_from_the_node_that_both_are_promised(priorities):
    async def scenario(cluster, running):
        leaving(cluster, "low", "n1")
        cluster.group(2)
        for name, priority in zip(("m-1", "m-2"), priorities, strict=True):
            cluster.pod(name, cpu="4", priority=priority)
        await asyncio.sleep(5)
        assert [cluster.nominated(name) for name in ("m-1", "m-2")] == ["n1", "n1"]
        cluster.finish("low")
        await asyncio.sleep(15)
        assert cluster.bound() == ["m-1", "m-2"]

    playing(scenario)


def test_what_victims_of_a_gang_leave_is_kept_from_less_important_pods():
    """One victim goes sooner than the other: what it leaves is for the gang."""

    async def scenario(cluster, running):
        leaving(cluster, "low-1", "n1")
        leaving(cluster, "low-2", "n2")
        cluster.group(2)
        cluster.pods("m-1", "m-2", cpu="8", priority=100)
        await asyncio.sleep(3)
        assert {cluster.nominated("m-1"), cluster.nominated("m-2")} == {"n1", "n2"}
        cluster.pods("late-1", "late-2", by=None, cpu="8", priority=10)
        cluster.finish("low-1")
        await asyncio.sleep(60)
        assert cluster.bound() == ["low-2"]
        assert {cluster.nominated("m-1"), cluster.nominated("m-2")} == {"n1", "n2"}
        cluster.finish("low-2")
        await asyncio.sleep(15)
        assert cluster.bound() == ["m-1", "m-2"]

    playing(scenario, nodes=("n1", "n2"))


def test_a_more_important_pod_takes_what_the_gang_is_promised_and_the_gang_looks_elsewhere():
    async def scenario(cluster, running):
        leaving(cluster, "low-1", "n1")
        cluster.pod("low-2", by=None, node="n2", cpu="8", priority=5)
        cluster.group(1)
        cluster.pod("m-1", cpu="8", priority=100)
        await asyncio.sleep(3)
        assert cluster.nominated("m-1") == "n1"
        cluster.pod("urgent", by=None, cpu="8", priority=1000)
        await asyncio.sleep(3)
        assert cluster.nominated("urgent") == "n1"
        cluster.finish("low-1")
        await asyncio.sleep(60)
        assert cluster.bound() == ["m-1", "urgent"]
        assert (cluster.node_of("urgent"), cluster.node_of("m-1")) == ("n1", "n2")

    playing(scenario, nodes=("n1", "n2"))


def test_a_gang_whose_promised_node_is_gone_finds_another():
    async def scenario(cluster, running):
        leaving(cluster, "low-1", "n1")
        cluster.group(2)
        cluster.pods("m-1", "m-2", cpu="4", priority=100)
        await asyncio.sleep(3)
        assert cluster.nominated("m-1") == "n1"
        cluster.remove("Node", "n1")
        cluster.finish("low-1")
        cluster.node("n2", "8")
        await asyncio.sleep(30)
        assert {cluster.node_of("m-1"), cluster.node_of("m-2")} == {"n2"}

    playing(scenario)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_gang_with_too_few_members_left_keeps_no_room(at_once):
    """One is deleted, or begins to be, while all wait for the victim to leave."""

    async def scenario(cluster, running):
        leaving(cluster, "low", "n1")
        cluster.group(2)
        more = {} if at_once else {"finalizers": ["x.io/keep"]}
        cluster.pods("m-1", "m-2", cpu="4", priority=100, **more)
        await asyncio.sleep(3)
        cluster.pod("late", by=None, cpu="8", priority=10)
        await asyncio.sleep(3)
        cluster.remove("Pod", "m-1")
        cluster.finish("low")
        await asyncio.sleep(30)
        assert cluster.bound() == ["late"], "the other member alone is not enough"

    playing(scenario)


@pytest.mark.parametrize("promised", ["", "n1"])
def test_what_members_were_promised_before_does_not_count_when_room_is_made_anew(promised):
    """Each of two nodes has room for one of them."""

    async def scenario(cluster, running):
        for name in ("n1", "n2"):
            cluster.pod(f"low-{name}", by=None, node=name, cpu="8")
        cluster.pods("m-1", "m-2", cpu="6", priority=100)
        for name in ("m-1", "m-2"):
            cluster.patch("Pod", name, {"status": {"nominatedNodeName": promised or None}}, subresource="status")
        cluster.group(2)
        await asyncio.sleep(30)
        assert {cluster.node_of("m-1"), cluster.node_of("m-2")} == {"n1", "n2"}
        notes = [event["note"] for event in cluster.events() if event["reason"] == "FailedScheduling"]
        assert not any("preemption: 0/2 nodes are available" in note for note in notes), notes

    playing(scenario, nodes=("n1", "n2"))
