"""A cluster whose hollow nodes report what they are like inside."""

import json
from pathlib import Path

from tests.fakecluster.timeline import Cluster
from tests.yamlfiles import documents

ROOT = Path(__file__).parents[2]
(DEFINITION,) = documents(ROOT / "manifests" / "crds" / "noderesourcetopologies.yaml")
RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"


class TopologyCluster(Cluster):
    """With the definition of NodeResourceTopology from the start, unless `defined` is False; counts the writes."""

    def __init__(self, nodes=1, defined=True, **options):
        options.setdefault("bind", False)
        super().__init__(nodes, **options)
        self.writes = []
        """(time, node, object) of each version of a report."""
        if defined:
            self.define()

    def define(self):
        """Installs the definition."""
        self.create(DEFINITION)
        resource = self.registry.resource("topology.node.k8s.io", "v1alpha1", "noderesourcetopologies")
        self.registry.subscribe(resource, self._changed)

    def _changed(self, kind, old, new):
        if kind != "DELETED":
            self.writes.append((self.time.now(), new["metadata"]["name"], new))

    def topology(self, node="node-0"):
        """The node's NodeResourceTopology, as the scheduler reads it."""
        resource = self.registry.resource("topology.node.k8s.io", "v1alpha1", "noderesourcetopologies")
        return self.registry.get(resource, None, node)

    def said(self, annotation, node="node-0"):
        """An annotation of the report, decoded; by the part of its name behind the slash."""
        (text,) = (
            value
            for key, value in self.topology(node)["metadata"]["annotations"].items()
            if key.endswith(f"/{annotation}")
        )
        return json.loads(text)

    def pools(self, annotation="cpu-shared-pools", node="node-0"):
        """The CPU sets of the shared pools, by NUMA node."""
        return {pool["node"]: pool.get("cpuset", "") for pool in self.said(annotation, node) or ()}

    def pinned(self, node="node-0"):
        """The CPU sets that the kubelet has given, by pod name."""
        allocations = self.said("pod-cpu-allocs", node) or ()
        assert all(each["managedByKubelet"] and each["uid"] for each in allocations)
        return {each["name"]: each["cpuset"] for each in allocations}

    def annotate(self, kind, name, annotations):
        """Sets annotations; None takes one away."""
        self.patch(kind, name, {"metadata": {"annotations": annotations}})

    def complaints(self):
        """What Events say about annotations."""
        return [
            event["message"] for event in self.list("events", "default") if event.get("reason") == "InvalidAnnotation"
        ]


def template(cpus=None, kubelet=None, memory="64Gi", **fields):
    """Nodes of 2 NUMA nodes with 4 cores, 8 CPUs, each, core by core, unless stated otherwise."""
    layout = {"sockets": 2, "coresPerNumaNode": 4, "numbering": "consecutive"} if cpus is None else cpus
    inside = {"cpus": layout, **({"kubelet": kubelet} if kubelet else {})}
    return {"templates": [{"nodeName": "node-${index}", "capacity": {"memory": memory}, **inside, **fields}]}


STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0-1"}


def pod(name, cpu="2", limits=True, cpuset=None, qos=None, node="node-0", **spec):
    """A pod on a node; `cpuset`: chosen by the scheduler."""
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    if limits:
        resources["limits"] = resources["requests"]
    metadata = {"name": name, "labels": {"koordinator.sh/qosClass": qos} if qos else {}, "annotations": {}}
    if cpuset is not None:
        metadata["annotations"][RESOURCE_STATUS] = json.dumps({"cpuset": cpuset})
    containers = [{"name": "c", "image": "i", "resources": resources}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": node, "containers": containers, **spec},
    }
