"""Acceptance cases of claims, played over the API of the embedded cluster (dra spec, section 7)."""

import asyncio

import pytest

from tests.plugins.dynamicresources.deviceworld import (
    FINALIZER,
    N1,
    N2,
    allocated,
    claim,
    claiming,
    device_class,
    play,
    refusing,
    slice_of,
    user,
)
from tests.plugins.objects import container, node

SETTLE = 3.0
ONE_NODE = (N1, device_class(), slice_of("n1", "d0"))


def test_dra_case_95_claims_of_templates():
    async def steps(there):
        there.embedded.insert(claiming("p", ("e", None)))
        there.embedded.insert(claiming("q", ("e", None)) | {"status": {"resourceClaimStatuses": [{"name": "e"}]}})
        await asyncio.sleep(SETTLE)
        assert (there.where("p"), there.running.attempts.get("default/p")) == (None, None)
        gate = there.running.scheduler.profiles["default-scheduler"].plugins["DynamicResources"]
        (waiting,) = there.running.scheduler.pending_pods()
        status = gate.pre_enqueue(waiting)
        assert status.reasons == ('pod "default/p": ResourceClaim not created yet',)
        assert there.where("q") == "n1"
        assert there.writes == [w for w in there.writes if "resourceclaims" not in w.path]

    play(steps, N1)


def reasons(there, name):
    """What PreEnqueue says of a pod."""
    gate = there.running.scheduler.profiles["default-scheduler"].plugins["DynamicResources"]
    (waiting,) = [each for each in there.running.scheduler.pending_pods() if each.name == name]
    return gate.pre_enqueue(waiting).reasons


def generated(name, claim_name):
    return claiming(name, ("e", None)) | {
        "status": {"resourceClaimStatuses": [{"name": "e", "resourceClaimName": claim_name}]}
    }


def test_dra_case_96_claims_that_cannot_be_used():
    async def steps(there):
        for name in ("missing", "going"):
            there.embedded.insert(claiming(f"p-{name}", name))
        there.embedded.insert(generated("thief", "others"))
        there.embedded.insert(claiming("direct", "others"))
        await asyncio.sleep(SETTLE)
        assert reasons(there, "p-missing") == ('could not find ResourceClaim "default/missing"',)
        assert reasons(there, "p-going") == ('resourceclaim "going" is being deleted',)
        assert reasons(there, "thief") == (
            "ResourceClaim default/others was not created for Pod default/thief (Pod is not owner)",
        )
        assert there.where("direct") == "n1"
        assert set(there.running.attempts) == {"default/direct"}
        there.embedded.insert(claim("missing"))
        await asyncio.sleep(SETTLE)
        assert there.where("p-missing") == "n1"

    going = claim("going", deletionTimestamp="2030-01-01T00:00:00Z", finalizers=["x/y"])
    play(steps, N1, device_class(), slice_of("n1", "d0", "d1"), going, claim("others", owner="p"))


