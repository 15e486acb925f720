"""Several pods with claims in one plan: they see each other's devices; a plan that is taken back leaves no trace."""

import asyncio
from random import Random

import pytest

from koordsched.engine.transaction import Transaction
from koordsched.framework.interface import CycleState
from koordsched.plugins import IN_TREE
from koordsched.scheduling.offline import OfflineScheduler
from tests.plugins.coscheduling.running import LABEL, GangCluster, configuration, scheduling
from tests.plugins.dynamicresources.deviceworld import GROUP, N1, N2, allocated, claim, claiming, device_class, slice_of
from tests.plugins.harness import StoppedClock, resolved
from tests.virtualtime import run


def offline(*objects):
    objects = (device_class(), *objects)
    return OfflineScheduler(resolved({}), IN_TREE, objects, clock=StoppedClock(), rng=Random(3))


def books_of(scheduler):
    return scheduler.profiles["default-scheduler"].plugins["DynamicResources"]._books


def state_of(books):
    """All that depends on what is in flight."""
    pools = {key: (dict(pool.exclusive), sorted(pool.devices)) for key, pool in books.in_use.pools.items()}
    return {key: state for key, state in pools.items() if state[1]}, books.in_flight.recorded_state()


def test_a_plan_that_is_taken_back_gives_back_its_devices():
    held = claim("held", status=allocated("d0", users=["old"]))
    claims = [claim(f"c{at}") for at in range(4)]
    pods = [claiming(f"p{at}", f"c{at}") for at in range(4)]
    scheduler = offline(N1, slice_of("n1", "d0", "d1", "d2"), held, *claims, *pods)
    books = books_of(scheduler)
    before = state_of(books)
    with Transaction(scheduler.cluster, scheduler.nominator) as plan:
        placed = []
        points = []
        for at in range(3):
            attempt = scheduler.attempt(f"default/p{at}")
            verdicts = attempt.filter()
            points.append((plan.checkpoint(), state_of(books)))
            if verdicts.feasible:
                assert plan.place(attempt.cycle, attempt.profile, 0).ok
                placed.append(attempt.pod.name)
        # The third finds no device left.
        assert placed == ["p0", "p1"]
        assert len(books.in_flight) == 2
        point, then = points[1]
        plan.rollback(point)
        assert state_of(books) == then
    assert state_of(books) == before
    # Afterwards the same devices are found.
    assert [scheduler.schedule(f"default/p{at}").node for at in range(3)] == ["n1", "n1", ""]


def test_dry_runs_change_nothing():
    scheduler = offline(N1, slice_of("n1", "d0"), claim(), claiming("p", "c"))
    books = books_of(scheduler)
    attempt = scheduler.attempt("default/p")
    before = state_of(books)
    assert attempt.filter().feasible == 1
    row = int(attempt.verdicts.rows[0])
    assert attempt.profile.filtering.dry_run(attempt.cycle, row) == 0
    assert state_of(books) == before
    # Asked about a cycle of its own, too.
    other = CycleState(attempt.pod)
    assert attempt.profile.filtering.prepare(other).status.ok
    assert attempt.profile.filtering.dry_run(other, row) == 0
    assert state_of(books) == before


@pytest.mark.parametrize("devices", [3, 2])
def test_a_gang_gets_devices_for_all_members_or_for_none(devices):
    async def work():
        cluster = GangCluster(nodes=("n1", "n2"))
        cluster.insert(device_class())
        cluster.insert(slice_of("n1", "d0", "d1"))
        if devices == 3:
            cluster.insert(slice_of("n2", "d0"))
        async with scheduling(cluster, configuration()) as running:
            cluster.group(3)
            for name in ("a", "b", "c"):
                cluster.insert(claim(name))
                member = claiming(name, name, labels={LABEL: "g"})
                cluster.insert(member)
            await asyncio.sleep(20)
            bound = [name for name in "abc" if cluster.get("Pod", name)["spec"].get("nodeName")]
            claims = [cluster.get("ResourceClaim", name, api_version=GROUP) for name in "abc"]
            has = [each["metadata"]["name"] for each in claims if "allocation" in (each.get("status") or {})]
            books = running.scheduler.profiles["default-scheduler"].plugins["DynamicResources"]._books
            assert len(books.in_flight) == 0
            if devices == 3:
                assert (bound, has) == (["a", "b", "c"], ["a", "b", "c"])
            else:
                assert (bound, has) == ([], [])
                cluster.insert(slice_of("n2", "d0"))
                await asyncio.sleep(20)
                assert [n for n in "abc" if cluster.get("Pod", n)["spec"].get("nodeName")] == ["a", "b", "c"]

    run(work())


def test_nodes_with_the_devices_of_a_claim_are_the_only_ones():
    held = claim(status=allocated("d0", where="n2", users=["old"]))
    scheduler = offline(N1, N2, slice_of("n1", "d0"), slice_of("n2", "d0"), held, claiming("p", "c"))
    assert scheduler.schedule("default/p").node == "n2"
