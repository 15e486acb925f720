"""With Reservations, which do not know claims: room comes from the Reservation, devices from the node that it is on."""

import asyncio

from tests.parity.koord import custom_resources
from tests.plugins.dynamicresources.deviceworld import (
    N1,
    N2,
    claim,
    claiming,
    device_class,
    slice_of,
    world,
)
from tests.plugins.objects import container
from tests.plugins.reservation.pairs.cluster import AFFINITY, configuration, profile
from tests.virtualtime import run

API = "scheduling.koordinator.sh/v1alpha1"
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
SETTLE = 5.0


def reservation(status, **template):
    requests = {"cpu": "1", "memory": "1Gi"}
    one = {"name": "c", "image": "x", "resources": {"requests": requests}, **template.pop("container", {})}
    return {
        "apiVersion": API,
        "kind": "Reservation",
        "metadata": {"name": "r", "uid": "uid-r", "creationTimestamp": "2030-01-01T00:00:00Z"},
        "spec": {
            "template": {"spec": {"containers": [one], **template}},
            "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
            "ttl": "24h",
            "allocateOnce": True,
        },
        "status": status,
    }


def available(where):
    at = "2030-01-01T00:00:00Z"
    conditions = [
        {"type": kind, "status": "True", "reason": reason, "lastProbeTime": at, "lastTransitionTime": at}
        for kind, reason in (("Scheduled", "Scheduled"), ("Ready", "Available"))
    ]
    allocatable = {"cpu": "1", "memory": "1Gi"}
    return {"phase": "Available", "nodeName": where, "allocatable": allocatable, "conditions": conditions}


def owner(name, *claims):
    made = claiming(name, *claims, containers=[container(cpu="1", memory="1Gi")], labels={"app": "web"})
    made["metadata"]["annotations"] = AFFINITY
    return made


def play(steps, *objects):
    async def work():
        settings = configuration(profile("Reservation"))
        async with world(*custom_resources(), *objects, configuration=settings) as there:
            await steps(there)

    run(work())


def test_a_pod_with_a_reservation_gets_devices_of_its_node():
    async def steps(there):
        there.embedded.insert(owner("p", "c"))
        await asyncio.sleep(SETTLE)
        assert there.where("p") == "n2"
        assert ALLOCATED in there.embedded.get("Pod", "p")["metadata"]["annotations"]
        (result,) = there.get("c")["status"]["allocation"]["devices"]["results"]
        assert result["pool"] == "n2"

    slices = slice_of("n1", "d0"), slice_of("n2", "d0")
    play(steps, N1, N2, device_class(), *slices, reservation(available("n2")), claim("c"))


def test_without_a_device_on_its_node_a_pod_uses_no_reservation():
    async def steps(there):
        there.embedded.insert(owner("p", "c"))
        await asyncio.sleep(SETTLE)
        assert there.where("p") is None
        assert there.embedded.get("Reservation", "r", api_version=API)["status"].get("currentOwners") in (None, [])
        assert (there.books.in_use.pools, len(there.books.in_flight), there.of_claims()) == ({}, 0, [])
        there.embedded.insert(slice_of("n2", "d0"))
        await asyncio.sleep(SETTLE)
        assert there.where("p") == "n2"

    play(steps, N1, N2, device_class(), slice_of("n1", "d0"), reservation(available("n2")), claim("c"))


def status(there):
    return there.embedded.get("Reservation", "r", api_version=API)["status"]


def test_a_reservation_holds_no_devices_of_claims():
    """It is placed where its pods could be, and no claim is written for it: there is no such pod."""

    async def steps(there):
        await asyncio.sleep(SETTLE)
        assert (status(there)["phase"], status(there)["nodeName"]) == ("Available", "n2")
        assert (there.of_claims(), there.books.in_use.pools, len(there.books.in_flight)) == ([], {}, 0)
        there.embedded.insert(owner("p", "c"))
        await asyncio.sleep(SETTLE)
        assert (there.where("p"), status(there)["nodeName"]) == ("n2", "n2")

    named = reservation({"phase": "Pending"}, resourceClaims=[{"name": "x", "resourceClaimName": "c"}])
    play(steps, N1, N2, device_class(), slice_of("n2", "d0"), named, claim("c"))


def test_a_reservation_of_an_extended_resource_that_claims_serve_makes_no_claim():
    async def steps(there):
        await asyncio.sleep(SETTLE)
        assert (status(there)["phase"], status(there)["nodeName"]) == ("Available", "n2")
        assert (there.of_claims(), there.claims(), there.books.in_use.pools) == ([], [], {})

    resources = {"requests": {"cpu": "1", "memory": "1Gi", "ex.com/d": "1"}, "limits": {"ex.com/d": "1"}}
    wanting = reservation({"phase": "Pending"}, container={"resources": resources})
    play(steps, N1, N2, device_class(extendedResourceName="ex.com/d"), slice_of("n2", "d0"), wanting)


def test_a_reservation_with_a_claim_of_a_template_says_why_it_waits():
    """No controller makes claims for Reservations."""

    async def steps(there):
        await asyncio.sleep(SETTLE)
        assert any("ResourceClaim not created yet" in note for note in there.notes())

    named = reservation({"phase": "Pending"}, resourceClaims=[{"name": "x", "resourceClaimTemplateName": "t"}])
    play(steps, N1, device_class(), slice_of("n1", "d0"), named)
