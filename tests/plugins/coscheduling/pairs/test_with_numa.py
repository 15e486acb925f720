"""Gangs and NUMA policies: members get NUMA nodes and CPUs one after the other, all of them or none."""

import asyncio

import pytest

from tests.plugins.coscheduling.running import API, LABEL
from tests.plugins.coscheduling.running import configuration as gangs
from tests.plugins.nodenumaresource import cpusets
from tests.plugins.nodenumaresource.machines import detail, node, topology
from tests.plugins.nodenumaresource.running import cluster, put, remove, status_of, where
from tests.plugins.nodenumaresource.test_together import held
from tests.plugins.nodenumaresource.world import configuration, lsr, named
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import run

T1 = detail(2, 1, 4)
ZONES = [("8", "64Gi"), ("8", "64Gi")]


def document(**args):
    """Both plugins; Coscheduling alone makes room."""
    both, (alone,) = configuration(), gangs(**args)["profiles"]
    (profile,) = both["profiles"]
    for point, plugins in alone["plugins"].items():
        there = profile["plugins"].get(point, {})
        enabled = [*there.get("enabled", ()), *plugins["enabled"]]
        profile["plugins"][point] = {**there, **plugins, "enabled": enabled}
    profile["pluginConfig"] += alone["pluginConfig"]
    return both


def machine(name="m1", policy="SingleNUMANode"):
    """A machine of two NUMA nodes of 8 CPUs."""
    marks = {"numa_topology_policy": policy} if policy else {}
    return [named(thing, name) for thing in (node(cpu="16", **marks), topology(T1, ZONES))]


def gang(embedded, count, cpu, name="g", minimum=None, **more):
    """Puts a gang in, the pods of which are called `name`-0, ..."""
    meta = {"name": name, "namespace": "default"}
    spec = {"minMember": count if minimum is None else minimum}
    embedded.insert({"apiVersion": API, "kind": "PodGroup", "metadata": meta, "spec": spec})
    names = [f"{name}-{number}" for number in range(count)]
    for each in names:
        made = lsr(each, cpu=cpu, memory="1Gi", **more)
        made["metadata"]["labels"] = {**made["metadata"].get("labels", {}), LABEL: name}
        put(embedded, made)
    return names


def placed(embedded, names):
    """{pod: (node, NUMA nodes, CPUs)} of those that are bound."""
    found = {}
    for name in names:
        if (on := where(embedded, name)) is not None:
            given = status_of(embedded, name)
            numa = [each["node"] for each in given.get("numaNodeResources", ())]
            found[name] = on, numa, cpusets.ids(given["cpuset"])
    return found


def playing(scenario, *machines, args=None):
    async def work():
        things = [thing for each in machines or (machine(),) for thing in each]
        async with cluster(*things, document=document(**(args or {}))) as (embedded, running):
            Kubelet(embedded)
            return await scenario(embedded, running)

    return run(work())


def test_each_member_gets_a_numa_node_with_cpus_of_its_own():
    async def scenario(embedded, running):
        names = gang(embedded, 2, "5")
        await asyncio.sleep(5)
        return placed(embedded, names), held(running)[0]

    found, books = playing(scenario)
    assert sorted(numa for _, numa, _ in found.values()) == [[0], [1]]
    first, second = (cpus for _, _, cpus in found.values())
    assert not first & second
    assert books == first | second


@pytest.mark.parametrize(("policy", "count"), [("SingleNUMANode", 0), ("BestEffort", 3)])
def test_what_numa_nodes_have_no_room_for_holds_nothing(policy, count):
    """Three members of five CPUs are fewer than the machine has, and none of its NUMA nodes has room for two."""

    async def scenario(embedded, running):
        names = gang(embedded, 3, "5")
        await asyncio.sleep(5)
        before = len(placed(embedded, names)), held(running)
        if not count:
            put(embedded, lsr("stranger", cpu="8", memory="1Gi"))
            await asyncio.sleep(5)
        return before, where(embedded, "stranger") if not count else None

    before, stranger = playing(scenario, machine(policy=policy))
    assert before[0] == count
    if not count:
        assert (before[1], stranger) == ((set(), {}), "m1")


def test_members_spread_over_machines_by_their_numa_nodes():
    async def scenario(embedded, running):
        names = gang(embedded, 4, "6")
        await asyncio.sleep(5)
        return placed(embedded, names)

    found = playing(scenario, machine("m1"), machine("m2"))
    assert sorted((on, *numa) for on, numa, _ in found.values()) == [("m1", 0), ("m1", 1), ("m2", 0), ("m2", 1)]


@pytest.mark.parametrize("how", ["a pod ends", "a machine comes"])
def test_room_on_a_numa_node_wakes_the_gang_at_once(how):
    async def scenario(embedded, running):
        put(embedded, lsr("there", cpu="4", memory="1Gi"))
        await asyncio.sleep(3)
        names = gang(embedded, 2, "5")
        await asyncio.sleep(60)
        before = placed(embedded, names)
        if how == "a pod ends":
            remove(embedded, embedded.get("Pod", "there"))
        else:
            for thing in machine("m2"):
                put(embedded, thing)
        await asyncio.sleep(12)
        return before, placed(embedded, names)

    before, after = playing(scenario)
    assert before == {}
    assert len(after) == 2


def test_room_is_made_on_both_numa_nodes_and_no_more_than_is_needed():
    """On each NUMA node a pod of four CPUs, and on the first one of two: the gang needs five on each."""

    async def scenario(embedded, running):
        for name, cpu, priority in (("a", "4", 9100), ("b", "4", 9100), ("c", "2", 9900)):
            put(embedded, lsr(name, cpu=cpu, memory="1Gi", priority=priority))
            await asyncio.sleep(1)
        names = gang(embedded, 2, "5", priority=9500)
        await asyncio.sleep(60)
        exists = {thing["metadata"]["name"] for thing in embedded.registry.list(embedded.resource("Pod"))}
        return exists, placed(embedded, [*names, "c"]), held(running)[0]

    exists, found, books = playing(scenario, args={"enablePreemption": True})
    assert exists == {"c", "g-0", "g-1"}
    assert sorted(numa for name, (_, numa, _) in found.items() if name != "c") == [[0], [1]]
    sets = [cpus for _, _, cpus in found.values()]
    assert sum(map(len, sets)) == len(set().union(*sets)) == len(books) == 12


def test_no_pod_is_evicted_for_a_gang_that_numa_nodes_have_no_room_for_even_so():
    async def scenario(embedded, running):
        put(embedded, lsr("low", cpu="4", memory="1Gi", priority=9100))
        await asyncio.sleep(3)
        names = gang(embedded, 3, "5", priority=9500)
        await asyncio.sleep(60)
        return where(embedded, "low"), placed(embedded, names)

    assert playing(scenario, args={"enablePreemption": True}) == ("m1", {})
