"""Sums of absurd requests: the node is full, neither empty nor an error, and exact again when the pods are gone."""

import warnings

import pytest

from koordsched.api.quantity import LIMIT
from koordsched.cluster.nodetable import MOST_REQUESTED
from koordsched.cluster.resources import MEMORY
from tests.plugins.harness import Bench
from tests.plugins.objects import container, node, pod

ABSURD = "9Ei"


@pytest.fixture(autouse=True)
def no_overflow():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def world(count, resource="memory"):
    """A node with room for any number of pods that has `count` absurd ones, and a sound one."""
    nodes = [node(name, cpu="8", memory="64Gi", **{"ex.com/r": "4"}) for name in ("full", "sound")]
    for thing in nodes:
        thing["status"]["allocatable"]["pods"] = "100000"
    bench = Bench(*nodes)
    placed = [pod(f"p{i}", container(**{resource: ABSURD}), on="full") for i in range(count)]
    for thing in placed:
        bench.add(thing)
    return bench, placed


@pytest.mark.parametrize("count", [1, 1023, 1024, 1030, 2060])
@pytest.mark.parametrize("resource", ["memory", "cpu", "ex.com/r"])
def test_a_node_with_absurd_requests_is_full_and_others_are_not(count, resource):
    bench, _ = world(count, resource)
    asked = pod("new", container(**{resource: "1"}), priority=10)
    verdicts = bench.filter(bench.plugin("NodeResourcesFit"), asked)
    assert (verdicts["full"], verdicts["sound"]) == (("Unschedulable", f"Insufficient {resource}"), None)
    for name in ("NodeResourcesFit", "NodeResourcesBalancedAllocation"):
        scores = bench.plugin(name).score_rows(bench.pod(asked).shape, bench.cluster.table, bench.rows)
        assert scores is not None


@pytest.mark.parametrize("count", [3, 5, 1030])
def test_the_sum_is_exact_again_when_the_pods_are_gone(count):
    bench, placed = world(count)
    bench.add(pod("small", container(memory="1Gi"), on="full"))
    table = bench.cluster.table
    row = table.row_of["full"]
    column = table.requested[MEMORY].data
    assert column[row] == min(count * LIMIT + (1 << 30), MOST_REQUESTED)
    for thing in placed[1:]:
        bench.cluster.remove_pod(thing["metadata"]["uid"])
    assert column[row] == LIMIT + (1 << 30)
    bench.cluster.remove_pod(placed[0]["metadata"]["uid"])
    assert column[row] == table.requested_nonzero[MEMORY].data[row] == 1 << 30


def test_a_node_that_is_replaced_begins_anew():
    bench, placed = world(1030)
    bench.cluster.remove_node("full")
    for thing in placed:
        bench.cluster.remove_pod(thing["metadata"]["uid"])
    bench.add(node("full", memory="64Gi"))
    table = bench.cluster.table
    assert table.requested[MEMORY].data[table.row_of["full"]] == 0
    assert not table.beyond
