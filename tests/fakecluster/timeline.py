"""A registry on virtual time for tests without an event loop: timers run when the test lets time pass."""

import random
from heapq import heappop, heappush
from itertools import count

from koordsched.fakecluster.cluster import new_cluster
from koordsched.fakecluster.controllers import Controllers
from koordsched.fakecluster.hollow import HollowNodes, HollowOptions
from tests.fakecluster.binder import TurnBinder
from tests.virtualtime import WALL_EPOCH

ONE_KIND = {
    "templates": [
        {
            "nodeName": "node-${index}",
            "zones": ["zone-a", "zone-b", "zone-c"],
            "capacity": {"cpu": "4", "memory": "16Gi", "pods": "20"},
        }
    ]
}


class Timeline:
    """A clock and its timers. `run(seconds)` lets time pass, timer by timer."""

    def __init__(self):
        self._now = WALL_EPOCH
        self._timers = []
        self._order = count()

    def now(self):
        return self._now

    def call_later(self, delay, callback, *args):
        timer = _Timer()
        heappush(self._timers, (self._now + max(0.0, delay), next(self._order), timer, callback, args))
        return timer

    def step(self):
        """Lets time pass until the next timer, and runs it."""
        due, _, timer, callback, args = heappop(self._timers)
        self._now = max(self._now, due)
        if not timer.cancelled:
            callback(*args)

    def run(self, seconds):
        end, at_once = self._now + seconds, 0
        while self._timers and self._timers[0][0] <= end:
            before = self._now
            self.step()
            at_once = at_once + 1 if self._now == before else 0
            assert at_once < 20_000, "timers go round in circles and time stands still"
        self._now = end


class _Timer:
    cancelled = False

    def cancel(self):
        self.cancelled = True


class Cluster:
    """A registry with controllers, hollow nodes and, for want of a scheduler, a binder that takes nodes in turns."""

    def __init__(
        self, nodes=3, template=ONE_KIND, bind=True, seed=7, start_delay=1.0, stop_delay=2.0, hollow=None, **controllers
    ):
        self.time = Timeline()
        self.registry = new_cluster(self.time, random.Random(seed), self.time.call_later)
        self.controllers = Controllers(self.registry, **controllers)
        options = HollowOptions(
            count=nodes, template=template, start_delay=start_delay, stop_delay=stop_delay, **(hollow or {})
        )
        self.hollow = HollowNodes(self.registry, options)
        self.controllers.start()
        self.hollow.start()
        if bind:
            TurnBinder(self.registry)

    def resource(self, plural):
        for resource in self.registry.resources():
            if resource.plural == plural:
                return resource
        raise LookupError(plural)

    def create(self, obj):
        resource = self.registry.resource_for_kind(obj["apiVersion"], obj["kind"])
        default = "default" if resource.namespaced else None
        return self.registry.create(resource, obj["metadata"].get("namespace", default), obj)

    def get(self, plural, name, namespace_="default"):
        resource = self.resource(plural)
        return self.registry.get(resource, namespace_ if resource.namespaced else None, name)

    def exists(self, plural, name, namespace_="default"):
        resource = self.resource(plural)
        return self.registry.peek(resource, namespace_ if resource.namespaced else None, name) is not None

    def list(self, plural, namespace_=None, **selectors):
        return self.registry.list(self.resource(plural), namespace_, **selectors)

    def patch(self, plural, name, patch, namespace_="default", subresource=""):
        resource = self.resource(plural)
        return self.registry.patch(
            resource, namespace_ if resource.namespaced else None, name, patch, "merge", subresource
        )

    def delete(self, plural, name, namespace_="default", **options):
        resource = self.resource(plural)
        self.registry.delete(resource, namespace_ if resource.namespaced else None, name, **options)

    def pods(self, label_selector=None, namespace_="default"):
        return self.list("pods", namespace_, label_selector=label_selector)

    def run(self, seconds):
        self.time.run(seconds)

    def until(self, condition, limit=600.0, step=0.25):
        """Lets time pass until the condition holds; returns the seconds it took."""
        waited = 0.0
        while not condition():
            assert waited < limit, f"not so after {limit} s"
            self.time.run(step)
            waited += step
        return waited


def namespace(name):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def definition_of_things():
    """A CustomResourceDefinition that takes anything."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                }
            ],
        },
    }


def pod_template(labels, image="app:1", annotations=None, **spec):
    container = {"name": "app", "image": image, "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], **spec}}
    if annotations:
        template["metadata"]["annotations"] = annotations
    return template


def workload(kind, name, replicas=None, image="app:1", labels=None, template=None, **spec):
    labels = labels or {"app": name}
    group = "batch/v1" if kind == "Job" else "apps/v1"
    body = {"template": template or pod_template(labels, image), **spec}
    if kind != "Job":
        body["selector"] = {"matchLabels": labels}
    if replicas is not None:
        body["replicas"] = replicas
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": body}


def condition(obj, kind):
    for entry in obj.get("status", {}).get("conditions", []):
        if entry["type"] == kind:
            return entry["status"], entry.get("reason", "")
    return None
