"""Nodes with devices and pods that claim them, in short; and a scheduler on them that notes what it asks of the API."""

import json
from contextlib import asynccontextmanager
from typing import NamedTuple

from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run

DRIVER = "drv"
GROUP = "resource.k8s.io/v1"
FINALIZER = "resource.kubernetes.io/delete-protection"


def device_class(name="dc", **spec):
    """A class of devices; without selectors it has all."""
    return {"apiVersion": GROUP, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def slice_of(where, *devices, name=None, pool=None, **spec):
    """A slice of a node's devices, a whole pool; devices are names or (name, more)."""
    made = [{"name": item} if isinstance(item, str) else {"name": item[0], **item[1]} for item in devices]
    spec = {
        "driver": DRIVER,
        "pool": {"name": pool or where, "generation": 1, "resourceSliceCount": 1},
        "nodeName": where,
        "devices": made,
        **spec,
    }
    metadata = {"name": name or f"s-{pool or where}"}
    return {"apiVersion": GROUP, "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


def claim(name="c", count=1, owner=None, status=None, **metadata):
    """A claim of devices of the class `dc`. `owner`: the pod that it was generated for."""
    if owner is not None:
        reference = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": owner,
            "uid": f"uid-default-{owner}",
            "controller": True,
        }
        metadata["ownerReferences"] = [reference]
    request = {"name": "r", "exactly": {"deviceClassName": "dc", "allocationMode": "ExactCount", "count": count}}
    return {
        "apiVersion": GROUP,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-claim-{name}", **metadata},
        "spec": {"devices": {"requests": [request]}},
        **({"status": status} if status is not None else {}),
    }


def special(name, **more):
    """A claim that a scheduler made for the extended resources of its owner."""
    return claim(name, annotations={"resource.kubernetes.io/extended-resource-claim": "true"}, **more)


def allocated(*devices, where="n1", users=(), timestamp="2030-01-01T00:00:00Z", everywhere=False, **result):
    """The status of a claim that has these devices of a node; `users` are names of pods."""
    results = [{"request": "r", "driver": DRIVER, "pool": where, "device": each, **result} for each in devices]
    named = {"key": "metadata.name", "operator": "In", "values": [where]}
    allocation = {"devices": {"results": results}, "allocationTimestamp": timestamp}
    if not everywhere:
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [named]}]}
    return {"allocation": allocation, **({"reservedFor": [user(each) for each in users]} if users else {})}


def user(name):
    """Who a claim is reserved for."""
    return {"resource": "pods", "name": name, "uid": f"uid-default-{name}"}


def claiming(name, *claims, containers=(), **more):
    """A pod that names these claims; a claim of a template is ("entry", None)."""
    entries = []
    for at, each in enumerate(claims):
        if isinstance(each, str):
            entries.append({"name": f"e{at}", "resourceClaimName": each})
        else:
            entries.append({"name": each[0], "resourceClaimTemplateName": "t"})
    return pod(name, *(containers or [container(cpu="100m")]), resourceClaims=entries, **more)


class Asked(NamedTuple):
    """A write of the scheduler."""

    method: str
    path: str
    body: dict


class World:
    """A scheduler at work, and what it wrote of claims and pods (bindings, events and leases left out)."""

    def __init__(self, embedded, running, writes):
        self.embedded = embedded
        self.running = running
        self.writes = writes

    def get(self, name):
        """A claim."""
        return self.embedded.get("ResourceClaim", name, api_version=GROUP)

    def claims(self):
        """All claims."""
        return self.embedded.registry.list(self.embedded.registry.resource("resource.k8s.io", "v1", "resourceclaims"))

    def where(self, name):
        """The node of a pod."""
        return self.embedded.get("Pod", name)["spec"].get("nodeName")

    def message(self, name):
        """What the condition of a pod says."""
        conditions = self.embedded.get("Pod", name)["status"].get("conditions", [])
        return next((c.get("message") for c in conditions if c["type"] == "PodScheduled"), None)

    def notes(self):
        """What Events say, oldest first."""
        return [event["note"] for event in self.embedded.events()]

    def of_claims(self):
        """(method, path without its group) of all writes of claims, in order."""
        return [(w.method, w.path.partition("/default/")[2]) for w in self.writes if "resourceclaims" in w.path]

    @property
    def books(self):
        """What the plugin knows."""
        return self.running.scheduler.profiles["default-scheduler"].plugins["DynamicResources"]._books


@asynccontextmanager
async def world(*objects, args=None, configuration=DEFAULT_CONFIG, fault=None, gates=(), seed=1, **more):
    """A scheduler on these objects. `fault(call, proceed)` may do something else than to proceed."""
    embedded = Embedded(seed=seed)
    writes = []
    for thing in ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}, *objects):
        if thing["kind"] != "Namespace" or embedded.get("Namespace", "default", None) is None:
            embedded.insert(thing)

    async def noting(call, proceed):
        method, path, body = call.method, call.path, call.body
        if method != "GET" and ("resourceclaims" in path or path.endswith("/status")) and "events" not in path:
            writes.append(Asked(method, path, json.loads(body) if body else {}))
        return await (fault(call, proceed) if fault is not None else proceed())

    config = configuration
    if args is not None:
        plugin = {"name": "DynamicResources", "args": args}
        config = {**config, "profiles": [{"schedulerName": "default-scheduler", "pluginConfig": [plugin]}]}
    async with scheduler_on(embedded, config, fault=noting, gates=gates, seed=seed, **more) as running:
        yield World(embedded, running, writes)


def play(steps, *objects, **more):
    """Awaits `steps` with a world of these objects, on virtual time."""

    async def work():
        async with world(*objects, **more) as there:
            await steps(there)

    run(work())


def refusing(status, message, *, method="POST", path="/binding", times=1, reason="InternalError"):
    """A fault: so many requests of that kind are refused."""
    left = [times]

    async def fault(call, proceed):
        if call.method == method and call.path.endswith(path) and left[0]:
            left[0] -= 1
            body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason}
            return status, {"content-type": "application/json"}, json.dumps({**body, "message": message}).encode()
        return await proceed()

    return fault


def wanting(name, *claims, **more):
    """A pod that requests an extended resource, and has these claims."""
    wants = container(name="m", cpu="100m", gpu="1")
    wants["resources"]["limits"] = {"ex.com/gpu": "1"}
    return claiming(name, *claims, containers=[wants], **more)


N1, N2 = node("n1"), node("n2")
GPU = device_class(extendedResourceName="ex.com/gpu")
