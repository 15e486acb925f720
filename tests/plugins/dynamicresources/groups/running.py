"""PodGroups whose pods have claims together, with nodes that have devices."""

import json

from tests.plugins.dynamicresources.deviceworld import GROUP, device_class, slice_of
from tests.plugins.gangscheduling.running import API, GATES, PodGroupCluster, scheduling
from tests.virtualtime import run

DRA_GATES = (*GATES, "DRAWorkloadResourceClaims=true")
GROUP_UID = "uid-group-g"


class DeviceCluster(PodGroupCluster):
    """Shorthands; node n1 has `devices`, others one each."""

    def __init__(self, nodes=("n1",), devices=("d0",), cordoned="", **more):
        super().__init__(nodes, **more)
        if cordoned:
            self.registry.patch(self.resource("Node"), None, cordoned, {"spec": {"unschedulable": True}}, "merge")
        self.insert(device_class())
        for name in nodes:
            self.insert(slice_of(name, *(devices if name == "n1" else ("d0",))))

    def claiming_group(self, *entries, minimum=2, name="g"):
        """Puts in a PodGroup with these entries: the name of a claim, or (entry, template)."""
        spec = {
            "schedulingPolicy": {"gang": {"minCount": minimum}},
            "resourceClaims": [entry(each) for each in entries],
        }
        self.insert({"apiVersion": API, "kind": "PodGroup", "metadata": {"name": name, "uid": GROUP_UID}, "spec": spec})

    def claimers(self, count, *entries, made=(), first=1, **more):
        """Puts in the pods m-`first`, …; `made`: (entry, claim) for what was made of templates."""
        for number in range(first, first + count):
            self.member(f"m-{number}", resourceClaims=[entry(each) for each in entries], **more)
            if made:
                statuses = [{"name": name, "resourceClaimName": claim} for name, claim in made]
                self.registry.patch(
                    self.resource("Pod"),
                    "default",
                    f"m-{number}",
                    {"status": {"resourceClaimStatuses": statuses}},
                    "merge",
                    "status",
                )

    def claim(self, name="c"):
        return self.get("ResourceClaim", name, api_version=GROUP)

    def users(self, name="c"):
        """(resource, name) of those that the claim is reserved for."""
        reserved = (self.claim(name).get("status") or {}).get("reservedFor") or ()
        return [(user["resource"], user["name"]) for user in reserved]

    def devices(self, name="c"):
        """The devices of the claim."""
        allocation = (self.claim(name).get("status") or {}).get("allocation")
        return [result["device"] for result in allocation["devices"]["results"]] if allocation else []


def entry(named):
    """An entry of spec.resourceClaims."""
    if isinstance(named, str):
        return {"name": f"e-{named}", "resourceClaimName": named}
    return {"name": named[0], "resourceClaimTemplateName": named[1]}


def on_devices(scenario, *objects, gates=DRA_GATES, nodes=("n1",), devices=("d0",), fault=None, **more):
    """Awaits `scenario` with a cluster of these objects, a scheduler, and what that wrote of claims: (method, path)."""
    writes = []

    async def noting(call, proceed):
        if call.method != "GET" and "resourceclaims" in call.path:
            body = json.loads(call.body) if call.body else {}
            writes.append((call.method, call.path.partition("/default/")[2], body))
        return await (fault(call, proceed) if fault is not None else proceed())

    async def main():
        cluster = DeviceCluster(nodes, devices, **more)
        for thing in objects:
            cluster.insert(thing)
        async with scheduling(cluster, gates=gates, fault=noting) as running:
            await scenario(cluster, running, writes)

    run(main(), limit=86400.0)


def books_in(scheduler):
    """What the plugin knows."""
    return scheduler.profiles["default-scheduler"].plugins["DynamicResources"].books


def books_of(running):
    """What the plugin of a running scheduler knows."""
    return books_in(running.scheduler)
