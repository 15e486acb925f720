"""Groups whose pods have to be on nodes with the same value of a label (coscheduling spec, Appendix A)."""

import asyncio
from random import Random
from types import SimpleNamespace

import pytest

from koordsched.plugins import IN_TREE
from koordsched.plugins.gangscheduling.topology import TOPOLOGY_GATES, PodGroupPodsCount, TopologyPlacementGenerator
from koordsched.scheduling.offline import OfflineScheduler
from tests.extraplugins import resolved_with
from tests.plugins.gangscheduling.running import ALL_GATES, PodGroupCluster, scheduling
from tests.plugins.gangscheduling.test_offline import CONFIG, group, member
from tests.plugins.harness import Bench, StoppedClock
from tests.plugins.objects import node
from tests.virtualtime import run

GATES = ALL_GATES[:3]
RACK = "example.com/rack"
CONSTRAINT = {"schedulingConstraints": {"topology": [{"key": RACK}]}}
RACKS = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}


def on_cluster(scenario, cpus=None):
    async def main():
        cluster = PodGroupCluster(nodes=())
        for name, rack in RACKS.items():
            cluster.node(name, (cpus or {}).get(name, "8"), {RACK: rack})
        cluster.node("apart", "64")
        async with scheduling(cluster, gates=GATES) as running:
            await scenario(cluster, running)

    run(main(), limit=86400.0)


def racks(cluster):
    return {RACKS.get(place, place) for place in cluster.placed().values()}


def test_coscheduling_case_30():
    bench = Bench()
    bench.handle.features = TOPOLOGY_GATES
    assert PodGroupPodsCount(None, bench.handle).normalize_placements([3, 4]) == [75, 100]
    assert PodGroupPodsCount(None, bench.handle).normalize_placements([0, 0]) == [0, 0]


def test_all_members_go_to_one_domain():
    async def scenario(cluster, running):
        cluster.group(4, **CONSTRAINT)
        cluster.members(4, cpu="4")
        await asyncio.sleep(5)
        assert len(cluster.placed()) == 4
        assert racks(cluster) in ({"a"}, {"b"})

    on_cluster(scenario)


def test_the_only_domain_with_room():
    async def scenario(cluster, running):
        cluster.group(4, **CONSTRAINT)
        cluster.members(4, cpu="4")
        await asyncio.sleep(5)
        assert (len(cluster.placed()), racks(cluster)) == (4, {"b"})

    on_cluster(scenario, {"a2": "4"})


def test_more_pods_of_the_group_count_more_than_a_full_domain():
    """Rack `a` would be full with two pods, `b` takes all four."""

    async def scenario(cluster, running):
        cluster.group(2, **CONSTRAINT)
        cluster.members(4, cpu="4")
        await asyncio.sleep(5)
        assert (len(cluster.placed()), racks(cluster)) == (4, {"b"})

    on_cluster(scenario, {"a1": "4", "a2": "4", "b1": "8", "b2": "9"})


def test_without_a_domain_that_fits_none_is_placed():
    async def scenario(cluster, running):
        cluster.group(5, **CONSTRAINT)
        cluster.members(5, cpu="4")
        await asyncio.sleep(5)
        assert cluster.placed() == {}
        text = "0/2 placements are available, first placement status: pod group is unschedulable"
        assert cluster.condition() == ("False", "Unschedulable", text)
        assert "2 Insufficient cpu" in cluster.says("m-5")[1]
        assert "3 node(s) are not in the placement of the pod group" in cluster.says("m-5")[1]

    on_cluster(scenario)


def test_a_label_that_no_node_has():
    async def scenario(cluster, running):
        cluster.group(2, schedulingConstraints={"topology": [{"key": "example.com/none"}]})
        cluster.members(2)
        await asyncio.sleep(5)
        assert cluster.placed() == {}
        assert cluster.condition() == ("False", "Unschedulable", "no feasible placements found")
        assert cluster.says("m-1") == ("Unschedulable", "no feasible placements found")

    on_cluster(scenario)


