"""Starts in any order of lists; bursts; bindings that are confirmed."""

import asyncio
from itertools import permutations

import pytest

from koordsched.framework.interface import CycleState
from tests.embedded import scheduler_on
from tests.plugins.loadaware.objects import condition, measured, metric, node, p16, pod
from tests.plugins.loadaware.running import api_server, cluster, remove, where
from tests.plugins.loadaware.world import NOW, World, configuration
from tests.virtualtime import WALL_EPOCH, run

ARGS = {
    "prodUsageThresholds": {"cpu": 50},
    "aggregated": {"scoreAggregationType": "p95", "scoreAggregatedDuration": "5m0s"},
}
LISTS = {
    "nodes": [node("a"), node("b", thresholds={"usageThresholds": {"cpu": 30}})],
    "pods": [
        p16("recent", on="a", placed=NOW - 10),
        p16("measured", on="a", placed=NOW - 600),
        p16("silent", on="b"),
        p16("lost", on="gone", placed=NOW - 10),
    ],
    "reports": [
        metric("a", ("20", "40Gi"), at=NOW, pods=[measured("measured", "8", "8Gi")]),
        metric("b", ("20", "40Gi"), at=NOW, aggregated={"5m0s": {"p95": ("30", "40Gi")}}),
        metric("gone", ("20", "40Gi"), at=NOW),
    ],
}


def in_order(order):
    return World(*(thing for name in order for thing in LISTS[name]), args=ARGS)


@pytest.mark.parametrize("order", list(permutations(LISTS)), ids="-".join)
def test_lists_may_come_in_any_order(order):
    assert in_order(order).readings() == in_order(LISTS).readings()


def test_the_columns_are_what_the_objects_say():
    world = in_order(LISTS)
    assert world.readings()["a", 0].room[0] == 62_879 - 20_000 - 13_600
    assert world.readings()["a", 1].room[0] == 48_479 - 8_000 - 13_600
    assert world.readings()["b", 0].room[0] == 29_279 - 20_000 - 13_600
    assert world.readings()["b", 0].left[0] == 96_000 - 30_000 - 13_600
    assert world.readings()["a", 0].left[0] == 96_000 - 2 * 13_600, "estimates, as that period is not reported"


def test_restarts_change_nothing():
    """A busy cluster, five restarts: what decides is as before."""

    def readings(running):
        plugin = running.scheduler.profiles["default-scheduler"].plugins["LoadAwareScheduling"]
        columns, table = plugin.loads.columns, running.scheduler.cluster.table
        return {
            name: (columns.gate.data[row].tolist(), columns.slack.data[row].tolist())
            for name, row in sorted(table.row_of.items())
        }

    async def scenario():
        later = WALL_EPOCH + 500
        nodes = [node(f"n{i}") for i in range(3)]
        reports = [metric(f"n{i}", (str(10 * i), "1Gi"), at=later) for i in range(3)]
        embedded, before, placed = api_server(*nodes, *reports), None, 0
        for life in range(5):
            async with scheduler_on(embedded, configuration(ARGS)) as running:
                await asyncio.sleep(1)
                assert before is None or readings(running) == before
                for i in range(3):
                    embedded.insert(pod(f"p{life}-{i}", {"cpu": "2"}))
                if life:
                    remove(embedded, pod(f"p{life - 1}-0"))
                await asyncio.sleep(15)
                placed += sum(where(embedded, f"p{life}-{i}") is not None for i in range(3))
                before = readings(running)
        return placed

    assert run(scenario()) == 15


def test_pods_placed_one_after_the_other_see_each_other():
    """Ten pods at once, two nodes: each node takes those that stay below its threshold, and no more."""

    async def scenario():
        nodes = [node("a", cpu="1000"), node("b", cpu="1000")]
        reports = [metric(name, ("60", "1Gi"), at=WALL_EPOCH + 500) for name in ("a", "b")]
        async with cluster(*nodes, *reports) as (embedded, _):
            for i in range(20):
                embedded.insert(pod(f"p{i}", {"cpu": "100"}))
            await asyncio.sleep(20)
            places = [where(embedded, f"p{i}") for i in range(20)]
            return places.count("a"), places.count("b"), places.count(None)

    # 60 + 6 * 85 = 570 leave room for one more: 655 would be 65.5 percent, which is rounded to 66.
    assert run(scenario()) == (6, 6, 8)


def test_a_burst_goes_to_the_node_that_uses_least():
    world = World(node("a"), node("b"), *(metric(name, ("0", "0"), at=NOW) for name in ("a", "b")))
    chosen = []
    for i in range(6):
        scores = world.scores(p16(f"p{i}"))
        best = max(sorted(scores), key=scores.get)
        world.assume(p16(f"p{i}"), best)
        chosen.append(best)
    assert chosen == ["a", "b"] * 3


def test_a_confirmation_touches_no_row():
    world = World(node("a"), metric("a", ("10", "1Gi"), at=NOW))
    stamp = lambda: world.table.log.stamp(0, world.columns.facet)  # noqa: E731
    world.assume(p16("p"), "a")
    before, touched = world.readings(), stamp()
    world.clock.now += 1.5
    bound = p16("p", on="a", placed=NOW + 1)
    world.cluster.pod_seen(world.pod(p16("p")))
    world.put(p16("p", on="a"))
    world.put(bound)
    bound["status"]["conditions"].append(condition("Ready", NOW + 2))
    world.put(bound)
    assert (world.readings(), stamp()) == (before, touched)
    assert world.readings()["a", 0].room[0] == 62_879 - 10_000 - 13_600


def test_what_is_remembered_of_verdicts_follows():
    """Through the caches of the profile: refused, admitted by a report, refused by the pods of a burst."""
    world = World(node(), metric(of_node=("70", "1Gi"), at=NOW))
    feasible = lambda: world.profile.filtering.filter(CycleState(world.pod(pod("new")))).feasible  # noqa: E731
    assert feasible() == 0
    world.put(metric(of_node=("40", "1Gi"), at=NOW))
    assert feasible() == 1
    world.assume(p16("one"))
    assert feasible() == 1
    two = world.assume(p16("two"))
    assert feasible() == 0
    world.cluster.forget(two)
    assert feasible() == 1
    world.pass_time(180)
    assert feasible() == 0
