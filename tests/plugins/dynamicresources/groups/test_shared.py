"""Pods of a PodGroup share what is allocated in the cycle of the group (dra spec 4)."""

import asyncio

import pytest

from koordsched.framework.interface import CycleState
from koordsched.plugins.dynamicresources.plugin import NOT_CHOSEN
from tests.plugins.dynamicresources.deviceworld import (
    GROUP,
    allocated,
    claim,
    claiming,
    device_class,
    refusing,
    slice_of,
    user,
)
from tests.plugins.dynamicresources.groups.running import DRA_GATES, GROUP_UID, books_of, entry, on_devices
from tests.plugins.gangscheduling.running import GATES
from tests.plugins.harness import Bench
from tests.plugins.objects import node

SOON = 3.0
RESERVED_FOR_GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": GROUP_UID}
IN_PROCESS = "resource claim default/c is in the process of being allocated"


def test_all_pods_of_the_group_get_the_devices_of_one_claim():
    async def scenario(cluster, running, writes):
        cluster.claiming_group("c", minimum=3)
        cluster.claimers(3, "c")
        await asyncio.sleep(SOON)
        assert cluster.placed() == dict.fromkeys(("m-1", "m-2", "m-3"), "n1")
        assert cluster.claim()["status"]["reservedFor"] == [RESERVED_FOR_GROUP]
        # The claim is written once, not once per pod.
        assert [(method, path) for method, path, _ in writes] == [
            ("PATCH", "resourceclaims/c"),
            ("PATCH", "resourceclaims/c/status"),
        ]
        assert running.attempts == {"default/m-1": 1}
        assert len(books_of(running).in_flight) == 0
        # Later pods of the group use it, and nothing is written.
        cluster.claimers(1, "c", first=4)
        await asyncio.sleep(SOON)
        assert cluster.placed()["m-4"] == "n1"
        assert len(writes) == 2

    on_devices(scenario, claim())


@pytest.mark.parametrize("minimum", [1, 2])
def test_without_the_gate_they_share_as_well_and_claims_are_reserved_for_pods(minimum):
    async def scenario(cluster, running, writes):
        cluster.claiming_group("c", minimum=minimum)
        cluster.claimers(2, "c")
        await asyncio.sleep(SOON)
        assert cluster.placed() == {"m-1": "n1", "m-2": "n1"}
        assert sorted(cluster.users()) == [("pods", "m-1"), ("pods", "m-2")]
        assert running.attempts == {"default/m-1": 1}
        assert books_of(running).groups is None

    on_devices(scenario, claim(), gates=GATES)


def test_what_was_shared_and_freed_since_is_not_taken_again():
    """The claim is written for one member, whose binding fails, and freed by others while another member is late."""

    refuse = refusing(500, "no", path="/m-1/binding")

    async def unreliable(call, proceed):
        if call.path.endswith("/resourceclaims/own/status"):
            await asyncio.sleep(5)
        return await refuse(call, proceed)

    async def scenario(cluster, running, writes):
        cluster.group(2)
        cluster.member("m-1", resourceClaims=[entry("c")])
        cluster.member("m-2", resourceClaims=[entry("own"), entry("c")])
        await asyncio.sleep(1)
        assert cluster.placed() == {}
        assert (cluster.devices(), cluster.users()) == (["d0"], [])
        freed = {"status": {"allocation": None, "reservedFor": None}}
        cluster.registry.patch(cluster.resource("ResourceClaim", GROUP), "default", "c", freed, "merge", "status")
        cluster.insert(claim("other"))
        cluster.member("alone", group="", resourceClaims=[entry("other")])
        await asyncio.sleep(1)
        assert (cluster.devices("other"), cluster.devices()) == (["d0"], [])
        await asyncio.sleep(60)
        # Two claims never have one device.
        assert cluster.devices() == []
        assert "alone" in cluster.placed()
        assert any("claim default/c got deallocated elsewhere" in event["note"] for event in cluster.events())

    on_devices(scenario, claim(), claim("own"), devices=("d0", "d1"), gates=GATES, fault=unreliable)