def test_dra_case_97_a_class_is_missing():
    async def steps(there):
        there.embedded.insert(claiming("p", "c"))
        await asyncio.sleep(SETTLE)
        assert there.message("p") == (
            "0/1 nodes are available: request r: device class dc does not exist. no new claims to deallocate, "
            "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        )
        there.embedded.insert(device_class())
        await asyncio.sleep(SETTLE)
        assert there.where("p") == "n1"

    play(steps, N1, slice_of("n1", "d0"), claim())


def test_dra_case_98_two_pods_share_a_claim_that_is_being_allocated():
    async def slowly(call, proceed):
        if call.path.endswith("/resourceclaims/c/status"):
            await asyncio.sleep(5)
        return await proceed()

    async def steps(there):
        there.embedded.insert(claiming("p", "c"))
        there.embedded.insert(claiming("q", "c"))
        await asyncio.sleep(2)
        in_process = "resource claim default/c is in the process of being allocated"
        assert in_process in there.message("q")
        assert len(there.books.in_flight) == 1
        await asyncio.sleep(10)
        assert (there.where("p"), there.where("q")) == ("n2", "n2")
        assert there.get("c")["status"]["reservedFor"] == [user("p"), user("q")]
        assert len(there.books.in_flight) == 0

    play(steps, N1, N2, device_class(), slice_of("n2", "d0"), claim(), fault=slowly)


def test_dra_case_99_an_idle_claim_is_freed():
    async def steps(there):
        there.embedded.insert(claiming("p", "c"))
        await asyncio.sleep(SETTLE)
        assert there.notes()[0] == (
            "0/2 nodes are available: 1 node(s) were unschedulable, 1 resourceclaim not available on the node. "
            "deallocation of ResourceClaim completed, preemption: 0/2 nodes are available: "
            "2 Preemption is not helpful for scheduling."
        )
        freed, again = (w.body["status"] for w in there.writes if "resourceclaims" in w.path)
        assert freed == {"allocation": None, "reservedFor": None, "devices": None}
        assert again["allocation"]["devices"]["results"][0]["pool"] == "n2"
        assert there.where("p") == "n2"

    cordoned = node("n1", unschedulable=True)
    devices = [{"driver": "drv", "pool": "n1", "device": "d0"}]
    held = claim(status=allocated("d0") | {"devices": devices}, finalizers=[FINALIZER])
    play(steps, cordoned, N2, device_class(), slice_of("n1", "d0"), slice_of("n2", "d0"), held)


def test_a_claim_that_cannot_be_freed():
    async def steps(there):
        there.embedded.insert(claiming("p", "c"))
        await asyncio.sleep(SETTLE)
        assert "cannot free claim c: no" in there.notes()
        assert there.get("c")["status"]["allocation"]["devices"]["results"][0]["pool"] == "n1"
        assert there.running.attempts == {"default/p": 1}

    cordoned = node("n1", unschedulable=True)
    held = claim(status=allocated("d0"), finalizers=[FINALIZER])
    fault = refusing(403, "no", method="PATCH", path="/c/status", reason="Forbidden")
    play(steps, cordoned, N2, device_class(), slice_of("n1", "d0"), slice_of("n2", "d0"), held, fault=fault)


def test_a_new_leader_reads_claims_once_more():
    async def steps(there):
        # What the predecessor allocated at the last moment is known before the first decision.
        reflector = there.running.scheduler.watches.reflectors["/apis/resource.k8s.io/v1/resourceclaims"]
        before = reflector.lists
        await there.running.scheduler.catch_up()
        assert reflector.lists == before + 1

    play(steps, *ONE_NODE, claim(status=allocated("d0", users=["old"])))


def test_dra_case_100_what_others_use_is_not_freed():
    async def steps(there):
        before = there.get("c")
        there.embedded.insert(claiming("p", "c"))
        there.embedded.insert(claiming("plain", containers=[container(cpu="100")]))
        await asyncio.sleep(SETTLE)
        assert "1 resourceclaim not available on the node. still not schedulable, preemption" in there.message("p")
        assert "1 node(s) were unschedulable. no new claims to deallocate, preemption" in there.message("plain")
        assert there.get("c") == before

    cordoned = node("n1", unschedulable=True)
    held = claim(status=allocated("d0", users=["another"]), finalizers=[FINALIZER])
    play(steps, cordoned, N2, device_class(), slice_of("n1", "d0"), slice_of("n2", "d0"), held)


def test_dra_case_102_what_is_written_before_a_pod_is_bound():
    async def steps(there):
        for name in ("fresh", "has", "mine"):
            there.embedded.insert(claiming(f"p-{name}", name))
            await asyncio.sleep(SETTLE)
            assert there.where(f"p-{name}") == "n1"
        assert there.of_claims() == [
            ("PATCH", "resourceclaims/fresh"),
            ("PATCH", "resourceclaims/fresh/status"),
            ("PATCH", "resourceclaims/has/status"),
        ]
        fresh = there.get("fresh")
        assert fresh["metadata"]["finalizers"] == ["other/finalizer", FINALIZER]
        assert fresh["status"]["reservedFor"] == [user("p-fresh")]
        assert fresh["status"]["allocation"]["allocationTimestamp"] == "2030-01-01T00:00:00Z"
        # Fields that are not read survive.
        assert fresh["metadata"]["labels"] == {"kept": "yes"}
        assert there.get("has")["status"]["devices"][0]["data"] == {"x": 1}

    has = allocated("d1") | {"devices": [{"driver": "drv", "pool": "n1", "device": "d1", "data": {"x": 1}}]}
    play(
        steps,
        N1,
        device_class(),
        slice_of("n1", "d0", "d1", "d2"),
        claim("fresh", finalizers=["other/finalizer"], labels={"kept": "yes"}),
        claim("has", finalizers=[FINALIZER], status=has),
        claim("mine", finalizers=[FINALIZER], status=allocated("d2", users=["p-mine"])),
    )


def test_dra_case_103_a_conflict_is_read_again():
    async def steps(there):
        there.embedded.insert(claiming("p", "c"))
        await asyncio.sleep(SETTLE)
        assert there.where("p") == "n1"
        assert there.of_claims().count(("PATCH", "resourceclaims/c/status")) == 2
        assert there.running.attempts == {"default/p": 1}

    fault = refusing(409, "the object has been modified", method="PATCH", path="/c/status", reason="Conflict")
    play(steps, *ONE_NODE, claim(), fault=fault)


def test_dra_case_103_another_scheduler_was_faster():
    seen = {}

    async def stolen(call, proceed):
        if call.method == "PATCH" and call.path.endswith("resourceclaims/c") and not seen:
            seen["now"] = True
            registry = seen_world[0].embedded.registry
            resource = registry.resource("resource.k8s.io", "v1", "resourceclaims")
            record = registry.record(resource, "default", "c")
            registry.replace_record(resource, record, {**record.obj(), "status": allocated("d1", where="n2")})
        return await proceed()

    seen_world = []

    async def steps(there):
        seen_world.append(there)
        there.embedded.insert(claiming("p", "c", nodeSelector={"kubernetes.io/hostname": "n1"}))
        await asyncio.sleep(0.3)
        assert "claim default/c got allocated elsewhere in the meantime" in there.message("p")
        assert len(there.books.in_flight) == 0
        # The device is free again for others.
        there.embedded.insert(claiming("q", "other"))
        await asyncio.sleep(SETTLE)
        assert there.where("q") == "n1"

    objects = (N1, N2, device_class(), slice_of("n1", "d0"), slice_of("n2", "d1"), claim(), claim("other"))
    play(steps, *objects, fault=stolen)


def test_dra_cases_104_and_113_a_binding_fails_after_claims_were_written():
    async def steps(there):
        there.embedded.insert(claiming("p", "c", "has"))
        await asyncio.sleep(0.5)
        assert there.where("p") is None
        assert there.get("c")["status"]["allocation"]["devices"]["results"][0]["device"] == "d0"
        assert not there.get("c")["status"].get("reservedFor")
        releases = [w for w in there.writes if w.body.get("status", {}).get("reservedFor", [{}])[0].get("$patch")]
        assert [(w.method, w.path.rpartition("/resourceclaims/")[2], w.body) for w in releases] == [
            (
                "PATCH",
                f"{name}/status",
                {
                    "metadata": {"uid": f"uid-claim-{name}"},
                    "status": {"reservedFor": [{"$patch": "delete", "uid": "uid-default-p"}]},
                },
            )
            for name in ("c", "has")
        ]
        assert there.get("has")["status"]["reservedFor"] == [user("other")]
        before = len(there.writes)
        await asyncio.sleep(SETTLE)
        assert there.where("p") == "n1"
        again = [w for w in there.writes[before:] if "resourceclaims" in w.path]
        assert ["allocation" in w.body["status"] for w in again] == [False, False]
        assert there.get("has")["status"]["reservedFor"] == [user("other"), user("p")]

    has = claim("has", finalizers=[FINALIZER], status=allocated("d1", users=["other"]))
    play(steps, N1, device_class(), slice_of("n1", "d0", "d1"), claim(), has, fault=refusing(500, "no"))


def test_dra_case_110_a_device_in_flight_is_free_again_when_its_binding_fails():
    async def steps(there):
        there.embedded.insert(claiming("p", "c"))
        there.embedded.insert(claiming("q", "d"))
        await asyncio.sleep(0.4)
        assert "1 cannot allocate all claims" in there.message("q")
        await asyncio.sleep(20)
        # The first was refused for good, so the second has the device.
        assert (there.where("p"), there.where("q")) == (None, "n1")

    async def slow_refusal(call, proceed):
        if call.path.endswith("resourceclaims/c"):
            await asyncio.sleep(0.5)
            return await refusing(403, "no", method="PATCH", path="/c", reason="Forbidden")(call, proceed)
        return await proceed()

    play(steps, *ONE_NODE, claim(), claim("d"), fault=slow_refusal)


def test_dra_case_112_claims_that_are_the_pods_already():
    async def steps(there):
        there.embedded.insert(claiming("p", "c", "d"))
        await asyncio.sleep(SETTLE)
        assert there.where("p") == "n1"
        assert there.of_claims() == []

    mine = allocated("d0", users=["p"])
    play(steps, *ONE_NODE, claim(status=mine), claim("d", status=allocated("d1", users=["p"])))


@pytest.mark.parametrize("first", ["claims", "slices", "pods"])
def test_a_restart_finds_what_is_in_use_in_any_order_of_lists(first):
    async def late(call, proceed):
        kind = {"claims": "/resourceclaims", "slices": "/resourceslices", "pods": "/pods"}[first]
        if call.method == "GET" and call.path.endswith(kind) and "watch" not in call.query:
            await asyncio.sleep(1)
        return await proceed()

    async def steps(there):
        await asyncio.sleep(SETTLE)
        assert there.where("p") == "n1"
        assert there.get("c")["status"]["allocation"]["devices"]["results"][0]["device"] == "d1"

    held = claim("held", finalizers=[FINALIZER], status=allocated("d0", users=["old"]))
    objects = (N1, device_class(), slice_of("n1", "d0", "d1"), held, claim(), claiming("p", "c"))
    play(steps, *objects, fault=late)
