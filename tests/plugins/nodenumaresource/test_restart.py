"""Starts in any order of lists; machines whose CPUs become others while pods run."""

import asyncio
from itertools import permutations
from random import Random

import pytest

from tests.embedded import scheduler_on
from tests.plugins.nodenumaresource import cpusets
from tests.plugins.nodenumaresource.machines import detail, holder, node, pod, topology
from tests.plugins.nodenumaresource.naivemachine import NODE
from tests.plugins.nodenumaresource.randomstates import random_state
from tests.plugins.nodenumaresource.running import api_server, cluster, cpus_of, put, remove, replace, where
from tests.plugins.nodenumaresource.world import World, complete, configuration, lsr, named, on
from tests.virtualtime import run

T1 = detail(2, 1, 4)
ZONES = [("8", "64Gi"), ("8", "64Gi")]
KUBELET = "kubelet.koordinator.sh/cpu-manager-policy"
GONE = "gone"
LISTS = {
    "nodes": [
        node(numa_topology_policy="Restricted"),
        named(node(cpu="24", ratio=1.5, numa_allocate_strategy="MostAllocated"), "m2"),
        named(node(cpu_bind_policy="FullPCPUsOnly"), "m3"),
    ],
    "reports": [
        topology(T1, ZONES, annotations={KUBELET: {"policy": "static", "reservedCPUs": "0"}}),
        named(topology(T1, ZONES), "m2"),
        named(topology(T1, ZONES), GONE),
    ],
    "pods": [
        holder("h0", "2-3,8", {0: ("2", "1Gi"), 1: ("1", "1Gi")}, "3", level="PCPULevel"),
        holder("h1", "9", {1: ("1", "0")}, "1"),
        holder("h2", None, {0: ("2", "8Gi")}, "2", qos="LS"),
        on(holder("h3", "4-7", cpu="4"), "m2"),
        on(holder("h4", "4-5", cpu="2"), "m2"),
        on(holder("h5", "0-3", cpu="4"), "m3"),
        on(holder("h6", "0-3", cpu="4"), GONE),
    ],
}


def in_order(order):
    return World(*(thing for name in order for thing in LISTS[name]))


@pytest.mark.parametrize("order", list(permutations(LISTS)), ids="-".join)
def test_lists_may_come_in_any_order(order):
    assert in_order(order).readings() == in_order(LISTS).readings()


