"""The pod that is in the queue for its gang is kept out by another plugin: the others go on without it."""

import asyncio
from collections import Counter

import pytest

from tests.journal.recording import Recorded, replayed_from_each_segment
from tests.plugins.coscheduling.placing import Gangs, cache_of, configuration, scheduling, settle
from tests.plugins.coscheduling.test_journal import state_of
from tests.plugins.dynamicresources.deviceworld import claim, device_class, slice_of
from tests.virtualtime import run

MEMBERS = ("a", "b", "c")
CLAIMS = "resource.k8s.io/v1"


def put_claim(cluster, name):
    pod = cluster.get("Pod", name)
    made = claim(f"of-{name}", owner=name)
    made["metadata"]["ownerReferences"][0]["uid"] = pod["metadata"]["uid"]
    cluster.insert(made)


def lose_claim(cluster, name):
    cluster.remove("ResourceClaim", f"of-{name}", CLAIMS)


def waiting_gang(minimum=2):
    """A gang whose members need a device each, of which there is none: the first waits for all."""
    cluster = Gangs()
    cluster.insert(device_class())
    cluster.group(minimum)
    for name in MEMBERS:
        claims = [{"name": "e", "resourceClaimTemplateName": "t"}]
        cluster.pod(name, resourceClaims=claims)
        said = [{"name": "e", "resourceClaimName": f"of-{name}"}]
        cluster.patch("Pod", name, {"status": {"resourceClaimStatuses": said}}, subresource="status")
        put_claim(cluster, name)
    return cluster


def playing(scenario, minimum=2):
    """Runs `scenario(cluster, running, name of the first)`; all is in order afterwards."""

    async def work():
        cluster = waiting_gang(minimum)
        async with scheduling(cluster) as running:
            await settle(running)
            await scenario(cluster, running, representative(running))
            await settle(running)

    run(work())


def representative(running):
    [group] = cache_of(running.scheduler).groups()
    return group.representative_key.partition("/")[2]


def gating(running):
    """By which plugin each pod is kept out, "" for none."""
    return {item.pod.name: item.gating_plugin for item in running.scheduler.queue}


def test_the_others_are_placed_if_they_are_enough():
    async def scenario(cluster, running, first):
        others = sorted(set(MEMBERS) - {first})
        assert gating(running) == {first: "", **dict.fromkeys(others, "Coscheduling")}
        lose_claim(cluster, first)
        await settle(running)
        cluster.insert(slice_of("n1", "d0", "d1", "d2"))
        await settle(running)
        assert cluster.bound() == others

    playing(scenario)


def test_the_other_goes_on_if_the_claim_of_the_first_is_lost_while_it_is_being_bound():
    """One is enough, so the other waits until the first is bound."""
    lost = []

    async def work():
        async def fault(call, proceed):
            if call.path.endswith("/binding") and not lost:
                first = call.path.split("/")[-2]
                lost.append(first)
                claim_resource = cluster.resource("ResourceClaim", CLAIMS)
                cluster.registry.delete_record(claim_resource, "default", f"of-{first}")
                return 500, {}, b"{}"
            return await proceed()

        cluster = waiting_gang(minimum=1)
        cluster.insert(slice_of("n1", "d0", "d1", "d2"))
        async with scheduling(cluster, fault=fault) as running:
            await settle(running, 20.0)
            assert cluster.bound() == sorted(set(MEMBERS) - {*lost})

    run(work())


def test_the_one_that_was_kept_out_follows():
    async def scenario(cluster, running, first):
        lose_claim(cluster, first)
        cluster.insert(slice_of("n1", "d0", "d1", "d2"))
        await settle(running)
        put_claim(cluster, first)
        await settle(running)
        assert cluster.bound() == list(MEMBERS)

    playing(scenario)


@pytest.mark.parametrize("lost", [1, 2])
def test_too_few_others_are_tried_once_and_wait(lost):
    """They fail, and so wait for the events that may help them."""

    async def scenario(cluster, running, first):
        names = [first, *sorted(set(MEMBERS) - {first})]
        before = Counter(running.attempts)
        for name in names[:lost]:
            lose_claim(cluster, name)
        await settle(running)
        cluster.insert(slice_of("n1", "d0"))
        await settle(running, 60.0)
        assert cluster.bound() == []
        assert (Counter(running.attempts) - before).total() <= 4 * lost
        assert representative(running) in names[lost:]
        for name in names[:lost]:
            put_claim(cluster, name)
        cluster.insert(slice_of("n1", "e0", "e1", pool="q"))
        await settle(running)
        assert cluster.bound() == list(MEMBERS)

    playing(scenario, minimum=3)


