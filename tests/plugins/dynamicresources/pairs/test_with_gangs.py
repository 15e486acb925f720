"""With gangs: members get their devices together, or nothing is held, and no claim is written."""

import asyncio

import pytest

from koordsched.plugins import CONTROLLERS
from tests.plugins.coscheduling.running import CRD, LABEL, configuration
from tests.plugins.dynamicresources.deviceworld import (
    N1,
    N2,
    allocated,
    claim,
    claiming,
    device_class,
    slice_of,
    world,
)
from tests.plugins.objects import container, node, pod
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import run
from tests.yamlfiles import document

GROUP = document(CRD)
SETTLE = 5.0


def group(minimum, name="g"):
    api = "scheduling.sigs.k8s.io/v1alpha1"
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": api, "kind": "PodGroup", "metadata": meta, "spec": {"minMember": minimum}}


def member(name, *claims, gang="g", **more):
    return claiming(name, *claims, labels={LABEL: gang}, **more)


def play(steps, *objects, fault=None, gates=(), **args):
    """`args`: of the plugin Coscheduling."""

    async def work():
        controllers = {"Coscheduling": CONTROLLERS["Coscheduling"]}
        made = configuration(**args)
        async with world(
            GROUP, *objects, configuration=made, controllers=controllers, fault=fault, gates=gates
        ) as there:
            await steps(there)

    run(work())


def held(there):
    """(devices in use, claims in flight, claims as the plugin knows them)."""
    books = there.books
    used = {key: (dict(pool.exclusive), dict(pool.shares)) for key, pool in books.in_use.pools.items()}
    return used, books.in_flight.recorded_state(), [each.status for each in books.claims]


def devices(there, *names):
    """The devices of claims."""
    found = []
    for name in names:
        (result,) = there.get(name)["status"]["allocation"]["devices"]["results"]
        found.append(f"{result['pool']}/{result['device']}")
    return found


def test_members_get_a_device_each():
    async def steps(there):
        for number in range(3):
            there.embedded.insert(member(f"m{number}", f"c{number}"))
        await asyncio.sleep(SETTLE)
        assert all(there.where(f"m{number}") for number in range(3))
        assert sorted(devices(there, "c0", "c1", "c2")) == ["n1/d0", "n1/d1", "n2/d0"]
        for number in range(3):
            assert [each["name"] for each in there.get(f"c{number}")["status"]["reservedFor"]] == [f"m{number}"]
        assert len(there.books.in_flight) == 0

    claims = [claim(f"c{number}") for number in range(3)]
    slices = slice_of("n1", "d0", "d1"), slice_of("n2", "d0")
    play(steps, N1, N2, device_class(), *slices, group(3), *claims)


def test_without_a_device_for_each_nothing_is_held_until_there_is_one():
    async def steps(there):
        before = held(there)
        for number in range(3):
            there.embedded.insert(member(f"m{number}", f"c{number}"))
        await asyncio.sleep(SETTLE)
        assert [there.where(f"m{number}") for number in range(3)] == [None] * 3
        assert there.running.attempts
        assert held(there) == before
        assert there.of_claims() == []
        there.embedded.insert(slice_of("n2", "d0"))
        await asyncio.sleep(SETTLE)
        assert all(there.where(f"m{number}") for number in range(3))

    claims = [claim(f"c{number}") for number in range(3)]
    play(steps, N1, N2, device_class(), slice_of("n1", "d0", "d1"), group(3), *claims)


def test_while_a_gang_has_no_room_its_devices_go_to_others():
    async def steps(there):
        for number in range(2):
            there.embedded.insert(member(f"m{number}", f"c{number}"))
        await asyncio.sleep(SETTLE)
        there.embedded.insert(claiming("alone", "other"))
        await asyncio.sleep(SETTLE)
        assert (there.where("alone"), devices(there, "other")) == ("n1", ["n1/d0"])
        assert [there.where("m0"), there.where("m1")] == [None, None]

    claims = claim("c0"), claim("c1"), claim("other")
    play(steps, N1, device_class(), slice_of("n1", "d0"), group(2), *claims)