def test_the_columns_are_what_the_objects_say():
    world = in_order(("pods", "reports", "nodes"))
    assert (world.held(), world.free()) == ("2-3,8-9", "1,4-7,10-15")
    assert [zone["cpu"] for zone in world.zones()] == [("7", "4", "3"), ("8", "2", "6")]
    assert world.readings()["m1"]["sharing"] == ([0, 1, *[0] * 6], [1, 1, *[0] * 6])
    assert (world.held("m2"), world.free("m2")) == ("4-7", "0-3,8-15")
    assert world.readings()["m2"]["holders"] == {4: 2, 5: 2, 6: 1, 7: 1}
    assert world.held("m3") == "0-3", "though nothing is known of its CPUs"
    world.put(named(node(), GONE))
    assert (world.held(GONE), world.free(GONE)) == ("0-3", "4-15")


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_events(seed):
    """Random states, object by object; some objects come twice, some go and come back."""
    rng = Random(seed)
    state = random_state(seed)
    things = [
        *state.nodes,
        *state.topologies,
        *(thing for thing in state.bound if thing["status"]["phase"] == "Running"),
    ]
    expected = World(*things, args=state.args).readings()
    for _ in range(4):
        shuffled = rng.sample(things, len(things))
        world = World(*shuffled, args=state.args)
        assert world.readings() == expected
        for thing in rng.sample(things, len(things) // 2):
            if rng.random() < 0.5:
                world.remove(thing)
            world.put(thing)
        assert world.readings() == expected


def test_nothing_is_left_of_a_node_that_is_gone():
    """Its row is used for another node."""
    for order in permutations(("node", "report", "pods")):
        world = in_order(LISTS)
        rows = world.table.row_of.copy()
        things = {"node": [LISTS["nodes"][0]], "report": [LISTS["reports"][0]], "pods": LISTS["pods"][:3]}
        for name in order:
            for thing in things[name]:
                world.remove(thing)
        world.put(named(node(), "other"))
        assert world.row("other") == rows["m1"]
        empty = World(named(node(), "other")).readings()["other"]
        assert world.readings()["other"] == empty
        world.put(named(topology(T1, ZONES), "other"))
        assert (
            world.readings()["other"]
            == World(named(node(), "other"), named(topology(T1, ZONES), "other")).readings()["other"]
        )


# --- machines that change while pods run ------------------------------------------------------------------


def test_fewer_cpus_than_pods_hold():
    """They keep what they were given; what is left goes to others."""
    world = World(node(), topology(detail(2, 1, 8), [("16", "64Gi")] * 2), holder("h", "0-1,6-11,30-31", cpu="10"))
    assert world.free() == "2-5,12-29"
    world.put(topology(T1, ZONES))
    assert world.held() == "0-1,6-11,30-31"
    assert world.free() == "2-5,12-15"
    assert world.cpus(lsr(cpu="8")) == "2-5,12-15"
    assert world.refusal(lsr(cpu="9"))[0] == "Unschedulable"
    world.put(topology(detail(2, 1, 8), [("16", "64Gi")] * 2))
    assert world.free() == "2-5,12-29"
    world.remove(holder("h"))
    assert world.free() == "0-31"


def test_cpus_that_are_numbered_anew():
    """What a pod was given is said in ids of CPUs, and these are taken, wherever they lie now."""
    held = holder("h", "0-3", {0: ("4", "0")}, "4")
    world = World(node(numa_topology_policy="Restricted"), topology(T1, ZONES), held)
    assert world.readings()["m1"]["sharing"][0][:2] == [1, 0]
    assert world.cpus(lsr()) == "8-11"
    moved = [{**cpu, "node": 1 - cpu["node"], "socket": 1 - cpu["socket"]} for cpu in T1]
    world.put(topology(moved, ZONES))
    assert world.free() == "4-15"
    assert world.readings()["m1"]["sharing"][0][:2] == [0, 1]
    apart = detail(2, 1, 4, apart=True)
    world.put(topology(apart, ZONES))
    assert world.free() == "4-15"
    assert not cpusets.ids(world.cpus(lsr(cpu="8"))) & {0, 1, 2, 3}
    world.put(topology([{**cpu, "node": cpu["id"] % 2} for cpu in T1], ZONES))
    assert world.readings()["m1"]["sharing"][1][:2] == [1, 1], "its CPUs lie on both now"
    world.put(topology(T1, ZONES))
    assert world.readings() == World(node(numa_topology_policy="Restricted"), topology(T1, ZONES), held).readings()


@pytest.mark.parametrize("seed", range(6))
def test_new_pods_never_get_cpus_that_pods_hold(seed):
    """The machine is another one every time; some reports say nothing about CPUs, some are deleted."""
    rng = Random(seed)
    world = World(node(), topology(T1, ZONES))
    held, expected = {}, 0
    for at in range(60):
        kind = rng.randrange(8)
        if kind == 0:
            world.remove(topology(T1))
        elif kind == 1:
            world.put(topology(None, ZONES))
        elif kind < 5:
            shape = rng.choice([1, 2]), rng.choice([1, 2]), rng.choice([1, 2, 4, 8]), rng.choice([1, 2])
            world.put(topology(detail(*shape, apart=rng.random() < 0.5), ZONES))
        elif held and rng.random() < 0.4:
            name = rng.choice(sorted(held))
            world.remove(held.pop(name))
        said, written = world.outcome(lsr("new", cpu=str(rng.randint(1, 6))))
        if said == ("Success",):
            cpus = written["resource-status"]["cpuset"]
            taken = {cpu for thing in held.values() for cpu in cpusets.ids_of(thing)}
            assert not taken & cpusets.ids(cpus)
            held[f"h{at}"] = holder(f"h{at}", cpus, cpu="1")
            world.put(held[f"h{at}"])
            expected += 1
        everything = {cpu for thing in held.values() for cpu in cpusets.ids_of(thing)}
        assert cpusets.ids(world.held()) == everything
    assert expected > 5


def test_a_report_that_is_gone_and_comes_back():
    held = holder("h", "0-3", cpu="4")
    world = World(node(), topology(T1), held)
    world.remove(topology(T1))
    assert world.refusal(lsr()) == ("UnschedulableAndUnresolvable", "node(s) invalid CPU Topology")
    world.remove(held)
    world.put(holder("other", "4-7", cpu="4"))
    world.put(topology(T1))
    assert world.free() == "0-3,8-15"


def test_pods_of_the_kubelet_count_as_it_reports():
    """A Guaranteed pod of the static policy has no annotation: its CPUs are reserved while they are reported."""
    world = World(node(), topology(T1, ZONES), on(pod("g", "4", qos=None), "m1"))
    assert world.free() == "0-15"

    def reported(*cpusets, managed=True):
        allocs = [
            {"namespace": "default", "name": f"g{at}", "uid": f"g{at}", "cpuset": cpus, "managedByKubelet": managed}
            for at, cpus in enumerate(cpusets)
        ]
        return topology(T1, ZONES, annotations={f"{NODE}pod-cpu-allocs": allocs})

    for cpus, free, zone in ((("0-3",), "4-15", "4"), (("0-3", "8,10"), "4-7,9,11-15", "4"), ((), "0-15", "8")):
        world.put(reported(*cpus))
        assert (world.free(), world.zones()[0]["cpu"][0]) == (free, zone)
        assert world.cpus(lsr(cpu="2")) in ("4-5", "8-9", "12-13", "0-1")
    world.put(reported("0-3", managed=False))
    assert world.free() == "0-15", "others have an annotation"
    world.put(reported("0-3"))
    world.put(holder("h", "2-5", cpu="4"))
    assert world.free() == "6-15", "overlapping ones count once"
    world.put(reported())
    assert world.free() == "0-1,6-15"


# --- the real scheduler --------------------------------------------------------------------------------


def readings(running):
    """What is held and free, by node."""
    plugin = running.scheduler.profiles["default-scheduler"].plugins["NodeNUMAResource"]
    columns, table = plugin.columns, running.scheduler.cluster.table
    found = {}
    for name, row in sorted(table.row_of.items()):
        layout = columns.layout(row)
        found[name] = columns.held(row), layout and columns.free(row, layout), columns.used.data[row].tolist()
    return found


def test_restarts_forget_nothing():
    """Five lives; in each pods come and go. No CPU is given twice, and what is counted is the same after a start."""

    async def scenario():
        nodes = [
            named(node(cpu="16", **({"numa_topology_policy": "Restricted"} if i else {})), f"n{i}") for i in range(3)
        ]
        embedded = api_server(*nodes, *(named(topology(T1, ZONES), f"n{i}") for i in range(3)))
        before, placed = None, 0
        for life in range(5):
            async with scheduler_on(embedded, configuration()) as running:
                await asyncio.sleep(1)
                assert before is None or readings(running) == before
                for i in range(4):
                    put(embedded, lsr(f"p{life}-{i}", cpu="2", memory="1Gi"))
                if life:
                    remove(embedded, complete(lsr(f"p{life - 1}-0")))
                await asyncio.sleep(15)
                before = readings(running)
            pods = embedded.registry.list(embedded.resource("Pod"))
            given = [
                (thing["spec"]["nodeName"], cpu)
                for thing in pods
                if thing["spec"].get("nodeName")
                for cpu in cpusets.ids_of(thing)
            ]
            assert len(given) == len(set(given)), "a CPU for two pods"
            placed = len(given)
        return placed

    assert run(scenario()) == 5 * 8 - 4 * 2


def test_the_report_may_come_long_after_the_pods():
    """Upstream forgets the CPUs of pods that it saw before the report."""

    async def scenario():
        held = holder("h", "0-3", cpu="4")
        async with cluster(node(), held) as (embedded, _):
            put(embedded, lsr())
            await asyncio.sleep(20)
            before = where(embedded, "p")
            put(embedded, topology(T1))
            await asyncio.sleep(20)
            return before, cpus_of(embedded, "p")

    assert run(scenario()) == (None, "8-11")


def test_a_machine_that_changes_while_pods_run():
    async def scenario():
        async with cluster(node(), topology(T1)) as (embedded, _):
            seen = []
            for at, cpus in enumerate((detail(2, 1, 8), detail(1, 1, 4), None, detail(2, 1, 4, apart=True))):
                put(embedded, lsr(f"p{at}"))
                await asyncio.sleep(20)
                seen.append(cpus_of(embedded, f"p{at}"))
                replace(embedded, topology(cpus))
                await asyncio.sleep(1)
            await asyncio.sleep(20)
            return seen, [cpus_of(embedded, f"p{at}") for at in range(4)]

    seen, last = run(scenario())
    assert seen[:2] == ["0-3", "16-19"]
    assert seen[2] == "4-7"
    assert seen[3] is None, "nothing is known of the CPUs"
    assert last[:3] == seen[:3]
    assert last[3] is not None
    assert not cpusets.ids(last[3]) & {*range(8), *range(16, 20)}
