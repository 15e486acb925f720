"""The real scheduler with circuit breakers, on hollow nodes over the embedded API server."""

import asyncio
import json
from contextlib import asynccontextmanager

from koordsched.fakecluster.hollow import HollowNodes, HollowOptions
from koordsched.plugins import CONTROLLERS
from koordsched.plugins.nodecircuitbreaker.record import ANNOTATION
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on

NAME = "NodeCircuitBreaker"


def configuration(*others, **args):
    """A configuration with the plugin, and others."""
    enabled = [{"name": name} for name in (NAME, *others)]
    profile = {
        "plugins": {"multiPoint": {"enabled": enabled}},
        "pluginConfig": [{"name": NAME, "args": args}],
    }
    return {**DEFAULT_CONFIG, "profiles": [profile]}


def template(name, count, zone="a", *, fails="", cpu="8"):
    """Hollow nodes; `fails`: why pods do not start there."""
    made = {
        "nodeName": name + "-${index}",
        "count": count,
        "zones": [zone],
        "capacity": {"cpu": cpu, "memory": "32Gi", "pods": "110"},
    }
    return {**made, "faults": {"startError": fails}} if fails else made


class World:
    """An API server with hollow nodes; `scheduler()` runs one, any number of times."""

    def __init__(self, *templates, start_delay=0.5):
        self.embedded = Embedded()
        self.embedded.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
        options = HollowOptions(template={"templates": list(templates)}, start_delay=start_delay)
        self.hollow = HollowNodes(self.embedded.registry, options)
        self.hollow.start()

    def scheduler(self, *others, seed=1, **args):
        """A scheduler that leads, with its controllers."""
        return self.running(configuration(*others, **args), seed)

    @asynccontextmanager
    async def running(self, config, seed):
        """The same with any configuration."""
        async with scheduler_on(self.embedded, config, seed=seed, controllers=CONTROLLERS) as running:
            await asyncio.sleep(1)
            yield running

    def pod(self, name, owner=None, kind="ReplicaSet", annotations=None, labels=None, **spec):
        """A new pod of an owner."""
        spec.setdefault("containers", [{"name": "c", "image": "i"}])
        metadata = {"name": name, "namespace": "default", "annotations": annotations or {}, "labels": labels or {}}
        if owner:
            metadata["ownerReferences"] = [
                {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": f"uid-{owner}", "controller": True}
            ]
        return self.embedded.insert({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def delete(self, name):
        """A pod goes at once."""
        self.embedded.registry.delete(self.embedded.resource("Pod"), "default", name, grace_period_seconds=0)

    def node_of(self, name):
        """Where a pod is, None while it waits."""
        return self.embedded.get("Pod", name)["spec"].get("nodeName")

    def written(self, node):
        """What is written about a node's breaker, None if nothing is."""
        text = self.embedded.get("Node", node)["metadata"].get("annotations", {}).get(ANNOTATION)
        return json.loads(text) if text is not None else None

    async def annotate(self, node, **annotations):
        """As a user does; None takes an annotation away."""
        status, answer = await self.embedded.call(
            "PATCH",
            f"/api/v1/nodes/{node}",
            {"metadata": {"annotations": annotations}},
            headers={"content-type": "application/merge-patch+json"},
        )
        assert status == 200, answer

    def told(self, reason):
        """(object, note) of the Events with this reason."""
        found = [event for event in self.embedded.events() if event["reason"] == reason]
        return [(event["regarding"]["name"], event["note"]) for event in found]

    def condition(self, name):
        """The message of a pod that waits."""
        conditions = self.embedded.get("Pod", name)["status"].get("conditions", [])
        return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")
