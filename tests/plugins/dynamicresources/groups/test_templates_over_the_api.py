"""Claims made of the templates of a PodGroup, from the template to running pods and back."""

import asyncio

from koordsched.fakecluster.controllers import Controllers
from tests.plugins.dynamicresources.deviceworld import GROUP, claim
from tests.plugins.dynamicresources.groups.running import DRA_GATES, on_devices
from tests.plugins.gangscheduling.running import API

SOON = 3.0


def template(name="t", count=1):
    """A template of claims of devices."""
    spec = {"spec": claim(count=count)["spec"]}
    return {"apiVersion": GROUP, "kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": spec}


def claims(cluster):
    return cluster.registry.list(cluster.resource("ResourceClaim", GROUP))


def test_one_claim_is_made_for_the_group_and_all_of_its_pods_have_it():
    async def scenario(cluster, running, writes):
        controllers = Controllers(cluster.registry)
        controllers.start()
        # The pods come before their group, and the group before the template.
        cluster.claimers(2, ("gpu", "t"), ("own", "t"))
        await asyncio.sleep(SOON)
        assert claims(cluster) == []
        cluster.claiming_group(("gpu", "t"), minimum=3)
        await asyncio.sleep(SOON)
        assert claims(cluster) == []
        assert 'PodGroupResourceClaim gpu: resource claim template "t" not found' in [
            event["note"] for event in cluster.events()
        ]
        cluster.create(template())
        cluster.claimers(1, ("gpu", "t"), ("own", "t"), first=3)
        await asyncio.sleep(SOON)
        by_owner = {each["metadata"]["ownerReferences"][0]["name"]: each for each in claims(cluster)}
        assert set(by_owner) == {"g", "m-1", "m-2", "m-3"}
        shared = by_owner["g"]
        owner = shared["metadata"]["ownerReferences"][0]
        assert (owner["apiVersion"], owner["kind"], owner["controller"]) == (API, "PodGroup", True)
        assert shared["metadata"]["annotations"] == {"resource.kubernetes.io/podgroup-claim-name": "gpu"}
        name = shared["metadata"]["name"]
        assert name.startswith("g-gpu-")
        status = cluster.get("PodGroup", "g", api_version=API)["status"]
        assert status["resourceClaimStatuses"] == [{"name": "gpu", "resourceClaimName": name}]
        assert status["conditions"][0]["type"] == "PodGroupScheduled"
        for member in ("m-1", "m-2", "m-3"):
            assert {"name": "gpu", "resourceClaimName": name} in cluster.get("Pod", member)["status"][
                "resourceClaimStatuses"
            ]
            own = by_owner[member]["metadata"]["name"]
            assert cluster.users(own) == [("pods", member)]
        assert set(cluster.placed()) == {"m-1", "m-2", "m-3"}
        assert cluster.users(name) == [("podgroups", "g")]

        # Without pods the group keeps its devices; with the group, they go.
        await cluster.delete("m-1", "m-2", "m-3")
        await asyncio.sleep(SOON)
        assert [each["metadata"]["name"] for each in claims(cluster)] == [name]
        assert cluster.users(name) == [("podgroups", "g")]
        await cluster.delete("g", kind="podgroups", api=f"/apis/{API}")
        await asyncio.sleep(SOON)
        assert claims(cluster) == []
        controllers.stop()

    on_devices(scenario, devices=("d0", "d1", "d2", "d3"))


def test_without_a_group_that_has_the_entry_the_pods_have_their_own():
    async def scenario(cluster, running, writes):
        controllers = Controllers(cluster.registry)
        controllers.start()
        cluster.create(template())
        cluster.claiming_group(("other", "t"), minimum=2)
        cluster.claimers(2, ("gpu", "t"))
        await asyncio.sleep(SOON)
        owners = sorted(each["metadata"]["ownerReferences"][0]["name"] for each in claims(cluster))
        assert owners == ["g", "m-1", "m-2"]
        assert set(cluster.placed()) == {"m-1", "m-2"}
        controllers.stop()

    on_devices(scenario, devices=("d0", "d1"))


def test_a_claim_of_another_group_is_refused():
    async def scenario(cluster, running, writes):
        cluster.claiming_group(("gpu", "t"))
        cluster.claimers(1, ("gpu", "t"), made=[("gpu", "c")])
        cluster.member("alone", group="", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
        cluster.registry.patch(
            cluster.resource("Pod"),
            "default",
            "alone",
            {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}},
            "merge",
            "status",
        )
        await asyncio.sleep(SOON)
        gate = running.scheduler.profiles["default-scheduler"].plugins["DynamicResources"]
        texts = {pod.name: gate.pre_enqueue(pod).reasons for pod in running.scheduler.pending_pods()}
        refused = "ResourceClaim default/c was not created for Pod default/"
        assert texts == {
            "m-1": (f"{refused}m-1 (neither Pod nor PodGroup g is the owner)",),
            "alone": (f"{refused}alone (Pod is not owner)",),
        }

    foreign = {"apiVersion": API, "kind": "PodGroup", "name": "h", "uid": "uid-h", "controller": True}
    on_devices(scenario, claim(ownerReferences=[foreign]), gates=DRA_GATES)