def test_members_that_have_a_node_pin_the_domain():
    async def scenario(cluster, running):
        cluster.member("m-0", node="b1", cpu="4")
        cluster.group(3, **CONSTRAINT)
        cluster.members(2, cpu="4")
        await asyncio.sleep(5)
        assert (len(cluster.placed()), racks(cluster)) == (3, {"b"})

    on_cluster(scenario)


def test_a_member_on_a_node_that_is_not_there_pins_none():
    bench = Bench()
    bench.handle.features = TOPOLOGY_GATES
    generator = TopologyPlacementGenerator(None, bench.handle)
    bench.add(node("a1", labels={RACK: "a"}))
    while bench.cluster.table.size < len(bench.cluster.table.alive.data):
        bench.add(node(f"b{bench.cluster.table.size}", labels={RACK: "b"}))
    bench.add(group(2, **CONSTRAINT))
    bench.add(member("m-0", on="gone"))
    found = generator.placements(SimpleNamespace(name="default/g"))
    assert [placement.name for placement in found] == ["a", "b"]


def test_members_in_two_domains_are_an_error():
    async def scenario(cluster, running):
        cluster.member("m-0", node="a1")
        cluster.member("m-9", node="b1")
        cluster.group(3, **CONSTRAINT)
        cluster.members(1)
        await asyncio.sleep(5)
        text = f"scheduled pods of the pod group are on nodes with different values of {RACK}: a, b"
        assert cluster.condition() == ("False", "SchedulerError", text)
        assert cluster.says("m-1") == ("SchedulerError", text)

    on_cluster(scenario)


def test_groups_without_constraint_go_anywhere():
    async def scenario(cluster, running):
        cluster.group(3)
        cluster.members(3, cpu="20")
        await asyncio.sleep(5)
        assert set(cluster.placed().values()) == {"apart"}

    on_cluster(scenario)


def planning(nodes, members, minimum, key=RACK):
    constraint = {"schedulingConstraints": {"topology": [{"key": key}]}}
    return OfflineScheduler(
        resolved_with(CONFIG, (), GATES),
        IN_TREE,
        [*nodes, group(minimum, **constraint), *members],
        clock=StoppedClock(),
        rng=Random(1),
    )


@pytest.mark.parametrize("size, placed", [(4, True), (5, False)])
def test_plans_of_simulations_go_by_domains(size, placed):
    nodes = [node(name, cpu="8", labels={RACK: rack}) for name, rack in RACKS.items()]
    offline = planning(nodes, [member(f"m{number}", "4") for number in range(size)], size)
    found = [offline.schedule(f"default/m{number}").node for number in range(size)]
    assert {RACKS.get(place) for place in found} in (({"a"}, {"b"}) if placed else ({None},))


def test_plans_say_what_the_first_domain_lacks():
    nodes = [
        node("a1", cpu="4", memory="64Gi", labels={RACK: "a"}),
        node("b1", cpu="64", memory="2Gi", labels={RACK: "b"}),
        node("c1", cpu="64", memory="2Gi", labels={RACK: "c"}),
    ]
    offline = planning(nodes, [member(f"m{number}", "3", "2Gi") for number in range(2)], 2)
    explained, found = offline.explain("default/m0").job, offline.schedule("default/m1")
    text = "0/3 placements are available, first placement status: pod group is unschedulable"
    assert (explained.refused, explained.message) == ("default/m1", text)
    assert "1 Insufficient cpu, 2 node(s) are not in the placement of the pod group" in found.message


def test_plans_with_a_label_that_no_node_has():
    offline = planning([node("a1")], [member("m0"), member("m1")], 2, "example.com/none")
    assert offline.explain("default/m0").job.message == "no feasible placements found"
    for number in range(2):
        assert offline.schedule(f"default/m{number}").message == "no feasible placements found"


def test_plans_find_the_only_domain_with_room():
    nodes = [node(f"n{number}", cpu="16" if number == 5 else "4", labels={RACK: f"r{number}"}) for number in range(9)]
    offline = planning(nodes, [member(f"m{number}", "4") for number in range(4)], 4)
    assert {offline.schedule(f"default/m{number}").node for number in range(4)} == {"n5"}
