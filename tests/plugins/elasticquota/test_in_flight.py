"""A pod counts in its quota from the moment it is placed until it is gone, whatever happens before its watch event.

Bindings take their time here, and so do watch events: meanwhile the scheduler alone knows which pods are placed.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.embedded import Embedded, scheduler_on
from tests.parity.koord import custom_resources
from tests.plugins.elasticquota.objects import node, pod, quota
from tests.plugins.elasticquota.running import relabel, remove, replace, where
from tests.plugins.elasticquota.world import World, configuration
from tests.virtualtime import run

QUOTA = "quota.scheduling.koordinator.sh/name"
SLOW = 20.0
"""Seconds that a binding takes, and the answer to it."""
ONE, TWO = {"cpu": 1}, {"cpu": 2}
PLENTY = {"cpu": 100}


async def slow_bindings(call, proceed):
    """Each takes its time to arrive, and its answer to come back."""
    if not call.path.endswith("/binding"):
        return await proceed()
    await asyncio.sleep(SLOW)
    answer = await proceed()
    await asyncio.sleep(SLOW)
    return answer


@asynccontextmanager
async def in_flight(*quotas, by_runtime=False):
    """A scheduler that has just placed pod `first`, of 1 CPU in quota `a`: its binding is under way."""
    embedded = Embedded()
    for name in ("default", "quotas"):
        embedded.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for thing in (*custom_resources(), node("n", cpu=10), *quotas):
        embedded.insert(thing)
    config = configuration({"enableRuntimeQuota": by_runtime})
    async with scheduler_on(embedded, config, fault=slow_bindings) as running:
        await asyncio.sleep(1)
        embedded.insert(pod("first", {"cpu": 1}, "a"))
        await asyncio.sleep(1)
        assert len(running.scheduler.cluster.assumed) == 1
        assert where(embedded, "first") is None
        yield embedded, running.scheduler.cluster


def placed(cluster):
    """The names of all pods with a node, those in flight included."""
    return {each.name for each in cluster.assigned.values()}


@pytest.mark.parametrize("by_runtime", [False, True])
def test_a_pod_in_flight_counts_until_its_watch_event(by_runtime):
    async def main():
        async with in_flight(quota("a", ONE, ONE), by_runtime=by_runtime) as (embedded, cluster):
            embedded.insert(pod("second", {"cpu": 1}, "a"))
            for _ in range(6):
                await asyncio.sleep(SLOW / 2)
                assert placed(cluster) == {"first"}
            assert where(embedded, "first") == "n"

    run(main())


def test_a_pod_that_goes_to_another_quota_in_flight_counts_there_at_once():
    async def main():
        async with in_flight(quota("a", ONE), quota("b", ONE)) as (embedded, cluster):
            relabel(embedded, "Pod", "first", **{QUOTA: "b"})
            await asyncio.sleep(1)
            embedded.insert(pod("third", {"cpu": 1}, "b"))
            embedded.insert(pod("second", {"cpu": 1}, "a"))
            await asyncio.sleep(1)
            assert placed(cluster) == {"first", "second"}
            await asyncio.sleep(10 * SLOW)
            assert placed(cluster) == {"first", "second"}

    run(main())


def test_it_stays_in_that_quota_when_its_node_goes_and_comes_back():
    async def main():
        there = node("n", cpu=10)
        async with in_flight(quota("a", ONE), quota("b", ONE)) as (embedded, cluster):
            relabel(embedded, "Pod", "first", **{QUOTA: "b"})
            await asyncio.sleep(1)
            remove(embedded, there)
            await asyncio.sleep(1)
            embedded.insert(there)
            await asyncio.sleep(1)
            embedded.insert(pod("third", {"cpu": 1}, "b"))
            embedded.insert(pod("second", {"cpu": 1}, "a"))
            await asyncio.sleep(1)
            assert placed(cluster) == {"first", "second"}

    run(main())


def test_the_tree_may_change_while_a_pod_is_in_flight():
    async def main():
        top, b = quota("top", ONE, is_parent="true"), quota("b", PLENTY, parent="top")
        async with in_flight(quota("a", ONE), top, b) as (embedded, cluster):
            # Its quota goes, and comes back under another name's parent, which it fills.
            remove(embedded, quota("a", ONE))
            await asyncio.sleep(1)
            embedded.insert(quota("a", ONE, parent="top"))
            await asyncio.sleep(1)
            embedded.insert(pod("second", {"cpu": 1}, "a"))
            await asyncio.sleep(4 * SLOW)
            assert placed(cluster) == {"first"}

    run(main())


def test_what_a_quota_may_use_may_shrink_while_a_pod_is_in_flight():
    async def main():
        async with in_flight(quota("a", TWO)) as (embedded, cluster):
            replace(embedded, quota("a", ONE))
            embedded.insert(pod("second", {"cpu": 1}, "a"))
            await asyncio.sleep(4 * SLOW)
            assert placed(cluster) == {"first"}

    run(main())


def test_a_namesake_of_a_pod_in_flight_is_another_pod():
    async def main():
        async with in_flight(quota("a", ONE)) as (embedded, cluster):
            (uid,) = cluster.assumed
            await asyncio.sleep(SLOW * 1.2)
            assert where(embedded, "first") == "n"  # bound; the answer is on its way
            remove(embedded, pod("first", {"cpu": 1}, "a"))
            again = pod("first", {"cpu": 1}, "a")
            embedded.insert({**again, "metadata": {**again["metadata"], "uid": "another"}})
            embedded.insert(pod("second", {"cpu": 1}, "a"))
            await asyncio.sleep(SLOW / 2)
            assert placed(cluster) == {"first"}
            assert uid not in cluster.assigned
            await asyncio.sleep(4 * SLOW)
            assert placed(cluster) == {"first"}
            assert where(embedded, "second") is None

    run(main())


def test_a_pod_that_is_gone_leaves_its_quota_though_its_node_comes_back_before_its_place_is_taken_back():
    """As when it waited on Permit."""
    there = node("n", cpu=10)
    world = World(there, quota("a", TWO), pod("first", ONE, "a"))
    waiting = world.offline.pending["default/first"]
    world.cluster.assume(waiting, 0)
    world.cluster.pod_gone(waiting.uid)
    world.remove(there)
    world.put(there)
    assert world.cluster.forget(waiting)
    assert list(world.books.members(world.books.quota("a"))) == []