def test_members_share_a_claim_that_is_not_allocated_yet():
    """Upstream places neither: the second one waits for the allocation of the first, which waits for the gang."""

    async def steps(there):
        for number in range(3):
            there.embedded.insert(member(f"m{number}", "c"))
        await asyncio.sleep(SETTLE)
        assert [there.where(f"m{number}") for number in range(3)] == ["n2"] * 3
        assert devices(there, "c") == ["n2/d0"]
        assert sorted(each["name"] for each in there.get("c")["status"]["reservedFor"]) == ["m0", "m1", "m2"]
        # The allocation is written once, and no write meets with a conflict.
        assert there.of_claims() == [("PATCH", "resourceclaims/c"), *[("PATCH", "resourceclaims/c/status")] * 3]
        assert list(there.running.attempts.values()) == [1]
        assert len(there.books.in_flight) == 0

    play(steps, N1, N2, device_class(), slice_of("n2", "d0"), group(3), claim("c"))


def test_without_room_beside_what_is_shared_nothing_is_held():
    async def steps(there):
        before = held(there)
        for number in range(3):
            there.embedded.insert(member(f"m{number}", "c", "own") if number == 1 else member(f"m{number}", "c"))
        await asyncio.sleep(SETTLE)
        assert [there.where(f"m{number}") for number in range(3)] == [None] * 3
        assert held(there) == before
        assert there.of_claims() == []

    play(steps, N1, device_class(), slice_of("n1", "d0"), group(3), claim("c"), claim("own"))


def test_members_of_another_gang_wait_while_the_claim_is_written():
    async def slowly(call, proceed):
        if call.path.endswith("/resourceclaims/c/status"):
            await asyncio.sleep(3)
        return await proceed()

    async def steps(there):
        for number in range(2):
            there.embedded.insert(member(f"m{number}", "c"))
        await asyncio.sleep(1)
        for number in range(2):
            there.embedded.insert(member(f"h{number}", "c", gang="h"))
        await asyncio.sleep(1)
        text = "resource claim default/c is in the process of being allocated"
        assert any(text in (there.message(name) or "") for name in ("h0", "h1"))
        await asyncio.sleep(60)
        assert [there.where(name) for name in ("m0", "m1", "h0", "h1")] == ["n1"] * 4
        assert len(there.get("c")["status"]["reservedFor"]) == 4

    play(steps, N1, device_class(), slice_of("n1", "d0"), group(2), group(2, "h"), claim("c"), fault=slowly)


@pytest.mark.parametrize(("cpu", "evicted"), [("2", 2), ("3", 1)])
def test_room_is_made_for_members_that_share_a_claim(cpu, evicted):
    """With three CPUs the first member has a place, and the second one is to go there, too."""

    async def steps(there):
        Kubelet(there.embedded)
        for number in range(2):
            there.embedded.insert(member(f"m{number}", "c", priority=100, containers=[container(cpu="1")]))
        await asyncio.sleep(60)
        assert [there.where("m0"), there.where("m1")] == ["n2", "n2"]
        gone = [name for name in ("v1", "v2", "v3", "v4") if there.embedded.get("Pod", name) is None]
        assert len(gone) == evicted
        assert set(gone) <= {"v3", "v4"}

    victims = [
        pod(f"v{number}", container(cpu="1"), nodeName="n1" if number < 3 else "n2", priority=0)
        for number in range(1, 5)
    ]
    objects = node("n1", "2"), node("n2", cpu), device_class(), slice_of("n2", "d0"), group(2), claim("c"), *victims
    play(steps, *objects, enablePreemption=True)


def test_members_share_a_claim_that_is_allocated():
    async def steps(there):
        there.embedded.insert(member("m0", "c"))
        there.embedded.insert(member("m1", "c"))
        await asyncio.sleep(SETTLE)
        assert [there.where("m0"), there.where("m1")] == ["n1", "n1"]
        assert sorted(each["name"] for each in there.get("c")["status"]["reservedFor"]) == ["m0", "m1"]

    play(steps, N1, N2, device_class(), slice_of("n1", "d0"), group(2), claim("c", status=allocated("d0")))


def test_members_do_not_share_devices_that_take_something_of_the_node():
    async def steps(there):
        before = held(there)
        for number in range(2):
            used = {**container(cpu="100m"), "name": "m"}
            used["resources"]["claims"] = [{"name": "e0"}]
            there.embedded.insert(member(f"m{number}", "c", containers=[used]))
        await asyncio.sleep(SETTLE)
        assert [there.where("m0"), there.where("m1")] == [None, None]
        text = "node allocatable resource claim c is already used by another pod"
        assert any(text in (there.message(name) or "") for name in ("m0", "m1"))
        assert held(there) == before

    device = "d0", {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}}}
    objects = N1, device_class(), slice_of("n1", device), group(2), claim("c")
    play(steps, *objects, gates=("DRANodeAllocatableResources=true",))
