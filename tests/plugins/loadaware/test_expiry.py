"""Reports that grow old: verdicts and scores change at their time, with nothing else happening."""

import asyncio

import pytest

from tests.plugins.loadaware.objects import metric, node, pod
from tests.plugins.loadaware.running import cluster, replace, where
from tests.plugins.loadaware.world import NOW, World
from tests.plugins.states import carry_over
from tests.virtualtime import WALL_EPOCH, run

EMPTY = pod("empty")
EXPIRED = "node(s) nodeMetric expired"


def test_verdict_and_score_change_at_their_time():
    world = World(node(), metric(of_node=("1", "1Gi"), at=NOW))
    world.pass_time(179)
    assert (world.refusal(EMPTY), world.score(EMPTY)) == (None, 99 - 1)
    world.pass_time(1)
    assert (world.refusal(EMPTY), world.score(EMPTY)) == (EXPIRED, 0)
    world.put(metric(of_node=("1", "1Gi"), at=NOW + 180))
    assert world.refusal(EMPTY) is None
    world.pass_time(179)
    assert world.refusal(EMPTY) is None, "the time of the earlier report does not count any more"
    world.pass_time(1)
    assert world.refusal(EMPTY) == EXPIRED


def test_a_report_from_the_future_lasts_longer():
    world = World(node(), metric(of_node=("1", "1Gi"), at=NOW + 100))
    world.pass_time(279)
    assert world.refusal(EMPTY) is None
    world.pass_time(1)
    assert world.refusal(EMPTY) == EXPIRED


def test_numbers_that_are_too_old_count_on_if_expiry_does_not():
    world = World(node(), metric(of_node=("90", "1Gi"), at=NOW - 10_000), args={"filterExpiredNodeMetrics": False})
    assert (world.refusal(EMPTY), world.score(EMPTY)) == ("node(s) cpu usage exceed threshold", 0)


def test_a_node_that_comes_again_expires_too():
    world = World(node(), metric(of_node=("1", "1Gi"), at=NOW))
    world.remove(node())
    world.put(node("other"))
    world.put(node())
    assert world.table.row_of == {"other": 0, "n": 1}
    world.pass_time(180)
    assert world.refusals(EMPTY) == {"other": None, "n": EXPIRED}


def test_a_wall_clock_that_is_set_back_delays_it():
    world = World(node(), metric(of_node=("1", "1Gi"), at=NOW))
    monotonic = world.clock.monotonic
    world.clock.monotonic = lambda: monotonic() + 500
    world.offline.timers.run()
    assert world.refusal(EMPTY) is None
    world.pass_time(180)
    assert world.refusal(EMPTY) == EXPIRED


@pytest.mark.parametrize("opens", [True, False])
def test_pods_wait_until_it_expires_or_until_the_next_report(opens):
    """With `enableScheduleWhenNodeMetricsExpired`, expiry lets pods pass; without it, it refuses them."""

    async def scenario():
        full = metric(of_node=("70", "1Gi"), at=WALL_EPOCH)
        async with cluster(node(), full, args={"enableScheduleWhenNodeMetricsExpired": opens}) as (embedded, running):
            embedded.insert(pod("waits"))
            await asyncio.sleep(170)
            seen = [(where(embedded, "waits"), running.attempts["default/waits"])]
            await asyncio.sleep(15)
            seen.append((where(embedded, "waits"), running.attempts["default/waits"]))
            embedded.insert(pod("later"))
            await asyncio.sleep(15)
            seen.append(where(embedded, "later"))
            replace(embedded, metric(of_node=("1", "1Gi"), at=embedded.clock.wall()))
            await asyncio.sleep(15)
            seen.append((where(embedded, "waits"), where(embedded, "later")))
            return seen

    node_then = "n" if opens else None
    assert run(scenario()) == [(None, 1), (node_then, 2 if opens else 1), node_then, ("n", "n")]


def test_expiry_is_noticed_without_any_event():
    async def scenario():
        async with cluster(node(), metric(of_node=("1", "1Gi"), at=WALL_EPOCH)) as (embedded, running):
            embedded.insert(pod("first"))
            await asyncio.sleep(185)
            embedded.insert(pod("second"))
            await asyncio.sleep(5)
            return where(embedded, "first"), where(embedded, "second"), running.attempts

    assert run(scenario()) == ("n", None, {"default/first": 1, "default/second": 1})


def test_a_replay_goes_on_with_the_times_that_no_object_says():
    """When a pod was first seen, when a report without a time was made, which reports have expired, and when."""
    state = [
        node(),
        metric(of_node=("1", "1Gi"), at=NOW),
        node("silent"),
        metric("silent", of_node=("40", "1Gi"), at=NOW),
        node("old"),
        metric("old", of_node=("1", "1Gi"), at=NOW - 100),
    ]
    world = World(*state)
    world.put(metric("silent", of_node=("40", "1Gi"), at=None))
    world.put(pod("early", on="silent", requests={"cpu": "16", "memory": "32Gi"}))
    world.pass_time(79.5)
    # The wall clock is past the end of the old report, and nothing has looked yet.
    world.clock.now += 0.5
    again = World(
        *state[:2], *state[2:3], metric("silent", of_node=("40", "1Gi"), at=None), *state[4:], clock=world.clock
    )
    again.put(pod("early", on="silent", requests={"cpu": "16", "memory": "32Gi"}))
    carry_over(world.profile.handle, again.profile.handle)
    for seconds in (0, 0, 99, 1, 80):
        assert again.refusals(EMPTY) == world.refusals(EMPTY)
        assert again.readings() == world.readings()
        world.offline.timers.run()
        again.pass_time(seconds)
        world.offline.timers.run()
    assert world.refusal(EMPTY) == EXPIRED
