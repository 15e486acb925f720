"""`python -m bench.engine.devices`: what pods with GPUs cost the engine, as a multiple of a basic pod.

All clusters have the same machines with eight GPUs, on which the same pods have parts of GPUs already, of sizes chosen
at random. Pods are placed on them in turns: basic ones without the plugin; basic ones with it; and pods that ask for
GPUs. What the plugin's Reserve takes of that is measured apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import click
import orjson

from bench.engine.placement import SCHEDULER, Placement, compare
from bench.manifests import Manifest, node, pod
from bench.workloads import Catalog, NodeKind, load
from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.pod import Pod
from koordsched.plugins.deviceshare.plugin import DeviceShare
from koordsched.plugins.shared.devices import kinds
from koordsched.plugins.shared.devices.resources import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA_RESOURCE

GPUS, MEMORY_GIB = 8, 80
PER_SWITCH = 2
"""GPUs of a machine, gibibytes of each; GPUs on a PCIe switch, each of which has a NIC."""


@dataclass(frozen=True, slots=True)
class Case:
    """Pods, and nodes for them. `requests` of devices and `annotations` of the pods; `labels` of Devices."""

    name: str
    plugin: bool = True
    requests: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)


CASES = (
    Case("basic pod, without the plugin", plugin=False),
    Case("basic pod"),
    Case("half a GPU", requests={GPU_CORE: "50", GPU_MEMORY_RATIO: "50"}),
    Case("4 GiB of a GPU", requests={GPU_MEMORY: "4Gi"}),
    Case("a GPU", requests={GPU_CORE: "100", GPU_MEMORY_RATIO: "100"}),
    Case(
        "a GPU, in partitions alone",
        requests={GPU_CORE: "100", GPU_MEMORY_RATIO: "100"},
        annotations={kinds.GPU_PARTITION_SPEC: "{}"},
    ),
    Case(
        "a GPU and a NIC on the same switch",
        requests={GPU_CORE: "100", GPU_MEMORY_RATIO: "100", RDMA_RESOURCE: "1"},
        annotations={
            kinds.DEVICE_JOINT_ALLOCATE: '{"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}',
        },
    ),
)

_PARTITIONS = {
    str(size): [
        {"minors": list(range(first, first + size)), "gpuLinkType": "NVLink", "allocationScore": 1}
        for first in range(0, GPUS, size)
    ]
    for size in (1, 2, 4, 8)
}


def device(name: str, labels: dict[str, str]) -> Manifest:
    """What koordlet says of such a machine."""
    amounts = {GPU_CORE: "100", GPU_MEMORY: f"{MEMORY_GIB}Gi", GPU_MEMORY_RATIO: "100"}
    devices = [
        {
            "type": "gpu",
            "id": f"GPU-{name}-{minor}",
            "minor": minor,
            "health": True,
            "resources": amounts,
            "topology": _topology(minor // PER_SWITCH),
        }
        for minor in range(GPUS)
    ]
    devices += [
        {
            "type": "rdma",
            "id": f"0000:{switch:02x}:00.0",
            "minor": switch,
            "health": True,
            "resources": {RDMA_RESOURCE: "100"},
            "topology": _topology(switch),
        }
        for switch in range(GPUS // PER_SWITCH)
    ]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {kinds.GPU_PARTITIONS: orjson.dumps(_PARTITIONS).decode()},
        },
        "spec": {"devices": devices},
    }


def _topology(switch: int) -> dict[str, object]:
    numa = switch * PER_SWITCH * 2 // GPUS
    return {"socketID": numa, "nodeID": numa, "pcieID": str(switch)}


class DevicePlacement(Placement):
    """The cluster of a case, with so many running pods on each node that have parts of GPUs."""

    def __init__(self, catalog: Catalog, case: Case, nodes: int, pods_per_node: int) -> None:
        super().__init__(DeviceShare.name if case.plugin else "")
        self._catalog = catalog
        self._case = case
        capacity = {
            "cpu": "192",
            "memory": "2Ti",
            "pods": "110",
            GPU_CORE: str(GPUS * 100),
            GPU_MEMORY_RATIO: str(GPUS * 100),
            GPU_MEMORY: f"{GPUS * MEMORY_GIB}Gi",
            RDMA_RESOURCE: str(GPUS // PER_SWITCH * 100),
        }
        for index in range(nodes):
            name = f"node-{index}"
            self.cluster.upsert_node(convert(node(NodeKind(capacity=capacity), name, index, ""), core.Node))
            if case.plugin:
                self.offline.add(device(name, case.labels))
            for number in range(pods_per_node):
                self._run(f"{name}-{number}", name)

    def _run(self, name: str, on: str) -> None:
        """A pod that has a part of a GPU."""
        share = self.rng.randrange(5, 45)
        amounts = {
            GPU_CORE: str(share),
            GPU_MEMORY_RATIO: str(share),
            GPU_MEMORY: str((MEMORY_GIB << 30) * share // 100),
        }
        given = {"gpu": [{"minor": self.rng.randrange(GPUS // 2), "resources": amounts}]}
        thing = self._pod(name, amounts, {kinds.DEVICE_ALLOCATED: orjson.dumps(given).decode()}, on)
        self.cluster.set_pod(self.build(thing | {"status": {"phase": "Running"}}))

    def pods(self, tag: str, count: int) -> list[Pod]:
        """Pods of the case that wait."""
        case = self._case
        return [self.build(self._pod(f"{tag}-{i}", case.requests, case.annotations)) for i in range(count)]

    def _pod(self, name: str, requests: dict[str, str], annotations: dict[str, str], on: str = "") -> Manifest:
        thing = pod(self._catalog.pods["basic"], name, "default", 0, SCHEDULER, node=on, full_size=False)
        thing["metadata"]["annotations"] = annotations
        resources = thing["spec"]["containers"][0]["resources"]
        resources["requests"] = {**resources["requests"], **requests}
        return thing


@click.command()
@click.option("--nodes", default=1_000, show_default=True, help="Number of nodes.")
@click.option("--pods-per-node", default=2, show_default=True, help="Pods that have a part of a GPU on each node.")
@click.option("--pods", default=300, show_default=True, help="Pods placed in each turn.")
@click.option("--turns", default=5, show_default=True, help="Turns.")
def main(nodes: int, pods_per_node: int, pods: int, turns: int) -> None:
    """Measure all cases in turns, and print medians."""
    catalog = load()
    clusters = [
        (case.name, DevicePlacement(catalog, case, nodes, pods_per_node), bool(case.requests)) for case in CASES
    ]
    compare(clusters, f"{nodes:,} nodes of {GPUS} GPUs, {pods_per_node} pods on each", pods, turns)


if __name__ == "__main__":
    main()
