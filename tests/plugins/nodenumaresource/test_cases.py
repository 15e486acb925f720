"""The acceptance cases of nodenumaresource spec 7 on the plugin.

Case 7 and case 20 are in `test_cpu_pick`.
"""

import numpy as np
import pytest

from koordsched.framework.interface import CycleState
from koordsched.framework.topologyhints import NUMAPolicy
from koordsched.plugins.nodenumaresource.columns import MODES
from koordsched.plugins.nodenumaresource.demand import demand_on
from koordsched.plugins.nodenumaresource.policies import BindPolicy
from koordsched.plugins.nodenumaresource.supply import split
from tests.plugins.nodenumaresource.machines import detail, holder, node, pod, topology
from tests.plugins.nodenumaresource.naivemachine import NODE, parse_cpus
from tests.plugins.nodenumaresource.world import World, annotated, lsr, named

T1 = detail(2, 1, 4)
T26, T26_APART = detail(2, 1, 26), detail(2, 1, 26, apart=True)
Z2 = [("52", "128Gi"), ("52", "128Gi")]
GIB = 1 << 30
CPU_AND_MEMORY = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
MOST = {"type": "MostAllocated", "resources": CPU_AND_MEMORY}
LEAST = {"type": "LeastAllocated", "resources": CPU_AND_MEMORY}
UAU, U, OK = "UnschedulableAndUnresolvable", "Unschedulable", "Success"
NOT_ENOUGH = "not enough cpus available to satisfy request"
NOT_INTEGER = "the requested CPUs must be integer"


def t1(*held, **labels):
    """A world of one node with 2 sockets of 4 cores."""
    return World(node(**labels), topology(T1), *held)


def request(world, thing):
    """What the plugin reads of a pod."""
    return world.plugin.compiled.request(world.pod(thing).shape)


def test_nodenumaresource_case_01_prefilter():
    world = World()
    wanted = request(world, lsr(spec={"preferredCPUBindPolicy": "FullPCPUs"}))
    assert (wanted.binds, wanted.cpus, wanted.required) == (True, 4, BindPolicy.NONE)
    assert wanted.preferred is BindPolicy.FULL_PCPUS
    assert request(world, lsr()).preferred is BindPolicy.FULL_PCPUS
    spread = World(args={"defaultCPUBindPolicy": "SpreadByPCPUs"})
    wanted = request(spread, lsr(spec={"requiredCPUBindPolicy": "Default"}))
    assert wanted.required is wanted.preferred is BindPolicy.SPREAD_BY_PCPUS
    # Where the default is to bind no pods, one that requires it has what it prefers.
    by_wish = World(args={"defaultCPUBindPolicy": ""})
    wanted = request(by_wish, lsr(spec={"requiredCPUBindPolicy": "Default", "preferredCPUBindPolicy": "SpreadByPCPUs"}))
    assert (wanted.binds, wanted.required) == (True, BindPolicy.NONE)
    assert wanted.preferred is BindPolicy.SPREAD_BY_PCPUS
    assert not request(by_wish, lsr(spec={"requiredCPUBindPolicy": "Default"})).binds


