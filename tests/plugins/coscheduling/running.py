"""An embedded API server with PodGroups and gangs of pods."""

import asyncio
import json
from pathlib import Path

from koordsched.fakecluster.clock import rfc3339
from koordsched.plugins import CONTROLLERS
from tests.embedded import Embedded, scheduler_on
from tests.yamlfiles import document

CRD = Path(__file__).parents[3] / "manifests" / "crds" / "podgroups.yaml"
API = "scheduling.sigs.k8s.io/v1alpha1"
LABEL = "pod-group.scheduling.sigs.k8s.io"
GANG = "gang.scheduling.koordinator.sh/"
POINTS = ["preEnqueue", "preFilter", "postFilter", "preScore", "score", "reserve", "permit", "preBind", "postBind"]


def configuration(**args):
    """One profile with the plugin, with these arguments."""
    plugins = {point: {"enabled": [{"name": "Coscheduling"}]} for point in POINTS}
    plugins["postFilter"] |= {"disabled": [{"name": "*"}]}
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": plugins,
        "pluginConfig": [{"name": "Coscheduling", "args": args}],
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }


def scheduling(cluster, config=None, *, leads=True, **more):
    """A scheduler with the plugin; without its controller if it does not lead."""
    controllers = {"Coscheduling": CONTROLLERS["Coscheduling"]} if leads else None
    return scheduler_on(cluster, config or configuration(), controllers=controllers, **more)


class GangCluster(Embedded):
    """With the kind, and shorthands; everything is in one namespace."""

    def __init__(self, nodes=("n1",), cpu="8", seed=1):
        super().__init__(seed)
        self.create(document(CRD))
        for name in nodes:
            self.node(name, cpu)

    def create(self, thing):
        thing = json.loads(json.dumps(thing))
        resource = self.registry.resource_for_kind(thing["apiVersion"], thing["kind"])
        namespace = thing["metadata"].get("namespace", "default") if resource.namespaced else None
        return self.registry.create(resource, namespace, thing)

    def node(self, name, cpu="8"):
        amounts = {"cpu": cpu, "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "110"}
        status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        self.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status})

    def group(self, minimum=3, name="g", age=0.0, status=None, **annotations):
        """Puts a PodGroup in."""
        meta = {"name": name, "creationTimestamp": rfc3339(self.clock.wall() - age)}
        meta["annotations"] = {GANG + key.replace("_", "-"): text for key, text in annotations.items()}
        thing = {"apiVersion": API, "kind": "PodGroup", "metadata": meta, "spec": {"minMember": minimum}}
        self.insert(thing | ({"status": status} if status else {}))

    def member(
        self,
        name,
        gang="g",
        node="",
        cpu="1",
        phase="",
        owners=(),
        labels=None,
        annotations=None,
        age=0.0,
        scheduled=None,
    ):
        """Puts a pod in; `labels` and `annotations` in place of the label of a PodGroup. `scheduled`: seconds ago."""
        references = [
            {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": f"uid-{owner}"} for owner in owners
        ]
        thing = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {LABEL: gang} if labels is None else labels,
                "annotations": annotations or {},
                "ownerReferences": references,
            },
            "spec": {
                "schedulerName": "default-scheduler",
                "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}],
            },
            "status": {"phase": phase or "Pending"},
        }
        if age:
            thing["metadata"]["creationTimestamp"] = rfc3339(self.clock.wall() - age)
        if node:
            thing["spec"]["nodeName"] = node
        if scheduled is not None:
            when = rfc3339(self.clock.wall() - scheduled)
            thing["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": when}]
        self.insert(thing)

    def members(self, count, **more):
        """Puts the pods m-1 to m-`count` in."""
        for number in range(1, count + 1):
            self.member(f"m-{number}", **more)

    async def becomes(self, phase, *names):
        """The pods get a phase."""
        for name in names:
            status, answer = await self.call(
                "PATCH",
                f"/api/v1/namespaces/default/pods/{name}/status",
                {"status": {"phase": phase}},
                headers={"content-type": "application/merge-patch+json"},
            )
            assert status == 200, answer

    async def delete(self, *names):
        """The pods go at once."""
        for name in names:
            path = f"/api/v1/namespaces/default/pods/{name}"
            assert (await self.call("DELETE", path, {"gracePeriodSeconds": 0}))[0] == 200

    def status(self, name="g"):
        """The status of a PodGroup, without its time."""
        found = dict((self.get("PodGroup", name, api_version=API) or {}).get("status", {}))
        found.pop("scheduleStartTime", None)
        return found

    def version(self, name="g"):
        """The resource version of a PodGroup."""
        return self.get("PodGroup", name, api_version=API)["metadata"]["resourceVersion"]

    async def phases(self, seconds, name="g"):
        """The phases that a PodGroup goes through from now on, in so many seconds."""
        seen = []
        for _ in range(round(seconds / 0.01)):
            phase = self.status(name).get("phase", "")
            if not seen or seen[-1] != phase:
                seen.append(phase)
            await asyncio.sleep(0.01)
        return seen
