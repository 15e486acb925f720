"""Searches for the room of jobs have the loop for a short time at once, however large the cluster is."""

import asyncio
from random import Random

import pytest

from koordsched.engine.attempt import Attempt
from koordsched.engine.transaction import Transaction
from koordsched.framework.interface import PostFilterResult
from koordsched.framework.turns import at_once, ordered
from koordsched.plugins import IN_TREE
from koordsched.plugins.coscheduling.preemption import JobPreemption
from koordsched.plugins.gangscheduling.plugin import GangScheduling
from koordsched.plugins.gangscheduling.preemption import RoomForGroup
from koordsched.scheduling.offline import OfflineScheduler
from tests.extraplugins import resolved_with
from tests.pauses import pause_always
from tests.plugins.coscheduling.running import GANG, configuration
from tests.plugins.gangscheduling.running import scheduling
from tests.plugins.gangscheduling.test_offline import CONFIG, WHOLE, group, member
from tests.plugins.gangscheduling.test_preemption import Preempted
from tests.plugins.harness import StoppedClock
from tests.plugins.objects import container, node, pod
from tests.steps import counted
from tests.virtualtime import run

MEMBERS, PER_NODE = 12, 4


def crowded(nodes, config, gates, waiting):
    """Nodes that are full of less important pods, budgets among them, and pods that wait."""
    objects = [node(f"n{number}", cpu="4") for number in range(nodes)]
    objects += [
        pod(f"low-{number}-{at}", container(cpu="1"), on=f"n{number}", priority=at, labels={"app": "x"})
        for number in range(nodes)
        for at in range(PER_NODE)
    ]
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}},
        "status": {"disruptionsAllowed": 5},
    }
    resolved = resolved_with(config, (), gates)
    return OfflineScheduler(resolved, IN_TREE, [*objects, budget, *waiting], clock=StoppedClock(), rng=Random(1))


def in_steps(turns):
    """(result, lines of Python in each step)."""
    lines = []
    while True:
        with counted() as steps:
            try:
                next(turns)
            except StopIteration as end:
                return end.value, [*lines, steps.count]
        lines.append(steps.count)


def room_for_a_group(nodes):
    """The steps of making room for a pod group."""
    waiting = [group(MEMBERS, priority=100), *(member(f"m-{number:02}", "3") for number in range(MEMBERS))]
    scheduler = crowded(nodes, CONFIG, WHOLE, waiting)
    (profile,) = scheduler.profiles.values()
    _, job = profile.begin_job(scheduler.pending["default/m-00"])
    room = job.preemption()
    with Transaction(scheduler.cluster, scheduler.nominator) as transaction:
        before = transaction.checkpoint()
        victims, lines = in_steps(room.victims(job.members, enabled=True))
        assert len(victims) == PER_NODE * nodes
        for turns in (transaction.evict_all(victims), transaction.roll_back(before), room.settle()):
            lines += in_steps(turns)[1]
        rows = [scheduler.cluster.table.row_of[f"n{number}"] for number in range(MEMBERS)]
        result, more = in_steps(room.choose(list(zip(job.members, rows, strict=True))))
    assert len(result.victims) == 3 * MEMBERS
    return lines + more


def room_for_a_gang(nodes):
    """The same with Coscheduling's job preemption."""
    waiting = []
    for number in range(MEMBERS):
        made = pod(f"m-{number:02}", container(cpu="3"), priority=100)
        made["metadata"]["annotations"] = {f"{GANG}name": "g", f"{GANG}min-available": str(MEMBERS)}
        waiting.append(made)
    scheduler = crowded(nodes, configuration(enablePreemption=True), (), waiting)
    (profile,) = scheduler.profiles.values()
    plugin, job = profile.begin_job(scheduler.pending["default/m-00"])
    attempt = Attempt(profile, scheduler.cluster, job.next())
    assert not attempt.filter().feasible
    result, lines = in_steps(profile.post_filter(attempt.cycle, attempt.verdicts.codes))
    plugin.end_job(job, (), ())
    assert isinstance(result, PostFilterResult)
    assert len(result.victims) == 3 * MEMBERS, result.status
    return lines


