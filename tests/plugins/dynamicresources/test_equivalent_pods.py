"""Pods with equal claims of their own: one is tried for all when devices come free. Claims still wake their pods."""

import asyncio
from random import Random

import pytest

from koordsched.config.feature_gates import FeatureGates
from koordsched.plugins import IN_TREE
from koordsched.scheduling.offline import OfflineScheduler
from tests.plugins.dynamicresources.deviceworld import (
    N1,
    N2,
    allocated,
    claim,
    claiming,
    device_class,
    play,
    slice_of,
    special,
)
from tests.plugins.harness import StoppedClock, resolved

WAITING, USED = 30, 4


def waiting(name, made):
    thing = claiming(name, ("e", None))
    thing["status"] = {"resourceClaimStatuses": [{"name": "e", "resourceClaimName": made}]}
    return thing


def ground(*more):
    """A node with four devices, all in use, and pods that wait for one each."""
    users = [claim(f"u{at}", status=allocated(f"d{at}", users=("x",))) for at in range(USED)]
    devices = slice_of("n1", *(f"d{at}" for at in range(USED)))
    return (device_class(), N1, devices, *users, *more)


def pods(number=WAITING, devices=1):
    for at in range(number):
        yield claim(f"c{at}", devices, owner=f"w{at}")
        yield waiting(f"w{at}", f"c{at}")


def noting(there):
    """The names of pods that are evaluated from now on."""
    found = []
    filtering = there.running.scheduler.profiles["default-scheduler"].filtering
    original = filtering.filter

    def filter(cycle, *args, **more):
        found.append(cycle.pod.name)
        return original(cycle, *args, **more)

    filtering.filter = filter
    return found


def change(there, name, **status):
    """The status of a claim, as another client writes it."""
    registry = there.embedded.registry
    resource = registry.resource("resource.k8s.io", "v1", "resourceclaims")
    registry.update_record(resource, "default", name, lambda found: {**found, "status": status}, "status")


def bound(there, count=WAITING):
    return sum(there.where(f"w{at}") is not None for at in range(count))


def test_each_device_that_comes_free_costs_two_attempts_however_many_pods_wait():
    async def steps(there):
        await asyncio.sleep(15)
        evaluated = noting(there)
        for at in range(USED):
            change(there, f"u{at}")
            await asyncio.sleep(15)
            assert bound(there) == at + 1
        assert len(evaluated) <= 2 * USED
        left = [name for name in (f"w{at}" for at in range(WAITING)) if there.where(name) is None]
        assert len(left) == WAITING - USED
        assert all("1 cannot allocate all claims" in there.message(name) for name in left)

    play(steps, *ground(*pods()))


def test_several_devices_that_come_free_at_once_are_all_given_out():
    async def steps(there):
        await asyncio.sleep(15)
        for at in range(USED):
            change(there, f"u{at}")
        await asyncio.sleep(20)
        assert bound(there) == USED

    play(steps, *ground(*pods()))


def test_pods_that_ask_for_other_numbers_are_tried_themselves():
    """The first ones want more than comes free: that says nothing of the others."""

    async def steps(there):
        await asyncio.sleep(15)
        change(there, "u0")
        await asyncio.sleep(15)
        assert there.where("small") == "n1"
        assert bound(there, 5) == 0

    small = claim("s", owner="small"), waiting("small", "s")
    play(steps, *ground(*pods(5, devices=2), *small))


@pytest.mark.parametrize("at", [0, 7, WAITING - 1])
def test_a_claim_that_another_client_allocates_wakes_its_pod_alone(at):
    """It is no longer like the others, which rest."""

    async def steps(there):
        await asyncio.sleep(15)
        evaluated = noting(there)
        change(there, f"c{at}", **allocated("e0", where="n2"))
        await asyncio.sleep(15)
        assert there.where(f"w{at}") == "n2"
        assert bound(there) == 1
        assert len(evaluated) <= 2

    play(steps, *ground(N2, *pods()))


def test_pods_that_share_a_claim_are_cases_of_their_own():
    async def steps(there):
        plugin = there.running.scheduler.profiles["default-scheduler"].plugins["DynamicResources"]
        await asyncio.sleep(5)
        queue = there.running.scheduler.queue
        shared, own, other, bare = (queue.get(f"default/{name}").pod for name in ("shared", "w0", "w1", "gated"))
        assert plugin.identity(shared) is None
        assert plugin.identity(own) == plugin.identity(other) is not None
        assert plugin.identity(bare) is None
        change(there, "c1", **allocated("e0", where="n2", users=("x",)))
        await asyncio.sleep(1)
        assert plugin.identity(other) is None

    shared = claim("s"), claiming("shared", "s"), claiming("gated", "nothing")
    play(steps, *ground(*pods(2), *shared))


def identity_of_w0(*objects, gates):
    """What the refusals of the pod w0 depend on; None if it is a case of its own."""
    config = resolved({}, gates=FeatureGates.parse(list(gates)))
    scheduler = OfflineScheduler(config, IN_TREE, ground(*objects), clock=StoppedClock(), rng=Random(1))
    plugin = scheduler.profiles["default-scheduler"].plugins["DynamicResources"]
    return plugin.identity(scheduler.pending["default/w0"])


@pytest.mark.parametrize(
    ("more", "gates", "alike"),
    [
        ((), (), True),
        ((special("left", owner="w0"),), (), False),
        ((), ("DRANodeAllocatableResources=true",), False),
    ],
    ids=["new claims alone", "a claim of an earlier attempt is left", "refusals name claims"],
)
def test_pods_are_refused_alike_for_their_new_claims(more, gates, alike):
    assert (identity_of_w0(*pods(1), *more, gates=gates) is not None) is alike


@pytest.mark.parametrize("enabled", [True, False])
def test_pods_with_alternatives_are_refused_alike_unless_refusals_name_their_claims(enabled):
    """As they do while the feature is off."""
    wanted = claim("c0", owner="w0")
    wanted["spec"]["devices"]["requests"] = [
        {"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "dc", "count": 1}]}
    ]
    found = identity_of_w0(wanted, waiting("w0", "c0"), gates=(f"DRAPrioritizedList={str(enabled).lower()}",))
    assert (found is not None) is enabled


def test_a_claim_that_is_made_anew_wakes_its_pod():
    async def steps(there):
        await asyncio.sleep(15)
        registry = there.embedded.registry
        resource = registry.resource("resource.k8s.io", "v1", "resourceclaims")
        registry.delete_record(resource, "default", "c3")
        await asyncio.sleep(1)
        there.embedded.insert({**claim("c3", 0, owner="w3"), "spec": {"devices": {"requests": []}}})
        await asyncio.sleep(15)
        assert there.where("w3") == "n1"
        assert bound(there) == 1

    play(steps, *ground(*pods()))
