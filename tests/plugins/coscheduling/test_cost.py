"""What gangs cost, in steps (coscheduling spec does not say: upstream tries a failing gang without a pause)."""

import asyncio

import pytest

from tests.plugins.coscheduling.placing import Gangs, cache_of, scheduling
from tests.steps import counted
from tests.virtualtime import run


async def attempt(running, name):
    """The steps of one more attempt at a pod that waits."""
    scheduler = running.scheduler
    pod = next(pod for pod in scheduler.pending_pods() if pod.name == name)
    queued = scheduler.queue.pop_pod(pod)
    assert queued is not None
    with counted() as steps:
        assert await scheduler.schedule(queued) == ()
    return steps.count


def cost(fill, name, times=3):
    """Steps of attempts that fail, the smallest of some."""

    async def work():
        cluster = Gangs(nodes=[f"n{number}" for number in range(20)], cpu="4")
        async with scheduling(cluster) as running:
            fill(cluster)
            await asyncio.sleep(20)
            return min([await attempt(running, name) for _ in range(times)])

    return run(work())


def a_pod(cluster):
    cluster.pod("p", by=None, cpu="100")


@pytest.mark.parametrize("members", [1, 2, 100])
def test_a_gang_whose_first_member_fits_nowhere_costs_about_as_much_as_a_pod(members):
    def gang(cluster):
        cluster.group(members)
        cluster.pods(*[f"m-{number:03}" for number in range(members)], cpu="100")

    alone = cost(a_pod, "p")
    together = cost(gang, "m-000")
    told = members - 1
    assert together <= 3 * alone + 150 * told, (together, alone)


def test_a_member_that_is_placed_and_taken_back_costs_about_as_much_as_an_attempt():
    def gang_of(members):
        def gang(cluster):
            cluster.group(members + 1)
            cluster.pods(*[f"m-{number:03}" for number in range(members)], cpu="1")
            cluster.pod("z", cpu="100")

        return gang

    few, many = cost(gang_of(10), "m-000"), cost(gang_of(60), "m-000")
    alone = cost(a_pod, "p")
    assert (many - few) / 50 <= 3 * alone, (few, many, alone)


def test_cost_of_a_new_member_does_not_grow_with_the_gang():
    async def work(size):
        cluster = Gangs(cpu="1")
        async with scheduling(cluster) as running:
            cluster.group(10_000)
            cluster.pods(*[f"m-{number}" for number in range(size)])
            await asyncio.sleep(5)
            scheduler, cache = running.scheduler, cache_of(running.scheduler)
            pods = scheduler.pending_pods()
            assert len(cache.gangs["default/g"].children) == size
            with counted() as steps:
                for pod in pods[:20]:
                    scheduler.cluster.pod_seen(pod)
                    scheduler.queue.activate([pod])
            return steps.count

    small, large = run(work(50)), run(work(1000))
    assert large <= 1.5 * small, (small, large)
