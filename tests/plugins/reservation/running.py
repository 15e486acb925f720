"""The scheduler with the plugin Reservation on an embedded API server, on virtual time."""

import asyncio
import json
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from uuid import UUID

from koordsched.fakecluster.clock import rfc3339
from koordsched.plugins import CONTROLLERS
from koordsched.plugins.reservation.kinds import RESERVATION_ALLOCATED
from tests.embedded import Embedded, scheduler_on
from tests.yamlfiles import document

CRD = Path(__file__).parents[3] / "manifests" / "crds" / "reservations.yaml"
API = "scheduling.koordinator.sh/v1alpha1"


def configuration(**args):
    """One profile with the plugin, with these arguments."""
    points = ("preFilter", "filter", "postFilter", "preScore", "score", "reserve", "preBind")
    enabled = {"enabled": [{"name": "Reservation"}]}
    plugins = dict.fromkeys(points, enabled)
    plugins["bind"] = {"disabled": [{"name": "*"}], "enabled": [{"name": "Reservation"}, {"name": "DefaultBinder"}]}
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": plugins,
        "pluginConfig": [{"name": "Reservation", "args": args}],
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }


class ReservationCluster(Embedded):
    """With the kind; times in seconds before now, or after if negative."""

    def __init__(self, nodes=("n1",), seed=1):
        super().__init__(seed)
        self._uids = (str(UUID(int=number)) for number in count(1))  # no pod gets such a one
        self.create(document(CRD))
        for name in nodes:
            self.node(name)

    def create(self, thing):
        thing = json.loads(json.dumps(thing))
        resource = self.registry.resource_for_kind(thing["apiVersion"], thing["kind"])
        namespace = thing["metadata"].get("namespace", "default") if resource.namespaced else None
        return self.registry.create(resource, namespace, thing)

    def ago(self, seconds):
        """The time so many seconds before now."""
        return rfc3339(self.clock.wall() - seconds)

    def node(self, name, cpu="32", memory="64Gi", **spec):
        amounts = {"cpu": cpu, "memory": memory, "ephemeral-storage": "100Gi", "pods": "110"}
        status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        self.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec, "status": status})

    def reservation(self, name="r", *, requests=None, created=0.0, status=None, annotations=None, **spec):
        """Puts a Reservation in as it is; returns its uid."""
        container = {"name": "c", "image": "x", "resources": {"requests": requests or {"cpu": "10", "memory": "10Gi"}}}
        thing = {
            "apiVersion": API,
            "kind": "Reservation",
            "metadata": {
                "name": name,
                "uid": next(self._uids),
                "creationTimestamp": self.ago(created),
                "annotations": annotations or {},
            },
            "spec": {
                "template": {"spec": {"containers": [container]}},
                "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
                "ttl": "24h",
                "allocateOnce": True,
                **spec,
            },
            "status": {"phase": "Pending", **(status or {})},
        }
        self.insert(thing)
        return self.uid(name)

    def available(self, name="r", node="n1", allocatable=None, **more):
        """A Reservation with a node."""
        at = self.ago(0)
        conditions = [
            {"type": kind, "status": "True", "reason": reason, "lastProbeTime": at, "lastTransitionTime": at}
            for kind, reason in (("Scheduled", "Scheduled"), ("Ready", "Available"))
        ]
        status = {
            "phase": "Available",
            "nodeName": node,
            "allocatable": allocatable or {"cpu": "10", "memory": "10Gi"},
            "conditions": conditions,
        }
        return self.reservation(name, status={**status, **more.pop("status", {})}, **more)

    def owner(self, name, of, node="n1", requests=None, **meta):
        """A bound pod that uses the Reservation of this uid."""
        self.pod(
            name, node, requests, annotations={RESERVATION_ALLOCATED: json.dumps({"name": "r", "uid": of})}, **meta
        )

    def pod(self, name, node="", requests=None, **meta):
        container = {"name": "c", "image": "x", "resources": {"requests": requests or {"cpu": "2", "memory": "2Gi"}}}
        spec = {"containers": [container], "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 0}
        if node:
            spec["nodeName"] = node
        self.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta}, "spec": spec})

    def patch(self, kind, name, patch, namespace=None, api_version=API, subresource=""):
        self.registry.patch(self.resource(kind, api_version), namespace, name, patch, "merge", subresource)

    def delete(self, kind, name, namespace=None, api_version="v1"):
        self.registry.delete(self.resource(kind, api_version), namespace, name)

    def uid(self, name="r"):
        return self.get("Reservation", name, api_version=API)["metadata"]["uid"]

    def status(self, name="r"):
        """The status, None if the Reservation is gone."""
        found = self.get("Reservation", name, api_version=API)
        return None if found is None else found.get("status") or {}

    def phase(self, name="r"):
        status = self.status(name)
        return None if status is None else status.get("phase")

    def condition(self, kind, name="r"):
        """(status, reason) of a condition, None if there is none."""
        for each in self.status(name).get("conditions") or ():
            if each["type"] == kind:
                return each["status"], each["reason"]
        return None

    def owners(self, name="r"):
        return [each["name"] for each in self.status(name).get("currentOwners") or ()]

    async def until(self, condition, limit=120.0, step=0.1):
        """Lets time pass until the condition holds; the seconds it took."""
        started = self.clock.monotonic()
        while not condition():
            assert self.clock.monotonic() - started < limit, "not so in time"
            await asyncio.sleep(step)
        return self.clock.monotonic() - started


@asynccontextmanager
async def scheduling(cluster, config=None, **options):
    """A scheduler that leads, on the cluster."""
    async with scheduler_on(cluster, config or configuration(), controllers=CONTROLLERS, **options) as running:
        yield running
