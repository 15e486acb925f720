"""Extended resources that DRA serves, played over the API (dra spec 3.10, cases 107 to 111)."""

import asyncio

import pytest

from tests.plugins.dynamicresources.deviceworld import (
    FINALIZER,
    GPU,
    N1,
    allocated,
    claim,
    play,
    refusing,
    slice_of,
    special,
    user,
    wanting,
)
from tests.plugins.objects import node


def test_dra_case_107_a_claim_is_made():
    async def steps(there):
        there.embedded.insert(wanting("p"))
        await asyncio.sleep(3)
        assert there.where("p") == "n1"
        (made,) = there.claims()
        name = made["metadata"]["name"]
        assert name.startswith("p-extended-resources-")
        assert made["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
        assert made["metadata"]["finalizers"] == [FINALIZER]
        (owner,) = made["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", "uid-default-p", True)
        assert made["status"]["reservedFor"] == [user("p")]
        status = there.embedded.get("Pod", "p")["status"]["extendedResourceClaimStatus"]
        mapping = {"containerName": "m", "resourceName": "ex.com/gpu", "requestName": "container-0-request-1"}
        assert status == {"resourceClaimName": name, "requestMappings": [mapping]}
        writes = [(w.method, w.path.rpartition("/default/")[2]) for w in there.writes if "nominated" not in str(w.body)]
        assert [each for each in writes if each != ("PATCH", "pods/p/status")] == [
            ("POST", "resourceclaims"),
            ("PATCH", f"resourceclaims/{name}"),
            ("PATCH", f"resourceclaims/{name}/status"),
        ]
        assert created(there) == {"success": 1}
        assert len(there.books.in_flight) == 0
        # The device is in use.
        there.embedded.insert(wanting("q"))
        await asyncio.sleep(3)
        assert there.where("q") is None

    play(steps, N1, GPU, slice_of("n1", "d0"))


def created(there):
    return {
        sample.labels["status"]: sample.value
        for family in there.running.scheduler.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "scheduler_resourceclaim_creates_total"
    }


def test_dra_case_107_a_binding_fails_and_the_claim_is_taken_back():
    async def steps(there):
        there.embedded.insert(wanting("p"))
        await asyncio.sleep(0.5)
        assert there.where("p") is None
        assert there.claims() == []
        assert "extendedResourceClaimStatus" not in there.embedded.get("Pod", "p")["status"]
        kept = [(w.method, "finalizers" in w.body.get("metadata", {})) for w in there.writes if "claims/p-" in w.path]
        assert kept == [("PATCH", True), ("PATCH", False), ("PATCH", True), ("DELETE", False)]
        await asyncio.sleep(5)
        assert there.where("p") == "n1"
        assert len(there.claims()) == 1

    play(steps, N1, GPU, slice_of("n1", "d0"), fault=refusing(500, "no"))


def test_dra_case_107_the_api_server_refuses_the_claim():
    async def steps(there):
        there.embedded.insert(wanting("p"))
        await asyncio.sleep(0.5)
        assert "create claim for extended resources" in there.message("p")
        assert created(there) == {"failure": 1}
        assert len(there.books.in_flight) == 0
        await asyncio.sleep(5)
        assert there.where("p") == "n1"

    fault = refusing(403, "exceeded quota", path="/resourceclaims", reason="Forbidden")
    play(steps, N1, GPU, slice_of("n1", "d0"), fault=fault)


def test_dra_case_108_a_device_plugin_serves_the_resource():
    async def steps(there):
        there.embedded.insert(wanting("p"))
        await asyncio.sleep(3)
        assert there.where("p") == "n1"
        assert there.claims() == []

    play(steps, node("n1", gpu="1"), GPU)


def test_dra_case_108_without_a_class_the_resource_is_missing():
    async def steps(there):
        there.embedded.insert(wanting("p"))
        await asyncio.sleep(3)
        assert "0/1 nodes are available: 1 Insufficient ex.com/gpu. no new claims" in there.message("p")

    play(steps, N1, slice_of("n1", "d0"))


def test_dra_case_109_a_claim_of_an_earlier_attempt_is_deleted():
    async def steps(there):
        there.embedded.insert(wanting("p"))
        await asyncio.sleep(5)
        text = "1 cannot schedule extended resource claim. deletion of ResourceClaim completed"
        assert any(text in note for note in there.notes())
        assert there.where("p") == "n1"
        (made,) = there.claims()
        assert made["metadata"]["name"] != "left"

    left = special("left", owner="p", finalizers=[FINALIZER])
    play(steps, N1, GPU, slice_of("n1", "d0"), left)


@pytest.mark.parametrize("classes", [[], [GPU]], ids=["without the class", "with the class"])
@pytest.mark.parametrize("exists", [True, False], ids=["claim", "status alone"])
def test_what_an_earlier_attempt_has_left_goes_where_a_device_plugin_serves_the_resource(exists, classes):
    """The kubelet would look for a device that is on another node."""

    async def steps(there):
        mapping = {"containerName": "m", "resourceName": "ex.com/gpu", "requestName": "container-0-request-1"}
        named = {"resourceClaimName": "left", "requestMappings": [mapping]}
        pod = wanting("p")
        there.embedded.insert({**pod, "status": {**pod.get("status", {}), "extendedResourceClaimStatus": named}})
        await asyncio.sleep(5)
        assert there.where("p") == "n2"
        assert "extendedResourceClaimStatus" not in there.embedded.get("Pod", "p")["status"]
        assert there.claims() == []

    left = special("left", owner="p", status=allocated("d0", users=["p"]), finalizers=[FINALIZER])
    play(steps, node("n2", gpu="1"), *classes, *([left] if exists else []))


def test_a_status_of_an_earlier_attempt_is_replaced_in_one_write():
    async def steps(there):
        named = {"resourceClaimName": "left", "requestMappings": []}
        there.embedded.insert({**wanting("p"), "status": {"extendedResourceClaimStatus": named}})
        await asyncio.sleep(5)
        assert there.where("p") == "n1"
        statuses = [write.body.get("status", {}) for write in there.writes]
        said = [each for each in statuses if "extendedResourceClaimStatus" in each]
        assert [bool(each["extendedResourceClaimStatus"]) for each in said] == [True]

    play(steps, N1, GPU, slice_of("n1", "d0"))


@pytest.mark.parametrize("served", [True, False], ids=["device plugin", "DRA"])
def test_dra_case_111_a_claim_and_an_extended_resource(served):
    async def steps(there):
        there.embedded.insert(wanting("p", "c"))
        await asyncio.sleep(3)
        assert there.where("p") == "n1"
        devices = {
            each["metadata"]["name"]: each["status"]["allocation"]["devices"]["results"] for each in there.claims()
        }
        (own,) = devices.pop("c")
        assert own["device"] == "d0"
        if served:
            assert devices == {}
            return
        ((special,),) = devices.values()
        assert (special["request"], special["device"]) == ("container-0-request-1", "d1")

    where = node("n1", gpu="1") if served else N1
    play(steps, where, GPU, slice_of("n1", "d0", "d1"), claim())