@pytest.mark.parametrize("stays", [True, False])
def test_a_member_shares_what_another_one_has_and_not_what_it_has_given_back(stays):
    bench = Bench(node("n1"), device_class(), slice_of("n1", "d0"), claim())
    plugin = bench.plugin("DynamicResources")
    members = [bench.pod(claiming(name, "c")) for name in ("m-1", "m-2")]
    first, second = [CycleState(pod, job_members={each.uid for each in members}) for pod in members]
    (row,) = bench.rows.tolist()
    assert plugin.pre_filter(first, first.pod).ok
    assert plugin.reserve(first, first.pod, row).ok
    assert plugin.pre_filter(second, second.pod).ok
    if not stays:
        plugin.unreserve(first, first.pod, row)
    status = plugin.reserve(second, second.pod, row)
    assert (status.ok, status.message) == ((True, "") if stays else (False, NOT_CHOSEN))


def test_an_entry_that_differs_from_the_groups_is_reserved_for_the_pods():
    async def scenario(cluster, running, writes):
        # The name of the entry is another one.
        cluster.claiming_group("other")
        cluster.claimers(2, "c")
        await asyncio.sleep(SOON)
        assert sorted(cluster.users()) == [("pods", "m-1"), ("pods", "m-2")]
        assert set(cluster.placed()) == {"m-1", "m-2"}
        # They share the allocation all the same, in one attempt.
        assert running.attempts == {"default/m-1": 1}

    on_devices(scenario, claim())


def test_members_follow_the_devices_that_are_in_flight():
    async def scenario(cluster, running, writes):
        cluster.claiming_group("c")
        cluster.claimers(3, "c")
        await asyncio.sleep(SOON)
        # One node has room for two of them: the third cannot have the device elsewhere.
        assert len(cluster.placed()) == 2
        assert len(set(cluster.placed().values())) == 1
        (left,) = {"m-1", "m-2", "m-3"} - set(cluster.placed())
        assert "1 resourceclaim not available on the node" in cluster.says(left)[1]

    on_devices(scenario, claim(), nodes=("n1", "n2"), cpu="2")


def test_a_group_that_does_not_fit_gives_everything_back():
    async def scenario(cluster, running, writes):
        books = books_of(running)
        cluster.claiming_group("c", minimum=3)
        cluster.claimers(3, "c")
        await asyncio.sleep(SOON)
        assert cluster.placed() == {}
        assert cluster.condition()[:2] == ("False", "Unschedulable")
        assert books.in_flight.recorded_state() == []
        assert not [pool for pool, use in books.in_use.pools.items() if use.devices]
        assert writes == []
        cluster.claimers(1, "c", first=4)
        await cluster.delete("m-1", "m-2")
        cluster.claimers(1, "c", first=5, cpu="100m")
        await asyncio.sleep(20.0)
        assert set(cluster.placed()) == {"m-3", "m-4", "m-5"}
        assert cluster.users() == [("podgroups", "g")]

    on_devices(scenario, claim(), cpu="2500m")


def test_results_stay_with_their_claims():
    """Defect B9 of upstream: what is shared counts before what is new where the claims are in that order."""

    async def scenario(cluster, running, writes):
        cluster.claiming_group("shared")
        cluster.member("m-1", resourceClaims=[own("own-1"), shared()])
        cluster.member("m-2", resourceClaims=[shared(), own("own-2")])
        await asyncio.sleep(SOON)
        assert set(cluster.placed()) == {"m-1", "m-2"}
        assert [cluster.devices(name) for name in ("own-1", "shared", "own-2")] == [["d0"], ["d1", "d2"], ["d3"]]
        assert (cluster.users("own-1"), cluster.users("own-2")) == ([("pods", "m-1")], [("pods", "m-2")])
        assert cluster.users("shared") == [("podgroups", "g")]

    def own(name):
        return {"name": "own", "resourceClaimName": name}

    def shared():
        return {"name": "e-shared", "resourceClaimName": "shared"}

    on_devices(scenario, claim("own-1"), claim("shared", count=2), claim("own-2"), devices=("d0", "d1", "d2", "d3"))


