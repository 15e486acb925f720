"""A cluster whose hollow nodes report their devices."""

import copy
import json
from pathlib import Path

from koordsched.fakecluster.structural import Validator, prune
from tests.fakecluster.timeline import Cluster
from tests.yamlfiles import documents

ROOT = Path(__file__).parents[2]
(DEFINITION,) = documents(ROOT / "manifests" / "crds" / "devices.yaml")
SCHEMA = DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
VALIDATOR = Validator(SCHEMA)
DEVICE_ALLOCATED = "scheduling.koordinator.sh/device-allocated"
FAIL_DEVICES = "koordsched.io/fail-devices"
CORE, MEMORY, RATIO = (f"koordinator.sh/gpu-{name}" for name in ("core", "memory", "memory-ratio"))


class DeviceCluster(Cluster):
    """With the definition of Device from the start, unless `defined` is False; counts the writes."""

    def __init__(self, nodes=1, defined=True, **options):
        options.setdefault("bind", False)
        self._wrong = []
        """Where Devices do not obey their schema: the server takes the nodes' word for it."""
        super().__init__(nodes, **options)
        self.writes = []
        """(time, node, object) of each version of a Device."""
        if defined:
            self.define()
            self.run(4)

    def define(self):
        """Installs the definition."""
        self.create(DEFINITION)
        self.registry.subscribe(self.resource("devices"), self._changed)

    def _changed(self, kind, old, new):
        if kind != "DELETED":
            self._wrong += VALIDATOR.errors(new) + prune(copy.deepcopy(new), SCHEMA)
            self.writes.append((self.time.now(), new["metadata"]["name"], new))

    def run(self, seconds):
        super().run(seconds)
        assert not self._wrong

    def device(self, node="node-0"):
        """The node's Device."""
        return self.get("devices", node)

    def entries(self, node="node-0"):
        """The devices of a node, by type and minor."""
        return {(entry["type"], entry["minor"]): entry for entry in self.device(node)["spec"]["devices"]}

    def offered(self, node="node-0"):
        """What the node has of Koordinator's and vendors' resources; capacity and allocatable are the same."""
        status = self.get("nodes", node)["status"]
        found = [
            {name: amount for name, amount in status[field].items() if "/" in name}
            for field in ("capacity", "allocatable")
        ]
        assert found[0] == found[1]
        return found[0]

    def fail(self, devices, node="node-0"):
        """Fails devices (`gpu/3`), or heals all with None, and lets the node report that."""
        self.patch("nodes", node, {"metadata": {"annotations": {FAIL_DEVICES: devices}}})
        self.run(4)

    def place(self, name, allocated=None, node="node-0", **spec):
        """Creates a pod on a node that was given devices, and lets it start; returns its status."""
        self.create(pod(name, allocated, node, **spec))
        self.run(2)
        return self.get("pods", name)["status"]

    def said(self, reason):
        """(kind, name, message) of the Events of that reason."""
        return sorted(
            (event["involvedObject"]["kind"], event["involvedObject"]["name"], event["message"])
            for event in self.list("events", "default")
            if event.get("reason") == reason
        )


def template(*groups, count=None, **devices):
    """Nodes with these groups of devices."""
    fields = {"devices": {"groups": list(groups), **devices}}
    return {"templates": [{"nodeName": "node-${index}", "capacity": {"cpu": "64", "memory": "256Gi"}, **fields}]}


def gpus(count=2, memory="8Gi", **fields):
    """A group of GPUs."""
    return {"type": "gpu", "count": count, "memory": memory, **fields}


def nics(count=1, **fields):
    """A group of NICs."""
    return {"type": "rdma", "count": count, **fields}


def shares(*minors, core="100", memory="8Gi", ratio="100", kind="gpu", **more):
    """What a pod was given: the same of each device."""
    resources = {CORE: core, MEMORY: memory, RATIO: ratio} if kind == "gpu" else {f"koordinator.sh/{kind}": core}
    return {kind: [{"minor": minor, "resources": resources, **more} for minor in minors]}


def pod(name, allocated=None, node="node-0", **spec):
    """A pod on a node; `allocated`: the devices that the scheduler chose, or any text."""
    annotations = {}
    if allocated is not None:
        annotations[DEVICE_ALLOCATED] = allocated if isinstance(allocated, str) else json.dumps(allocated)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}], **spec},
    }
