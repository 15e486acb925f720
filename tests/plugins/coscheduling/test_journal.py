"""Decisions about gangs are the same live and in replays, from the start and from checkpoints."""

import asyncio

import pytest

from koordsched.plugins import CONTROLLERS
from tests.depth import quick_first
from tests.journal.recording import Recorded, consider, replayed_from_each_segment
from tests.pauses import pause_always
from tests.plugins.coscheduling.busy import Busy
from tests.plugins.coscheduling.placing import cache_of, configuration
from tests.virtualtime import run


def state_of(scheduler):
    """Where every pod is, and what is known of every gang."""
    cache = cache_of(scheduler)
    gangs = {
        gang.id: (
            gang.options,
            sorted(gang.pending),
            sorted(gang.waiting),
            sorted(gang.bound),
            gang.group.id,
            gang.group.satisfied,
            gang.group.representative,
            gang.group.represented,
            sorted(gang.group.binding_members),
        )
        for gang in cache.gangs.values()
    }
    places = {pod.key: pod.node for pod in scheduler.cluster.assigned.values()}
    queued = {each.key: (each.place, sorted(each.rejected_by)) for each in scheduler.queue}
    return places, gangs, queued


def config(preemption):
    made = configuration(enablePreemption=preemption)
    if not preemption:
        del made["profiles"][0]["plugins"]["postFilter"]["disabled"]
    return made


async def living(seed, preemption, steps=50):
    cluster = Busy(seed)
    recorded = Recorded(
        cluster,
        config(preemption),
        seed=seed,
        seconds_per_segment=5,
        controllers={"Coscheduling": CONTROLLERS["Coscheduling"]},
    )
    async with recorded.running():
        for _ in range(steps):
            cluster.step()
            await asyncio.sleep(cluster.draw.choice((0.0, 0.1, 0.5, 2.0)))
        await asyncio.sleep(5)
        assert any(gang.bound for gang in cache_of(recorded.scheduler).gangs.values())
        waiting = {each.pod.uid for each in recorded.scheduler.waiting}
        assert {pod.uid for pod in recorded.scheduler.queue.in_flight_pods()} <= waiting
    recorded.state = state_of(recorded.scheduler)
    return recorded


SEEDS = quick_first([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 1)


@pytest.mark.parametrize("pauses", [False, True])
@pytest.mark.parametrize("preemption", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_journal_is_replayed_equal(seed, preemption, pauses, monkeypatch):
    if pauses:
        pause_always(monkeypatch)
    recorded = run(living(seed, preemption))
    journal = recorded.journal
    assert len(journal.segments) > 1
    for replayed in replayed_from_each_segment(journal):
        assert state_of(replayed)[0] == recorded.state[0]
        assert state_of(replayed)[1] == recorded.state[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_configuration_would_have_decided_the_same(seed):
    recorded = run(living(seed, False))
    compared = consider(recorded.journal.records())
    assert sum(compared.kinds.values()) > 20
    assert compared.changed == []