def test_a_binding_that_fails_leaves_the_claim_to_the_others():
    async def scenario(cluster, running, writes):
        cluster.claiming_group("c")
        cluster.claimers(2, "c")
        await asyncio.sleep(30.0)
        assert set(cluster.placed()) == {"m-1", "m-2"}
        assert cluster.claim()["status"]["reservedFor"] == [RESERVED_FOR_GROUP]
        # The reservation of the group was never taken back.
        assert all("$patch" not in str(body) for _, _, body in writes)

    on_devices(scenario, claim(), fault=refusing(500, "no", path="/m-1/binding"))


def test_a_write_that_fails_leaves_the_allocation_in_flight_to_the_others():
    async def scenario(cluster, running, writes):
        cluster.claiming_group("c")
        cluster.claimers(2, "c")
        await asyncio.sleep(30.0)
        assert set(cluster.placed()) == {"m-1", "m-2"}
        assert cluster.users() == [("podgroups", "g")]
        assert running.attempts == {"default/m-1": 2}
        assert len(books_of(running).in_flight) == 0

    on_devices(scenario, claim(), fault=refusing(403, "no", method="PATCH", path="/c/status", reason="Forbidden"))


def test_another_cycle_of_the_group_does_not_share_what_is_still_being_written():
    async def slowly(call, proceed):
        if call.path.endswith("/resourceclaims/c/status"):
            await asyncio.sleep(5)
        return await proceed()

    async def scenario(cluster, running, writes):
        cluster.claiming_group("c")
        cluster.claimers(2, "c")
        await asyncio.sleep(1)
        cluster.claimers(1, "c", first=3)
        await asyncio.sleep(1)
        assert IN_PROCESS in cluster.says("m-3")[1]
        await asyncio.sleep(20)
        assert set(cluster.placed()) == {"m-1", "m-2", "m-3"}
        assert cluster.users() == [("podgroups", "g")]

    on_devices(scenario, claim(), fault=slowly)


@pytest.mark.parametrize("bound", [False, True])
def test_the_reservation_goes_if_no_pod_of_the_group_has_a_node(bound):
    async def scenario(cluster, running, writes):
        cluster.claiming_group("c", minimum=1)
        if bound:
            cluster.member("there", node="n1")
        cluster.claimers(1, "c")
        await asyncio.sleep(1)
        text = "1 resourceclaim not available on the node"
        if bound:
            assert f"{text}. still not schedulable" in cluster.says("m-1")[1]
            assert (writes, cluster.users()) == ([], [("podgroups", "g")])
            return
        assert f"{text}. ResourceClaim unreserved for PodGroup" in cluster.events()[0]["note"]
        await asyncio.sleep(30)
        assert [body["status"] for _, _, body in writes[:2]] == [
            {"reservedFor": [{"$patch": "delete", "uid": GROUP_UID}]},
            {"allocation": None, "reservedFor": None, "devices": None},
        ]
        # After that it is freed, and allocated where there is room.
        assert cluster.placed() == {"m-1": "n2"}
        assert cluster.users() == [("podgroups", "g")]

    status = allocated("d0") | {"reservedFor": [RESERVED_FOR_GROUP]}
    on_devices(scenario, claim(status=status), nodes=("n1", "n2"), cordoned="n1")


def test_a_claim_that_a_pod_outside_of_the_group_uses_keeps_its_reservation():
    async def scenario(cluster, running, writes):
        cluster.claiming_group("c")
        cluster.claimers(2, "c")
        await asyncio.sleep(SOON)
        assert cluster.users() == [("pods", "old"), ("podgroups", "g")]

    on_devices(scenario, claim(status=allocated("d0", users=["old"])), gates=DRA_GATES)
    assert user("old")["resource"] == "pods"
