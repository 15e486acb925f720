"""An embedded API server with the Workload API, PodGroups and their pods."""

import json

from koordsched.fakecluster.workloadapi import serve_workload_api
from koordsched.plugins import CONTROLLERS
from tests.embedded import Embedded, scheduler_on

API = "scheduling.k8s.io/v1alpha2"
GATES = ("GenericWorkload=true", "GangScheduling=true")
ALL_GATES = (*GATES, "TopologyAwareWorkloadScheduling=true", "WorkloadAwarePreemption=true")


def scheduling(cluster, config=None, gates=GATES, **more):
    """A scheduler with these gates."""
    return scheduler_on(cluster, config, gates=gates, controllers=CONTROLLERS, **more)


class PodGroupCluster(Embedded):
    """With the API, and shorthands; everything is in one namespace."""

    def __init__(self, nodes=("n1",), cpu="8", seed=1):
        super().__init__(seed)
        serve_workload_api(self.registry)
        for name in nodes:
            self.node(name, cpu)

    def create(self, thing):
        thing = json.loads(json.dumps(thing))
        resource = self.registry.resource_for_kind(thing["apiVersion"], thing["kind"])
        return self.registry.create(resource, "default" if resource.namespaced else None, thing)

    def node(self, name, cpu="8", labels=None):
        amounts = {"cpu": cpu, "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "110"}
        status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        meta = {"name": name, "labels": labels or {}}
        self.create({"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status})

    def group(self, minimum=3, name="g", **spec):
        """Puts a PodGroup in: a gang, or with `minimum` 0 one of the basic policy."""
        policy = {"gang": {"minCount": minimum}} if minimum else {"basic": {}}
        spec = {"schedulingPolicy": policy, **spec}
        self.create({"apiVersion": API, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec})

    def member(self, name, group="g", cpu="1", priority=None, node="", labels=None, annotations=None, **spec):
        """Puts a pod in."""
        thing = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
            "spec": {
                "schedulerName": "default-scheduler",
                "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}],
                **({"schedulingGroup": {"podGroupName": group}} if group else {}),
                **({"priority": priority} if priority is not None else {}),
                **({"nodeName": node} if node else {}),
                **spec,
            },
            "status": {"phase": "Running" if node else "Pending"},
        }
        self.insert(thing)

    def members(self, count, first=1, **more):
        """Puts the pods m-`first`, … in."""
        for number in range(first, first + count):
            self.member(f"m-{number}", **more)

    def condition(self, name="g"):
        """The condition PodGroupScheduled as (status, reason, message); None if there is none."""
        status = (self.get("PodGroup", name, api_version=API) or {}).get("status") or {}
        for condition in status.get("conditions", ()):
            if condition["type"] == "PodGroupScheduled":
                return condition["status"], condition["reason"], condition["message"]
        return None

    def full_condition(self, name="g"):
        """The only condition of a group."""
        (found,) = self.get("PodGroup", name, api_version=API)["status"]["conditions"]
        return found

    def placed(self):
        """Pod -> node, of the pods that have one and stay."""
        pods = self.registry.list(self.resource("Pod"))
        return {
            pod["metadata"]["name"]: pod["spec"]["nodeName"]
            for pod in pods
            if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
        }

    def says(self, name, kind="PodScheduled"):
        """(reason, message) of a condition of a pod; None if it has none."""
        for condition in (self.get("Pod", name).get("status") or {}).get("conditions", ()):
            if condition["type"] == kind:
                return condition["reason"], condition["message"]
        return None

    def nominated(self, name):
        return (self.get("Pod", name).get("status") or {}).get("nominatedNodeName", "")

    async def delete(self, *names, kind="pods", api="/api/v1"):
        """Objects go at once."""
        for name in names:
            path = f"{api}/namespaces/default/{kind}/{name}"
            assert (await self.call("DELETE", path, {"gracePeriodSeconds": 0}))[0] == 200
