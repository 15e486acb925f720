"""Gangs that come, change and go by chance: whatever happens, no pod is lost, and no gang waits that could go."""

import asyncio

import pytest

from tests.depth import quick_first
from tests.pauses import pause_always
from tests.plugins.coscheduling.busy import Busy
from tests.plugins.coscheduling.placing import cache_of, configuration, scheduling
from tests.virtualtime import run


def in_order(running):
    """What must hold at any rest; pods may wait on Permit for gangs of their group that are not complete."""
    scheduler, cache = running.scheduler, cache_of(running.scheduler)
    assert not running.work.done()
    assert not scheduler.cluster.in_transaction
    assert cache.round is None
    waiting = {each.pod.uid for each in scheduler.waiting}
    assert {pod.uid for pod in scheduler.queue.in_flight_pods()} == waiting
    assert set(scheduler.cluster.assumed) == waiting
    assert {each.pod.uid for each in scheduler.queue} | waiting == {pod.uid for pod in scheduler.pending_pods()}
    assert not waiting & {each.pod.uid for each in scheduler.queue}
    for gang in cache.gangs.values():
        assert gang.waiting.keys() == gang.children.keys() & waiting
        assert gang.pending.keys() | gang.bound.keys() | gang.waiting.keys() == gang.children.keys()
        assert gang.children or gang.from_crd
        assert gang.group.gangs[gang.id] is gang
        assert cache._groups[next(key for key, group in cache._groups.items() if group is gang.group)] is gang.group
    uids = {pod.uid for pod in scheduler.pending_pods()}
    for group in cache.groups():
        assert not group.representative or group.representative in uids, "the representative is gone"
        queued = {each.pod.uid: each for each in scheduler.queue}
        if group.represented:
            assert queued[group.representative].place.name in ("ACTIVE", "BACKOFF", "ERROR_BACKOFF")
        if set(group.named) != group.gangs.keys():
            continue  # a group that only some of its gangs name is not tried again when the others come, as upstream
        ours = [pod for pod in group.pending() if cache.placeable(pod)]
        if ours and not cache.why_not(group):
            resting = [pod for pod in ours if queued[pod.uid].place.name != "GATED"]
            assert resting, f"nothing can wake group {group.id}"


@pytest.mark.parametrize("pauses", [False, True])
@pytest.mark.parametrize("preemption", [False, True])
@pytest.mark.parametrize("seed", quick_first(range(100, 130), 1))
def test_nothing_is_lost(seed, preemption, pauses, monkeypatch):
    if pauses:
        pause_always(monkeypatch)

    async def work():
        cluster = Busy(seed)
        config = configuration(enablePreemption=preemption)
        async with scheduling(cluster, config, seed=seed) as running:
            for _ in range(12):
                for _ in range(cluster.draw.randint(1, 8)):
                    cluster.step()
                    if cluster.draw.random() < 0.5:
                        for _ in range(cluster.draw.randint(0, 30)):
                            await asyncio.sleep(0)
                await asyncio.sleep(30)
                in_order(running)
            # With room for all, every gang that is complete goes.
            for number in range(10):
                cluster.node(f"large-{number}", "200")
            await asyncio.sleep(400)
            in_order(running)
            cache = cache_of(running.scheduler)
            for group in cache.groups():
                single = [gang for gang in group.gangs.values() if group.admits_singly(gang)]
                kept = [pod.key for gang in single for pod in gang.pending.values() if cache.placeable(pod)]
                assert not kept, f"{kept} of group {group.id} could go alone"
                if not cache.why_not(group) and set(group.named) == group.gangs.keys():
                    left = [pod for pod in group.pending() if cache.placeable(pod)]
                    assert not left or any(cache.gangs[name].missing > 0 for name in group.named), (
                        f"{[pod.key for pod in left]} of group {group.id} could go"
                    )

    run(work())
