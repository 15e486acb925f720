"""CPUs picked on small machines (nodenumaresource spec 3.5, the table of worked picks, and 7)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordsched.plugins.nodenumaresource.cpupick import Taken, take, take_preferring
from koordsched.plugins.nodenumaresource.policies import AllocateStrategy, BindPolicy, ExclusivePolicy
from koordsched.plugins.nodenumaresource.topology import CPUTopology
from koordsched.plugins.shared import cpuset
from tests.depth import examples
from tests.plugins.nodenumaresource.topologies import machine

MACHINES = {
    "T1": machine(2, 1, 4),
    "T2": machine(2, 1, 4, linux=True),
    "T3": machine(2, 2, 4),
    "2x1x8x2": machine(2, 1, 8),
    "3x1x4x2": machine(3, 1, 4),
}
BIND = {"F": BindPolicy.FULL_PCPUS, "S": BindPolicy.SPREAD_BY_PCPUS}
STRATEGY = {"L": AllocateStrategy.LEAST_ALLOCATED, "M": AllocateStrategy.MOST_ALLOCATED}
BROKEN = "0,1,8,9,16,17,24,25"


def in_order(text):
    """Ids in the order of a text, as `9,0-2`."""
    return [cpu for part in text.split(",") for cpu in cpuset.ids(cpuset.parse(part))]


def picked(name, used, count, bind, strategy, exclusive=ExclusivePolicy.NONE, **levels):
    topology, used = MACHINES[name], cpuset.parse(used)
    taken = Taken(allocated=used, **dict.fromkeys(levels, used))
    return take(topology, topology.cpus & ~used, count, BIND[bind], exclusive, STRATEGY[strategy], taken)


@pytest.mark.parametrize(
    ("name", "used", "count", "bind", "strategies", "expected"),
    [
        ("T1", "", 4, "F", "LM", "0-3"),
        ("T1", "", 4, "S", "LM", "0,2,4,6"),
        ("T1", "", 10, "F", "LM", "0-9"),
        ("T1", "", 10, "S", "LM", "0,2,4,6,8,10,12,14,1,3"),
        ("T1", "0", 4, "F", "L", "8-11"),
        ("T1", "0", 4, "F", "M", "2-5"),
        ("T1", "0", 4, "S", "L", "8,10,12,14"),
        ("T1", "0", 4, "S", "M", "1,2,4,6"),
        ("T1", "0,2", 6, "S", "L", "8,10,12,14,9,11"),
        ("T1", "0,2", 6, "S", "M", "1,3,4,6,5,7"),
        ("T1", "0,2", 6, "F", "M", "8-13"),
        ("T1", "0-3", 10, "F", "L", "8-15,4,5"),
        ("T1", "0,2,4,6,8,10,12,14", 4, "F", "LM", "1,3,5,7"),
        ("T1", "0,2,4,6,8,10,12", 4, "F", "M", "14,15,9,11"),
        ("T2", "", 4, "F", "L", "0,8,1,9"),
        ("T2", "", 4, "S", "L", "0,1,2,3"),
        ("T2", "0-1", 6, "S", "M", "2,3,8,9,10,11"),
        ("T2", "0-1", 6, "S", "L", "4,5,6,7,12,13"),
        ("T3", "0-5,16-23", 6, "F", "M", "24-29"),
        ("T3", "0-5,16-23", 6, "F", "L", "8-13"),
        ("T3", "0-5,16-23", 12, "F", "LM", "6-15,24,25"),
        ("T3", BROKEN, 16, "F", "L", "2-7,10-15,18-21"),
        ("T3", BROKEN, 16, "S", "L", "2,4,6,10,12,14,18,20,22,26,28,30,3,5,7,11"),
    ],
)
def test_nodenumaresource_case_07_worked_picks(name, used, count, bind, strategies, expected):
    for strategy in strategies:
        assert picked(name, used, count, bind, strategy) == in_order(expected)


@pytest.mark.parametrize(
    ("used", "of", "pod", "bind", "strategy", "expected"),
    [
        ("0,2", "pcpu_level", ExclusivePolicy.PCPU_LEVEL, "S", "M", "8,10,12,14"),
        ("0,2,8,10", "pcpu_level", ExclusivePolicy.PCPU_LEVEL, "S", "L", "1,3,4,6"),
        ("0,2", "numa_node_level", ExclusivePolicy.NUMA_NODE_LEVEL, "F", "M", "8-11"),
        ("0,2", "numa_node_level", ExclusivePolicy.NUMA_NODE_LEVEL, "S", "M", "8,10,12,14"),
        ("0,2", "pcpu_level", ExclusivePolicy.NONE, "S", "M", "1,3,4,6"),
        ("0,2", "numa_node_level", ExclusivePolicy.NONE, "S", "M", "1,3,4,6"),
        ("0,2", "numa_node_level", ExclusivePolicy.NONE, "F", "M", "4-7"),
        ("0,2", "pcpu_level", ExclusivePolicy.NUMA_NODE_LEVEL, "S", "M", "1,3,4,6"),
    ],
)
def test_nodenumaresource_case_07_exclusive_policies(used, of, pod, bind, strategy, expected):
    assert picked("T1", used, 4, bind, strategy, pod, **{of: True}) == in_order(expected)


def holders_of(picks):
    """How many of some lists each CPU is in."""
    return {cpu: sum(cpu in pick for pick in picks) for cpu in {cpu for pick in picks for cpu in pick}}


@pytest.mark.parametrize(
    ("topology", "picks"),
    [
        (machine(1, 1, 4), [(4, "F", "0-3"), (5, "F", "4-7,0"), (4, "F", "2-5")]),
        (
            machine(1, 1, 16),
            [
                (16, "S", "0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30"),
                (16, "F", "0-15"),
                (16, "S", "17,19,21,23,25,27,29,31,1,3,5,7,9,11,13,15"),
                (16, "F", "16-31"),
            ],
        ),
    ],
)
def test_nodenumaresource_case_07_cpus_that_two_pods_may_hold(topology, picks):
    made = []
    for count, bind, expected in picks:
        holders = holders_of(made)
        free = topology.cpus & ~cpuset.of(cpu for cpu, pods in holders.items() if pods == 2)
        taken = Taken(allocated=cpuset.of(holders), pcpu_level=cpuset.of(holders), holders=holders)
        pick = take(topology, free, count, BIND[bind], ExclusivePolicy.NONE, AllocateStrategy.MOST_ALLOCATED, taken)
        assert pick == in_order(expected)
        made.append(pick)


@pytest.mark.parametrize(
    ("strategy", "expected"), [("L", "16-19"), ("M", "4-7")], ids=["LeastAllocated", "MostAllocated"]
)
def test_nodenumaresource_case_06_the_strategy_chooses_the_numa_node(strategy, expected):
    assert picked("2x1x8x2", "0-3", 4, "F", strategy) == in_order(expected)


@pytest.mark.parametrize(("preferred", "count", "expected"), [("5,7,9,11", 6, "0,1,5,7,9,11"), ("4-10", 8, "4-10,12")])
def test_nodenumaresource_case_20_preferred_cpus_come_first(preferred, count, expected):
    topology, preferred = MACHINES["T1"], cpuset.parse(preferred)
    pick = take_preferring(
        topology, topology.cpus, count, BIND["F"], ExclusivePolicy.NONE, STRATEGY["L"], Taken(), preferred
    )
    assert set(pick[: preferred.bit_count()]) == set(cpuset.ids(preferred))
    assert sorted(pick) == in_order(expected)


def test_never_more_cpus_than_asked_for():
    """Upstream gives CPU 19, too (spec 6.4)."""
    assert picked("3x1x4x2", "8,9,16,17", 11, "F", "L") == in_order("0-7,10,11,18")


@pytest.mark.parametrize("count", [0, -1, 17, 1 << 70])
def test_no_cpus_where_there_are_not_enough(count):
    topology = MACHINES["T1"]
    for bind in BindPolicy:
        arguments = (topology, topology.cpus | 1 << 90, count, bind, ExclusivePolicy.NONE, STRATEGY["L"])
        assert take(*arguments) == take_preferring(*arguments, Taken(), cpuset.parse("0-3,90")) == []


@settings(max_examples=examples(500))
@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 4), st.integers(0, 2), st.integers(0, 3)),
        min_size=1,
        max_size=24,
        unique_by=lambda cpu: cpu[0],
    ),
    st.data(),
)
def test_machines_that_make_no_sense_get_what_is_asked_for(cpus, data):
    """Cores on two NUMA nodes, NUMA nodes on two sockets, cores with dozens of CPUs."""
    topology = CPUTopology(cpus)
    available = data.draw(st.sets(st.sampled_from([cpu for cpu, *_ in cpus])))
    count = data.draw(st.integers(0, len(available)))
    bind, exclusive, strategy = (
        data.draw(st.sampled_from(list(policy))) for policy in (BindPolicy, ExclusivePolicy, AllocateStrategy)
    )
    ids = st.sets(st.sampled_from([cpu for cpu, *_ in cpus])).map(cpuset.of)
    taken = Taken(pcpu_level=data.draw(ids), numa_node_level=data.draw(ids))
    pick = take_preferring(topology, cpuset.of(available), count, bind, exclusive, strategy, taken, data.draw(ids))
    assert len(pick) == len(set(pick)) == count
    assert set(pick) <= available


@pytest.mark.parametrize(
    ("policy", "text", "expected"),
    [
        (BindPolicy, "SpreadByPCPUs", BindPolicy.SPREAD_BY_PCPUS),
        (BindPolicy, "ConstrainedBurst", BindPolicy.NONE),
        (BindPolicy, "fullpcpus", BindPolicy.NONE),
        (ExclusivePolicy, "PCPULevel", ExclusivePolicy.PCPU_LEVEL),
        (ExclusivePolicy, "", ExclusivePolicy.NONE),
        (AllocateStrategy, "MostAllocated", AllocateStrategy.MOST_ALLOCATED),
        (AllocateStrategy, "DistributeEvenly", AllocateStrategy.LEAST_ALLOCATED),
    ],
)
def test_policies_by_text(policy, text, expected):
    assert policy(text) is expected
