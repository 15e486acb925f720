"""`python -m bench.engine.numa`: what pods with CPUs of their own cost the engine, as a multiple of a basic pod.

All clusters have the same machines, on which the same pods have CPUs of their own already, on cores chosen at random.
Pods are placed on them in turns: basic ones without the plugin; basic ones with it; and pods of class LSR that request
four CPUs, which prefer whole cores, insist on them, or have to stay on one NUMA node. What the plugin's Reserve takes
of that is measured apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import click
import orjson

from bench.engine.placement import SCHEDULER, Placement, compare
from bench.manifests import Manifest, node, pod
from bench.workloads import Catalog, NodeKind, load
from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.pod import Pod
from koordsched.plugins.nodenumaresource import kinds
from koordsched.plugins.nodenumaresource.plugin import NodeNUMAResource
from koordsched.plugins.shared import cpuset
from koordsched.plugins.shared.priorityclass import QOS_CLASS

SOCKETS, NUMA_NODES, CORES, THREADS = 2, 2, 26, 2
"""Of a machine; NUMA nodes of a socket, cores of a NUMA node."""
ALL_CORES = SOCKETS * NUMA_NODES * CORES
CPUS, MEMORY_GIB = ALL_CORES * THREADS, 512
POD_CPUS, POD_MEMORY_GIB = 4, 8


@dataclass(frozen=True, slots=True)
class Case:
    """Pods, and nodes for them. `spec`: the annotation about CPUs of pods of class LSR; basic pods without it."""

    name: str
    plugin: bool
    spec: dict[str, str] | None
    policy: str


CASES = (
    Case("basic pod, without the plugin", False, None, ""),
    Case("basic pod", True, None, ""),
    Case("prefers whole cores", True, {"preferredCPUBindPolicy": "FullPCPUs"}, ""),
    Case("requires whole cores", True, {"requiredCPUBindPolicy": "FullPCPUs"}, ""),
    Case(
        "prefers them, nodes with SingleNUMANode",
        True,
        {"preferredCPUBindPolicy": "FullPCPUs"},
        "SingleNUMANode",
    ),
)


def cpus_of(core: int) -> list[int]:
    """The CPUs of a core, numbered as Linux does."""
    return [core + thread * ALL_CORES for thread in range(THREADS)]


def report(name: str) -> Manifest:
    """What koordlet says of such a machine."""
    detail = [
        {"id": cpu, "core": core, "socket": core // (NUMA_NODES * CORES), "node": core // CORES}
        for core in range(ALL_CORES)
        for cpu in cpus_of(core)
    ]
    parts = SOCKETS * NUMA_NODES
    amounts = {"cpu": str(CPUS // parts), "memory": f"{MEMORY_GIB // parts}Gi"}
    zones = [
        {
            "name": f"node-{numa}",
            "type": "Node",
            "resources": [{"name": name, "allocatable": amount} for name, amount in amounts.items()],
        }
        for numa in range(parts)
    ]
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": name,
            "annotations": {kinds.CPU_TOPOLOGY: orjson.dumps({"detail": detail}).decode()},
        },
        "topologyPolicies": ["None"],
        "zones": zones,
    }


class NUMAPlacement(Placement):
    """The cluster of a case, with so many running pods on each node."""

    def __init__(self, catalog: Catalog, case: Case, nodes: int, pods_per_node: int) -> None:
        super().__init__(NodeNUMAResource.name if case.plugin else "")
        self._catalog = catalog
        self._case = case
        kind = NodeKind(capacity={"cpu": str(CPUS), "memory": f"{MEMORY_GIB}Gi", "pods": "110"})
        for index in range(nodes):
            name = f"node-{index}"
            manifest = node(kind, name, index, "")
            if case.policy:
                manifest["metadata"]["labels"][kinds.NUMA_TOPOLOGY_POLICY] = case.policy
            self.cluster.upsert_node(convert(manifest, core.Node))
            if case.plugin:
                self.offline.add(report(name))
            self._fill(name, pods_per_node)

    def _fill(self, name: str, count: int) -> None:
        """Pods that have whole cores of one NUMA node."""
        first = self.rng.randrange(SOCKETS * NUMA_NODES) * CORES
        cores = self.rng.sample(range(first, first + CORES), count * POD_CPUS // THREADS)
        for index in range(count):
            taken = cores[index * POD_CPUS // THREADS : (index + 1) * POD_CPUS // THREADS]
            amounts = {"cpu": str(POD_CPUS), "memory": f"{POD_MEMORY_GIB}Gi"}
            status = {
                "cpuset": cpuset.text(cpuset.of(cpu for core in taken for cpu in cpus_of(core))),
                "numaNodeResources": [{"node": first // CORES, "resources": amounts}],
            }
            thing = self._bound(f"{name}-{index}", {kinds.RESOURCE_STATUS: orjson.dumps(status).decode()}, name)
            self.cluster.set_pod(self.build(thing | {"status": {"phase": "Running"}}))

    def pods(self, tag: str, count: int) -> list[Pod]:
        """Pods of the case that wait."""
        spec = self._case.spec
        if spec is None:
            kind = self._catalog.pods["basic"]
            things = [pod(kind, f"{tag}-{i}", "default", i, SCHEDULER, full_size=False) for i in range(count)]
        else:
            text = orjson.dumps(spec).decode()
            things = [self._bound(f"{tag}-{i}", {kinds.RESOURCE_SPEC: text}) for i in range(count)]
        return [self.build(thing) for thing in things]

    def _bound(self, name: str, annotations: dict[str, str], on: str = "") -> Manifest:
        """A pod that has, or is to have, CPUs of its own."""
        thing = pod(self._catalog.pods["basic"], name, "default", 0, SCHEDULER, node=on, full_size=False)
        thing["metadata"] |= {"labels": {QOS_CLASS: "LSR"}, "annotations": annotations}
        amounts = {"cpu": str(POD_CPUS), "memory": f"{POD_MEMORY_GIB}Gi"}
        thing["spec"]["containers"] = [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]
        return thing


@click.command()
@click.option("--nodes", default=5_000, show_default=True, help="Number of nodes.")
@click.option("--pods-per-node", default=3, show_default=True, help="Pods that have CPUs of their own on each node.")
@click.option("--pods", default=300, show_default=True, help="Pods placed in each turn.")
@click.option("--turns", default=5, show_default=True, help="Turns.")
def main(nodes: int, pods_per_node: int, pods: int, turns: int) -> None:
    """Measure all cases in turns, and print medians."""
    catalog = load()
    clusters = [
        (case.name, NUMAPlacement(catalog, case, nodes, pods_per_node), case.spec is not None) for case in CASES
    ]
    compare(clusters, f"{nodes:,} nodes of {CPUS} CPUs, {pods_per_node} pods on each", pods, turns)


if __name__ == "__main__":
    main()
