"""With gangs: members get their devices together, or nothing is held, and no claim is written."""

import asyncio

import yaml

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
from tests.virtualtime import run

GROUP = yaml.safe_load(CRD.read_text())
SETTLE = 5.0


def group(minimum, name="g"):
    api = "scheduling.sigs.k8s.io/v1alpha1"
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": api, "kind": "PodGroup", "metadata": meta, "spec": {"minMember": minimum}}


def member(name, *claims, gang="g"):
    return claiming(name, *claims, labels={LABEL: gang})


def play(steps, *objects):
    async def work():
        controllers = {"Coscheduling": CONTROLLERS["Coscheduling"]}
        async with world(GROUP, *objects, configuration=configuration(), controllers=controllers) as there:
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


def test_two_members_cannot_share_a_claim_that_is_not_allocated_yet():
    """As upstream: while the first one has it in flight, the second one must wait; so neither is placed."""

    async def steps(there):
        before = held(there)
        there.embedded.insert(member("m0", "c"))
        there.embedded.insert(member("m1", "c"))
        await asyncio.sleep(SETTLE)
        assert [there.where("m0"), there.where("m1")] == [None, None]
        text = "resource claim default/c is in the process of being allocated"
        assert any(text in there.message(name) for name in ("m0", "m1"))
        assert held(there) == before

    play(steps, N1, device_class(), slice_of("n1", "d0"), group(2), claim("c"))


def test_members_share_a_claim_that_is_allocated():
    async def steps(there):
        there.embedded.insert(member("m0", "c"))
        there.embedded.insert(member("m1", "c"))
        await asyncio.sleep(SETTLE)
        assert [there.where("m0"), there.where("m1")] == ["n1", "n1"]
        assert sorted(each["name"] for each in there.get("c")["status"]["reservedFor"]) == ["m0", "m1"]

    play(steps, N1, N2, device_class(), slice_of("n1", "d0"), group(2), claim("c", status=allocated("d0")))