def test_one_that_is_kept_out_gives_up_its_promise_with_the_others():
    async def scenario(cluster, running, first):
        kept_out = next(name for name in MEMBERS if name != first)
        cluster.patch("Pod", kept_out, {"status": {"nominatedNodeName": "n1"}}, subresource="status")
        lose_claim(cluster, kept_out)
        await settle(running)
        assert cluster.nominated(kept_out) == "n1"
        cluster.insert(slice_of("n1", "d0"))
        await settle(running)
        assert cluster.bound() == []
        assert gating(running)[kept_out] == "DynamicResources"
        assert not cluster.nominated(kept_out)

    playing(scenario)


def test_when_all_are_kept_out_nothing_is_tried_until_one_is_let_in():
    async def scenario(cluster, running, first):
        for name in MEMBERS:
            lose_claim(cluster, name)
        cluster.insert(slice_of("n1", "d0", "d1", "d2"))
        await settle(running)
        before = dict(running.attempts)
        await asyncio.sleep(600)
        assert dict(running.attempts) == before
        assert set(gating(running).values()) == {"DynamicResources"}
        for name in ("b", "c"):
            put_claim(cluster, name)
        await settle(running)
        assert cluster.bound() == ["b", "c"]

    playing(scenario)


def test_one_that_was_left_out_is_woken_by_its_claim():
    """Only its gang kept it out until its claim was missing, of which it has to hear nevertheless."""

    def put(cluster, name):
        cluster.insert(claim(f"of-{name}"))
        cluster.pod(name, resourceClaims=[{"name": "e", "resourceClaimName": f"of-{name}"}])

    async def work():
        cluster = Gangs()
        cluster.insert(device_class())
        cluster.insert(slice_of("n1", "d0", "d1"))
        cluster.group(2)
        put(cluster, "a")
        async with scheduling(cluster) as running:
            await settle(running)
            lose_claim(cluster, "a")
            put(cluster, "b")
            await settle(running)
            assert cluster.bound() == []
            assert gating(running) == {"a": "DynamicResources", "b": ""}
            cluster.insert(claim("of-a"))
            await settle(running)
            assert cluster.bound() == ["a", "b"]

    run(work())


def test_the_first_is_left_out_if_it_is_kept_out_by_its_turn():
    """Its claim goes while it is in the queue."""

    async def scenario(cluster, running, first):
        cluster.insert(slice_of("n1", "d0", "d1", "d2"))
        lose_claim(cluster, first)
        await settle(running)
        assert cluster.bound() == sorted(set(MEMBERS) - {first})
        put_claim(cluster, first)
        await settle(running)
        assert cluster.bound() == list(MEMBERS)

    playing(scenario)


def test_it_is_replayed_equal():
    async def work():
        cluster = waiting_gang()
        recorded = Recorded(cluster, configuration(), seed=1, seconds_per_segment=2)
        async with recorded.running():
            await asyncio.sleep(3)
            lose_claim(cluster, "a")
            await asyncio.sleep(3)
            cluster.insert(slice_of("n1", "d0"))  # too few: another one waits for all
            await asyncio.sleep(3)
            state = state_of(recorded.scheduler)
            assert representative(recorded) == "c"
            cluster.insert(slice_of("n1", "e0", "e1", pool="q"))
            await asyncio.sleep(3)
            assert cluster.bound() == ["b", "c"]
        return recorded, state

    recorded, before = run(work())
    after = state_of(recorded.scheduler)
    assert after[1] != before[1]
    replays = list(replayed_from_each_segment(recorded.journal))
    assert len(replays) > 2
    for replayed in replays:
        assert state_of(replayed)[:2] == after[:2]


@pytest.mark.parametrize("size", [10, 40])
def test_members_that_are_kept_out_are_asked_once_by_each_event(size):
    async def work():
        cluster = Gangs()
        cluster.insert(device_class())
        cluster.group(2)
        async with scheduling(cluster) as running:
            plugin = running.scheduler.profiles["default-scheduler"].plugins["DynamicResources"]
            original, asked = plugin.pre_enqueue, []

            def pre_enqueue(pod):
                asked.append(pod.name)
                return original(pod)

            plugin.pre_enqueue = pre_enqueue
            for number in range(size):
                claims = [{"name": "e", "resourceClaimName": f"of-{number}"}]
                cluster.pod(f"m-{number}", resourceClaims=claims)
            await settle(running)
            assert set(gating(running).values()) == {"DynamicResources"}
            assert size <= len(asked) <= 3 * size
            asked.clear()
            cluster.insert(slice_of("n1", "d0", "d1"))
            await settle(running)
            assert size <= len(asked) <= 2 * size
            for number in (3, 7):
                cluster.insert(claim(f"of-{number}"))
            await settle(running)
            assert cluster.bound() == ["m-3", "m-7"]

    run(work())