@pytest.mark.parametrize("searching", [room_for_a_group, room_for_a_gang])
def test_no_step_grows_with_the_cluster(searching):
    small, large = searching(40), searching(320)
    assert len(large) > len(small)
    assert max(large) <= 1.5 * max(small), (max(small), max(large))


def test_nodes_are_searched_once_for_members_that_are_alike(monkeypatch):
    asked = []
    fits = JobPreemption._fits
    monkeypatch.setattr(
        JobPreemption, "_fits", lambda self, member, *more: asked.append(1) or fits(self, member, *more)
    )
    room_for_a_gang(MEMBERS + 1)
    assert len(asked) == 1


def test_others_have_their_turn_between_the_members_of_a_group(monkeypatch):
    pause_always(monkeypatch)

    async def main():
        cluster = Preempted(["n1"], "8")
        async with scheduling(cluster) as running:
            turns = 0

            async def others():
                nonlocal turns
                while True:
                    turns += running.scheduler.cluster.in_transaction
                    await asyncio.sleep(0)

            task = asyncio.create_task(others())
            cluster.group(3)
            cluster.members(3)
            for _ in range(400):
                await asyncio.sleep(0)
            task.cancel()
            assert sorted(cluster.placed()) == ["m-1", "m-2", "m-3"]
            assert turns >= 3

    run(main(), limit=86400.0)


def test_changes_wait_while_room_is_made_for_a_group(monkeypatch):
    """What would have made less room necessary is seen when the search is over, which is some turns later."""
    pause_always(monkeypatch)
    looking = []
    choose = RoomForGroup.choose

    def watched(room, places):
        looking.append(room)
        result = yield from choose(room, places)
        looking.remove(room)
        return result

    monkeypatch.setattr(RoomForGroup, "choose", watched)

    async def main():
        cluster = Preempted(["n1", "n2"], "8")
        for name in ("p-0", "p-1"):
            cluster.runs(name, "n1", "4", priority=1)
        cluster.runs("kept", "n2", "8", priority=1000)
        async with scheduling(cluster, gates=WHOLE) as running:
            state = running.scheduler.cluster
            turns = 0

            async def others():
                nonlocal turns
                while True:
                    if looking:
                        turns += 1
                        assert state.in_transaction
                        if turns == 1:
                            cluster.node("n3", "8")
                        assert state.table.row_of.get("n3") is None
                    await asyncio.sleep(0)

            task = asyncio.create_task(others())
            cluster.group(2, priority=100)
            cluster.members(2, cpu="4")
            for _ in range(400):
                await asyncio.sleep(0)
            assert not task.done()
            task.cancel()
            assert turns > 2
            await asyncio.sleep(1)
            assert cluster.going() == ["p-0", "p-1"]
            assert "n3" in state.table.row_of
            assert not state.in_transaction

    run(main(), limit=86400.0)


def test_a_search_that_is_cancelled_leaves_nothing_behind(monkeypatch):
    pause_always(monkeypatch)
    placed = []
    monkeypatch.setattr(GangScheduling, "end_job", lambda plugin, job, pods, resting: placed.append(list(pods)))

    async def main():
        cluster = Preempted(["n1"], "8")
        cluster.runs("low", "n1", "8", priority=1)
        async with scheduling(cluster, gates=WHOLE) as running:
            state, choose = running.scheduler.cluster, RoomForGroup._going
            reached = asyncio.Event()

            def stuck(room, places):
                with room._handle.hypothesis() as trial:
                    trial.withdraw(room._members)
                    trial.evict(next(iter(state.assigned.values())))
                    reached.set()
                    while True:
                        yield

            monkeypatch.setattr(RoomForGroup, "_going", stuck)
            cluster.group(1, priority=100)
            cluster.members(1, cpu="8")
            await asyncio.wait_for(reached.wait(), 10)
            monkeypatch.setattr(RoomForGroup, "_going", choose)
        assert placed == [[]]
        assert not state.in_transaction
        assert all(pod.row >= 0 for pod in state.assigned.values())

    run(main(), limit=86400.0)


def test_sorting_in_steps_is_sorting():
    draw = Random(3)
    for size in (0, 1, 127, 128, 129, 500):
        things = [(draw.randint(0, 9), number) for number in range(size)]
        assert at_once(ordered(things, lambda thing: thing[0])) == sorted(things, key=lambda thing: thing[0])