def test_nodenumaresource_case_02_pods_that_are_bound():
    world = t1()
    assert world.refusal(lsr(cpu="4500m", spec={"preferredCPUBindPolicy": "FullPCPUs"})) == (UAU, NOT_INTEGER)
    for thing in (
        lsr(cpu="4500m", spec={"preferredCPUBindPolicy": "test"}),
        lsr(priority=7500),
        lsr(qos=None),
    ):
        assert not request(world, thing).binds
        assert world.outcome(thing) == ((OK,), {})
    guaranteed = lsr(qos=None)
    guaranteed["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "4", "memory": "1Gi"}
    guaranteed["spec"]["containers"][0]["resources"]["requests"]["memory"] = "1Gi"
    assert world.outcome(guaranteed) == ((OK,), {})
    assert world.early(lsr(cpu=None)) == ("Skip",)
    assert world.outcome(lsr(cpu=None)) == ((OK,), {})
    assert world.early(annotated(lsr(), resource_spec="{"))[0] == "Error"


def test_nodenumaresource_case_03_a_node_for_whole_cores():
    world = t1(cpu_bind_policy="FullPCPUsOnly")
    assert world.refusal(pod(cpu="5")) == (UAU, "node(s) requested cpus not multiple cpus per core")
    assert world.refusal(pod(cpu="5200m")) == (UAU, NOT_INTEGER)
    conflict = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
    assert world.refusal(lsr(spec={"requiredCPUBindPolicy": "SpreadByPCPUs"})) == (UAU, conflict)
    assert world.cpus(lsr(spec={"preferredCPUBindPolicy": "SpreadByPCPUs"})) == "0-3"
    batch = pod(cpu=None, memory=None, qos="BE", priority=5500, **{"kubernetes.io/batch-cpu": "4000"})
    assert world.outcome(batch) == ((OK,), {})


def test_cores_of_each_node_count_for_themselves():
    """An odd number of CPUs is whole cores where a core has one CPU."""
    single = named(node(), "m2"), named(topology(detail(2, 1, 8, threads=1)), "m2")
    world = World(node(), topology(T1), *single)
    wanted = lsr(cpu="3", spec={"requiredCPUBindPolicy": "FullPCPUs"})
    assert world.verdicts(wanted) == {"m1": (UAU, "node(s) requested cpus not multiple cpus per core"), "m2": (OK,)}


def test_nodenumaresource_case_04_the_kubelets_policy_wins():
    kubelet = {"policy": "static", "options": {"full-pcpus-only": "true"}}
    reported = topology(T1, annotations={"kubelet.koordinator.sh/cpu-manager-policy": kubelet})
    world = World(node(cpu_bind_policy="SpreadByPCPUs"), reported)
    assert world.nodes.of_node("m1").bind is BindPolicy.FULL_PCPUS
    assert world.refusal(pod(cpu="5")) == (UAU, "node(s) requested cpus not multiple cpus per core")
    assert world.cpus(pod(cpu="4")) == "0-3"


def test_nodenumaresource_case_05_reserve():
    world = t1()
    assert world.outcome(lsr()) == (
        (OK,),
        {"resource-status": {"cpuset": "0-3"}, "resource-spec": {"preferredCPUBindPolicy": "FullPCPUs"}},
    )
    assert world.refusal(lsr(cpu="24")) == (U, NOT_ENOUGH)
    assert world.free() == "0-15", "nothing is held by a pod that did not fit"


@pytest.mark.parametrize(("strategy", "expected"), [("LeastAllocated", "16-19"), ("MostAllocated", "4-7")])
def test_nodenumaresource_case_06_strategies(strategy, expected):
    held = holder("h", "0-3", cpu="4")
    world = World(node(numa_allocate_strategy=strategy), topology(detail(2, 1, 8)), held)
    assert world.cpus(lsr()) == expected


def test_what_is_given_back_may_be_taken_again():
    world = t1()
    thing, row = world.pod(lsr(cpu="16")), world.row()
    for _ in range(2):
        cycle = CycleState(thing)
        world.cluster.assume(thing, row)
        assert world.plugin.reserve(cycle, thing, row).ok
        assert world.held() == "0-15"
        world.plugin.unreserve(cycle, thing, row)
        world.cluster.forget(thing)
        assert world.held() == ""


def test_nodenumaresource_case_08_reserved_cpus():
    allocs = [{"namespace": "default", "name": "g", "uid": "g", "cpuset": "0-3", "managedByKubelet": True}]
    annotations = {
        "kubelet.koordinator.sh/cpu-manager-policy": {"policy": "static", "reservedCPUs": "0-1"},
        f"{NODE}system-qos-resource": {"cpuset": "4-5"},
        f"{NODE}reservation": {"reservedCPUs": "6-7"},
        f"{NODE}pod-cpu-allocs": allocs,
    }
    zones = [("8", "64Gi"), ("8", "64Gi")]
    world = World(node(), topology(T1, zones, annotations=annotations))
    assert world.free() == "8-15"
    assert [zone["cpu"][0] for zone in world.zones()] == ["0", "8"]
    assert world.cpus(lsr(cpu="8")) == "8-15"
    assert world.refusal(lsr(cpu="9")) == (U, NOT_ENOUGH)
    del annotations[f"{NODE}pod-cpu-allocs"]
    world.put(topology(T1, zones, annotations=annotations))
    assert world.free() == "2-3,8-15"
    assert [zone["cpu"][0] for zone in world.zones()] == ["2", "8"]


def two_zones(policy="SingleNUMANode", *held, cpus=T26, args=None):
    """A world of one node with two NUMA nodes of 52 CPUs and 128Gi."""
    return World(node(cpu="104", numa_topology_policy=policy), topology(cpus, Z2), *held, args=args)


USED = (
    holder("h0", None, {0: ("4", "8Gi")}, "4", "8Gi", qos="LS"),
    holder("h1", None, {1: ("40", "8Gi")}, "40", "8Gi", qos="LS"),
)


@pytest.mark.parametrize(
    ("strategy", "scores", "chosen"), [(LEAST, [73, 38, 65], 0), (MOST, [26, 60, 33], 1)], ids=["least", "most"]
)
def test_nodenumaresource_case_09_single_numa_node(strategy, scores, chosen):
    world = two_zones("SingleNUMANode", *USED, args={"numaScoringStrategy": strategy})
    assert world.numa(pod()) == {chosen: {"cpu": "4", "memory": "40Gi"}}
    plugin, shape = world.plugin, world.pod(pod()).shape
    demand = demand_on(plugin.compiled.request(shape), MODES[world.columns.mode.data.item(0)])
    hints = plugin.alignment.hints_on(shape, world.table, demand, world.row(), 2)
    assert [hint.resource for hint in hints] == ["cpu", "memory"]
    assert all(hint.score[0].tolist() == scores for hint in hints)


def test_nodenumaresource_case_10_more_than_one_numa_node():
    large, small = pod(cpu="60"), pod(cpu="5", memory="1Gi")
    unaligned = "Unaligned NUMA Hint cause cpu prefer [11] among [11],memory prefer [11] among [11]"
    assert two_zones().refusal(large) == (U, unaligned)
    half = {"cpu": "30", "memory": "20Gi"}
    assert two_zones("Restricted").numa(large) == {0: half, 1: half}
    full = holder("h", None, {0: ("50", "0"), 1: ("50", "0")}, "100", qos="LS")
    assert two_zones("Restricted", full).refusal(small) == (U, "Unsatisfied NUMA cpu", "Unsatisfied NUMA memory")
    world = two_zones("BestEffort", full)
    assert world.verdicts(small) == {"m1": (OK,)}
    assert world.refusal(small) == (U, "Insufficient NUMA cpu")


def test_nodenumaresource_case_11_policies_of_node_and_pod():
    restricted = pod(numa={"numaTopologyPolicy": "Restricted"})
    assert two_zones("BestEffort").refusal(restricted) == (UAU, "node(s) NUMA Topology policy not match")
    assert two_zones("").numa(restricted) == {0: {"cpu": "4", "memory": "40Gi"}}


@pytest.mark.parametrize(
    ("requested", "left", "whole", "cores", "shares"),
    [
        (7000, (8000, 8000), True, None, [3000, 4000]),
        (3500, (8000, 8000), False, None, [1750, 1750]),
        (6000, (8000, 8000), True, 2, [2000, 4000]),
        (8000, (1000, 10000), True, None, [1000, 7000]),
        (8000, (10000, 1000), True, None, [7000, 1000]),
    ],
)
def test_nodenumaresource_case_12_splits(requested, left, whole, cores, shares):
    per_core = None if cores is None else np.array([cores])
    parts = split(np.array([[left]]), [requested], np.array([[0, 1]]), whole=whole, cores=per_core)
    given = dict(zip(parts.nodes[0, 0, :, 0].tolist(), parts.given[0, 0, :, 0].tolist(), strict=True))
    assert [given[0], given[1]] == shares
    assert parts.rest.item() == 0


def test_nodenumaresource_case_12_splits_of_pods():
    """The same where pods get them."""
    zones = [("8", "64Gi"), ("8", "64Gi")]
    world = World(node(cpu="16", numa_topology_policy="Restricted"), topology(detail(2, 1, 4), zones))

    def shares(thing):
        return {at: zone["cpu"] for at, zone in world.numa(thing).items()}

    assert shares(lsr(cpu="13")) == {0: "6", 1: "7"}
    assert shares(pod(cpu="10500m", memory=None)) == {0: "5250m", 1: "5250m"}
    assert shares(lsr(cpu="10", spec={"requiredCPUBindPolicy": "FullPCPUs"})) == {0: "4", 1: "6"}
    world.put(holder("h", "0-6", {0: ("7", "0")}, "7"))
    assert shares(lsr(cpu="9")) == {0: "1", 1: "8"}
    world.remove(holder("h"))
    world.put(holder("h", "9-15", {1: ("7", "0")}, "7"))
    assert shares(lsr(cpu="9")) == {0: "8", 1: "1"}


def test_nodenumaresource_case_13_whole_cores_on_both_numa_nodes():
    held = holder("h", "0-43,53-96", {0: ("48", "0"), 1: ("48", "0")}, "88")
    world = two_zones("Restricted", held)
    _, written = world.outcome(lsr(cpu="8", spec={"requiredCPUBindPolicy": "FullPCPUs"}))
    assert written["resource-status"] == {
        "cpuset": "44-47,98-101",
        "numaNodeResources": [{"node": 0, "resources": {"cpu": "4"}}, {"node": 1, "resources": {"cpu": "4"}}],
    }


def test_nodenumaresource_case_14_one_cpu_of_each_core():
    held = holder("h", "1,3,5,7-101,103", {0: ("48", "0"), 1: ("51", "0")}, "99")
    world = two_zones("Restricted", held)
    plugin, thing = world.plugin, world.pod(lsr(spec={"requiredCPUBindPolicy": "SpreadByPCPUs"}))
    demand = demand_on(plugin.compiled.request(thing.shape), MODES[world.columns.mode.data.item(0)])
    found = plugin._allocator.allocate(plugin.compiled.wanted(thing.shape), demand, 0, 0b11, plugin._strategy)
    assert found.cpus == 1 << 0 | 1 << 2 | 1 << 4 | 1 << 102
    assert [dict(of_node.amounts)["cpu"] for of_node in found.numa] == [3000, 1000]


def test_nodenumaresource_case_15_amplified_zones():
    held = holder("h0", "0-3", {0: ("4", "0")}, "4"), holder("h1", None, {0: ("4", "0")}, "4", qos="LS")
    world = World(node(ratio=1.5), topology(detail(1, 1, 8), [("16", "64Gi")]), *held)
    assert world.zones()[0]["cpu"] == ("24", "10", "14")


def test_nodenumaresource_case_15_the_amplified_check():
    held = holder("h0", "0-7", cpu="8"), holder("h1", cpu="20", qos="LS")
    world = World(node(cpu="96", ratio=1.5), topology(detail(2, 1, 32), [("64", "64Gi")]), *held)
    assert world.outcome(lsr(cpu="40"))[0] == (OK,)
    assert world.refusal(lsr(cpu="43")) == (U, "Insufficient amplified cpu")
    world = World(
        node(cpu="96", ratio=1.5, numa_topology_policy="Restricted"),
        topology(detail(2, 1, 16), [("32", "64Gi"), ("32", "64Gi")]),
    )
    assert sum(int(zone["cpu"]) for zone in world.numa(lsr(cpu="40")).values()) == 40, "recorded as requested"


@pytest.mark.parametrize(
    ("present", "wanted", "passes"),
    [
        (holder("h", "0-31", cpu="32"), pod(cpu="32"), False),
        (holder("h", cpu="32", qos="LS"), pod(cpu="32"), True),
        (holder("h", cpu="32", qos="LS"), lsr(cpu="32"), False),
    ],
    ids=["bound, then shared", "shared, then shared", "shared, then bound"],
)
def test_nodenumaresource_case_16_amplified_twice(present, wanted, passes):
    world = World(node(cpu="64", ratio=2), topology(detail(1, 1, 16)), present)
    expected = (OK,) if passes else (U, "Insufficient amplified cpu")
    assert world.verdicts(wanted) == {"m1": expected}


INVALID = (UAU, "node(s) invalid CPU Topology")


@pytest.mark.parametrize(
    ("ratio", "cpu", "expected"), [(1.5, "4", INVALID), (1.5, None, (OK,)), (1.0, "4", (OK,))], ids=str
)
def test_cpu_that_is_amplified_on_a_node_whose_cpus_cannot_be_read(ratio, cpu, expected):
    """What CPUs of their own are worth there cannot be told, so no pod that requests CPU gets any."""
    world = World(node(ratio=ratio), topology([], Z2))
    assert world.verdicts(pod(cpu=cpu)) == {"m1": expected}


def test_nodenumaresource_case_17_scores():
    args = {"scoringStrategy": MOST, "numaScoringStrategy": MOST}
    world = World(
        node("104", numa_topology_policy="SingleNUMANode"),
        topology(T26, Z2),
        named(node("64", "128Gi", numa_topology_policy="SingleNUMANode"), "m2"),
        named(topology(detail(1, 1, 32), [("64", "128Gi")]), "m2"),
        args=args,
    )
    assert world.scores(pod(cpu="21")) == {"m1": 35, "m2": 31}
    assert world.numa(pod(cpu="21"), "m2") == {}
    for name, cpu, memory in (("m1", "104", "256Gi"), ("m2", "64", "128Gi")):
        world.put(named(node(cpu, memory, numa_topology_policy="Restricted"), name))
    assert world.scores(pod(cpu="50")) == {"m1": 63, "m2": 54}


EXCLUSIVE = {"numaTopologyPolicy": "SingleNUMANode", "singleNUMANodeExclusive": "Required"}


def test_nodenumaresource_case_18_exclusive_numa_nodes():
    """The status [shared, single] takes CPUs of a NUMA node that is not NUMA node 1, too: so there are four of them."""
    cpus, zones = detail(4, 1, 13), [("26", "64Gi")] * 4
    held = holder("s", "0,26", cpu="2"), holder("t", "52", cpu="1")
    world = World(node("104"), topology(cpus, zones), *held)
    assert world.columns.statuses(np.array([0]), 4).tolist() == [[2, 2, 1, 0]]
    assert list(world.numa(pod(numa=EXCLUSIVE))) == [2]
    both = two_zones("SingleNUMANode", *USED, holder("s", "0,52", cpu="2"))
    masks = "cpu prefer [01 10] among [01 10 11],memory prefer [01 10] among [01 10 11]"
    assert both.refusal(pod(numa=EXCLUSIVE)) == (U, f"Unaligned NUMA Hint cause {masks}")
    large = pod(cpu="60", numa={"numaTopologyPolicy": "Restricted", "singleNUMANodeExclusive": "Required"})
    shared = World(node("104"), topology(cpus, zones), holder("s", "0,26", cpu="2"))
    assert sorted(shared.numa(large)) == [0, 1, 2]


def test_nodenumaresource_case_18_shared_and_single_by_the_books():
    """Case 9 with the status itself: the NUMA node that several-node pods use is not taken."""
    world = two_zones("SingleNUMANode", *USED)
    world.columns.shared.data[0, 0] = world.columns.single.data[0, 1] = 1
    assert world.numa(pod(numa=EXCLUSIVE)) == {1: {"cpu": "4", "memory": "40Gi"}}
    world = two_zones("Restricted")
    world.columns.shared.data[0, 0] = 1
    large = pod(cpu="60", numa={**EXCLUSIVE, "numaTopologyPolicy": "Restricted"})
    assert sorted(world.numa(large)) == [0, 1]


def test_nodenumaresource_case_21_restart():
    held = holder("h", "0-3", cpu="4", level="PCPULevel")
    world = t1(held)
    assert world.readings()["m1"]["holders"] == dict.fromkeys(range(4), 1)
    taken = world.plugin._allocator._taken(0, world.columns.layout(0))
    assert (taken.allocated, taken.pcpu_level, taken.numa_node_level) == (0b1111, 0b1111, 0)
    assert world.free() == "4-15"
    world.put({**held, "status": {"phase": "Failed"}})
    assert world.free() == "0-15"


@pytest.mark.parametrize(
    ("reported", "policy"),
    [("RestrictedPodLevel", NUMAPolicy.NONE), ("SingleNUMANodePodLevel", NUMAPolicy.SINGLE_NUMA_NODE)],
)
def test_nodenumaresource_case_22_the_kubelets_topology_policy(reported, policy):
    world = World(node(), topology(T1, policies=[reported]))
    assert world.nodes.of_node("m1").numa is policy


def test_nodenumaresource_case_23_the_spec_is_completed():
    def completed(thing, **labels):
        _, written = t1(**labels).outcome(thing)
        assert written["resource-status"]["cpuset"]
        return written.get("resource-spec")

    spread = {"requiredCPUBindPolicy": "SpreadByPCPUs", "preferredCPUBindPolicy": "SpreadByPCPUs"}
    assert completed(lsr(spec={**spread, "preferredCPUBindPolicy": "Default"})) == spread
    assert completed(pod(), cpu_bind_policy="FullPCPUsOnly") == {"requiredCPUBindPolicy": "FullPCPUs"}
    assert completed(lsr(spec={"preferredCPUBindPolicy": "SpreadByPCPUs"})) is None


def test_nodenumaresource_case_24_designated():
    world = World(node(), topology(T1, [("8", "64Gi"), ("8", "64Gi")]))
    hint = {"internal.scheduling.koordinator.sh/scheduling-hint": '{"extensions": {"NodeNUMAResource": {}}}'}

    def designated(cpuset, numa=()):
        thing = lsr(status={"cpuset": cpuset, **({"numaNodeResources": list(numa)} if numa else {})})
        thing["metadata"]["annotations"] |= hint
        return thing

    assert world.refusal(designated("20-23")) == (U, NOT_ENOUGH)
    amounts = {"node": 0, "resources": {"cpu": "4"}}
    _, written = world.outcome(designated("0-3", [amounts]))
    assert written["resource-status"] == {"cpuset": "0-3", "numaNodeResources": [amounts]}
    world.put(holder("h", "0-1", cpu="2"))
    assert world.refusal(designated("0-3")) == (U, NOT_ENOUGH), "another pod holds some of them"


def test_a_machine_with_more_numa_nodes_than_are_aligned():
    """Pods get CPUs of all of them, by whatever policy."""
    for spec, cpu in (
        (None, "64"),
        ({"requiredCPUBindPolicy": "FullPCPUs"}, "64"),
        ({"requiredCPUBindPolicy": "SpreadByPCPUs"}, "32"),
    ):
        world = World(node("64"), topology(detail(4, 4, 2)))
        given = world.cpus(lsr(cpu=cpu, spec=spec))
        assert len(parse_cpus(given)) == int(cpu)
    world = World(node("64"), topology(detail(4, 4, 2)), holder("h", "0-1", cpu="2"))
    assert world.refusal(lsr(cpu="64", spec={"requiredCPUBindPolicy": "FullPCPUs"})) == (U, NOT_ENOUGH)
    assert world.cpus(lsr(cpu="62", spec={"requiredCPUBindPolicy": "FullPCPUs"})) == "2-63"
