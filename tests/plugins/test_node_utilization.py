"""What scores keep of every node equals what the table says, whatever happened to it, or is not used."""

import numpy as np
import pytest

from koordsched.cluster.resources import CPU, MEMORY
from koordsched.plugins.shared.nodeutilization import NodeUtilization
from tests.plugins.harness import Bench
from tests.plugins.objects import container, node, pod

EXACT = 1 << 46


def less_twice(used, capacity):
    return capacity - 2 * used


@pytest.fixture
def bench():
    return Bench(*(node(f"n{i}", cpu="4", memory="8Gi") for i in range(50)))


def running(name, on, **requests):
    item = pod(name, container(**requests))
    item["metadata"]["uid"] = name
    item["spec"]["nodeName"] = on
    return item


def kept(utilization, table):
    """(capacity, base) per row that has a node, of each resource."""
    utilization.refresh(table)
    alive = np.flatnonzero(table.alive.data[: table.size])
    return [
        (capacity[alive].tolist(), base[alive].tolist())
        for capacity, base in zip(utilization.capacity, utilization.base, strict=True)
    ]


def in_table(table):
    alive = np.flatnonzero(table.alive.data[: table.size])
    facts = []
    for allocatable, requested in (
        (table.allocatable[CPU], table.requested[CPU]),
        (table.allocatable[MEMORY], table.requested_nonzero[MEMORY]),
    ):
        capacity, used = allocatable.data[alive], requested.data[alive]
        facts.append((capacity.tolist(), (capacity - 2 * used).tolist()))
    return facts


def test_follows_pods_and_nodes_that_come_change_and_go(bench):
    table = bench.cluster.table
    utilization = NodeUtilization([(CPU, False), (MEMORY, True)], EXACT, less_twice)
    assert utilization.refresh(table) == table.all_rows

    def check():
        assert kept(utilization, table) == in_table(table)
        assert utilization.usable

    check()
    bench.add(running("a", "n3", cpu="1"))
    assert utilization.refresh(table) == [table.row_of["n3"]]
    check()
    for i in range(40):  # more than come as a list, fewer than make it start anew
        bench.add(running(f"b{i}", f"n{i % 5}", cpu="100m", memory="1Gi"))
    assert isinstance(utilization.refresh(table), np.ndarray)
    check()
    bench.cluster.remove_pod("a")
    bench.cluster.remove_node("n7")
    check()
    bench.add(node("n7", cpu="8", memory="1Gi"))
    bench.add(node("n8", cpu="2", memory="2Gi"))
    check()
    for i in range(100):
        bench.add(node(f"new-{i}", cpu="16", memory="64Gi"))
    check()


@pytest.mark.parametrize(
    ("cpu", "memory"),
    [
        pytest.param("4", "0", id="a node without the resource"),
        pytest.param("4", "64Ti", id="an amount that floating point would round"),
    ],
)
def test_is_not_used_where_it_would_be_wrong_and_is_used_again_afterwards(bench, cpu, memory):
    table = bench.cluster.table
    utilization = NodeUtilization([(CPU, False), (MEMORY, True)], EXACT, less_twice)
    utilization.refresh(table)
    assert utilization.usable
    bench.add(node("n9", cpu=cpu, memory=memory))
    utilization.refresh(table)
    assert not utilization.usable
    bench.add(node("n9", cpu="4", memory="8Gi"))
    assert kept(utilization, table) == in_table(table)
    assert utilization.usable


@pytest.mark.parametrize("name", ["NodeResourcesFit", "NodeResourcesBalancedAllocation"])
@pytest.mark.parametrize("memory", ["8Gi", "63Ti", "65Ti", "0"])
def test_scores_are_the_same_either_way(name, memory):
    bench = Bench(*(node(f"n{i}", cpu="4", memory="8Gi") for i in range(4)), node("odd", cpu="3", memory=memory))
    bench.add(running("a", "n1", cpu="1900m", memory="1Gi"))
    plugin = bench.plugin(name)
    for requests in ({"cpu": "100m"}, {"cpu": "300m", "memory": "3Gi"}, {"cpu": "8", "memory": "64Ti"}):
        bench.score(plugin, pod("w", container(**requests)))  # asserts that all forms of rows answer alike


@pytest.mark.parametrize("name", ["NodeResourcesFit", "NodeResourcesBalancedAllocation"])
def test_scores_follow_pods_that_come_and_go(name):
    bench = Bench(*(node(f"n{i}", cpu="4", memory="8Gi") for i in range(50)))
    plugin, wanted = bench.plugin(name), pod("w", container(cpu="1", memory="1Gi"))
    empty = bench.score(plugin, wanted)
    bench.add(running("a", "n3", cpu="2", memory="1Gi"))
    found = bench.score(plugin, wanted)
    assert found.pop("n3") != empty["n3"]
    assert found == {name: score for name, score in empty.items() if name != "n3"}
    bench.cluster.remove_pod("a")
    assert bench.score(plugin, wanted) == empty


def test_the_balance_of_three_resources():
    bench = Bench(node("n", cpu="4", memory="8Gi", gpu="4"), node("m", cpu="4", memory="8Gi"))
    resources = [{"name": name, "weight": 1} for name in ("cpu", "memory", "ex.com/gpu")]
    name = "NodeResourcesBalancedAllocation"
    plugin = bench.plugin(name, bench.typed_args(name, {"resources": resources}))
    # A quarter, half and three quarters deviate by 0.204 from their mean; a quarter and half by 0.125.
    scores = bench.score(plugin, pod("w", container(cpu="1", memory="4Gi", gpu="3")))
    assert scores == {"n": 50 + (50 + 79 - 100) // 2, "m": 50 + (50 + 87 - 100) // 2}


@pytest.mark.parametrize("strategy", ["LeastAllocated", "MostAllocated"])
@pytest.mark.parametrize("weights", [(1, 1, 1, 1), (3, 1, 2, 5), (100, 100, 100, 100)])
def test_so_they_are_with_any_weights(strategy, weights):
    everywhere = {"ephemeral-storage": "100Gi", "gpu": "8"}
    bench = Bench(*(node(f"n{i}", **everywhere) for i in range(4)), node("large", cpu="32", memory="1Ti", **everywhere))
    bench.add(running("a", "n1", **{"cpu": "1900m", "memory": "1Gi", "ex.com/gpu": "3"}))
    names = ("cpu", "memory", "ephemeral-storage", "ex.com/gpu")
    resources = [{"name": name, "weight": weight} for name, weight in zip(names, weights, strict=True)]
    args = {"scoringStrategy": {"type": strategy, "resources": resources}}
    plugin = bench.plugin("NodeResourcesFit", bench.typed_args("NodeResourcesFit", args))
    for requests in ({"cpu": "100m"}, {"memory": "3Gi", "ephemeral-storage": "7Gi", "ex.com/gpu": "2"}):
        bench.score(plugin, pod("w", container(**requests)))
