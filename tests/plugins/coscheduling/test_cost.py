"""What gangs cost, in steps (coscheduling spec does not say: upstream tries a failing gang without a pause)."""

import asyncio
import json

import pytest

from koordsched.plugins.coscheduling.gang import Gang
from tests.plugins.coscheduling.placing import Gangs, Holds, cache_of, scheduling
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


def test_what_it_takes_to_reject_members_that_wait_grows_with_their_number():
    """And not with its square, nor with other pods that wait."""

    async def work(size):
        cluster = Gangs(("n1", "n2", "n3"), cpu="1000")
        async with scheduling(cluster, plugins=(Holds,)) as running:
            cluster.group(size)
            cluster.pods(*[f"m-{number:03}" for number in range(size)])
            cluster.pods(*[f"other-{number}" for number in range(50)], by=None, cpu="10m")
            await asyncio.sleep(5)
            scheduler = running.scheduler
            assert len(scheduler.waiting) == size + 50
            plugin = scheduler.profiles["default-scheduler"].plugins["Coscheduling"]
            original, spent = plugin.unreserve, []

            def unreserve(cycle, pod, row):
                with counted() as steps:
                    original(cycle, pod, row)
                spent.append(steps.count)

            plugin.unreserve = unreserve
            next(each for each in scheduler.waiting if each.pod.name == "m-007").reject("Holds", "not this one")
            await asyncio.sleep(0.5)
            assert len(spent) >= size
            return sum(spent[:size])

    small, large = run(work(20)), run(work(160))
    assert large <= 1.5 * 8 * small, (small, large)


def linked(cluster, names, gangs, pods=1):
    """A gang of each name, with so many pods that each name so many gangs and ask for one more pod."""
    groups = json.dumps([f"default/g{number:03}" for number in range(gangs)])
    for name in names:
        for number in range(pods):
            cluster.pod(f"p-{name}-{number}", name, by={"min_available": f"{pods + 1}", "groups": groups})


def test_a_gang_that_comes_costs_as_much_as_it_names_and_not_as_many_as_wait():
    async def work(size):
        cluster = Gangs(cpu="1")
        async with scheduling(cluster) as running:
            names = [f"g{number:03}" for number in range(size + 20)]
            linked(cluster, names[:size], gangs=200)
            await asyncio.sleep(10)
            plugin = running.scheduler.profiles["default-scheduler"].plugins["Coscheduling"]
            original, asked = plugin.pre_enqueue, []

            def pre_enqueue(pod):
                asked.append(pod.name)
                return original(pod)

            plugin.pre_enqueue = pre_enqueue
            with counted() as steps:
                linked(cluster, names[size:], gangs=200)
                await asyncio.sleep(0.1)  # before members are asked again for what they show
            assert len(asked) <= 2 * 20
            return steps.count

    few, many = run(work(20)), run(work(150))
    assert many <= 1.5 * few, (few, many)


def test_what_a_member_shows_is_not_worked_out_anew_for_each():
    async def work(gangs):
        cluster = Gangs(cpu="1")
        async with scheduling(cluster) as running:
            linked(cluster, ["g000"], gangs, pods=20)
            await asyncio.sleep(5)
            gate = running.scheduler.profiles["default-scheduler"].plugins["Coscheduling"].pre_enqueue
            pods = running.scheduler.pending_pods()
            assert all("doesn't exists" in gate(pod).message for pod in pods)
            with counted() as steps:
                for pod in pods:
                    gate(pod)
            return steps.count

    few, many = run(work(200)), run(work(1000))
    assert many <= 1.1 * few, (few, many)


def test_members_of_many_gangs_do_not_look_at_all_of_them_each(monkeypatch):
    looked, valid = [], Gang.valid.fget
    monkeypatch.setattr(Gang, "valid", property(lambda gang: (looked.append(gang.id), valid(gang))[1]))
    size = 60

    async def work():
        cluster = Gangs(("n1", "n2"), cpu="100")
        async with scheduling(cluster):
            names = [f"g{number:03}" for number in range(size)]
            for name in names:
                groups = json.dumps([f"default/{each}" for each in names])
                cluster.pod(f"p-{name}", name, by={"min_available": "1", "groups": groups})
            await asyncio.sleep(5)
            assert len(cluster.bound()) == size
            assert size <= len(looked) <= 4 * size

    run(work())
