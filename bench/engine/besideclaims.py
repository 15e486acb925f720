"""`python -m bench.engine.besideclaims`: what claims of others cost pods that claim nothing.

Two clusters of equal nodes, of which one has devices, and claims that have some of them; basic pods are placed on both
in turns.
"""

from __future__ import annotations

import click

from bench.engine.dra import slices
from bench.engine.placement import SCHEDULER, Placement, compare
from bench.manifests import Manifest, node, pod
from bench.workloads import Catalog, load
from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.builtinkinds import RESOURCE_SLICES
from koordsched.cluster.pod import Pod

_CLASS: Manifest = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"extendedResourceName": "bench.io/gpu"},
}


class Cluster(Placement):
    """Nodes, with eight devices each or without any; `claims` of one device each, on nodes in turns."""

    def __init__(self, catalog: Catalog, nodes: int, claims: int) -> None:
        super().__init__("")
        self._catalog = catalog
        for number in range(nodes):
            made = node(catalog.nodes["default"], f"node-{number}", number, "")
            self.cluster.upsert_node(convert(made, core.Node))
            for one in slices(number, "gpu") if claims else ():
                self.cluster.objects.of(RESOURCE_SLICES).upsert(one)
        if claims:
            self.offline.add(_CLASS)
        for number in range(claims):
            self.offline.add(_claim(number, f"node-{number % nodes}", number // nodes))

    def pods(self, tag: str, count: int) -> list[Pod]:
        """Basic pods."""
        kind = self._catalog.pods["basic"]
        return [
            self.build(pod(kind, f"{tag}-{number}", "default", number, SCHEDULER, full_size=False))
            for number in range(count)
        ]


def _claim(number: int, where: str, device: int) -> Manifest:
    name = f"claim-{number}"
    named = {"key": "metadata.name", "operator": "In", "values": [where]}
    result = {"request": "r", "driver": "gpu.bench.io", "pool": where, "device": f"gpu-{device}"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}]}},
        "status": {
            "allocation": {
                "devices": {"results": [result]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [named]}]},
            },
            "reservedFor": [{"resource": "pods", "name": f"user-{number}", "uid": f"user-{number}"}],
        },
    }


@click.command()
@click.option("--nodes", default=1_000, show_default=True, help="Nodes.")
@click.option("--claims", default=2_000, show_default=True, help="Allocated claims.")
@click.option("--pods", default=300, show_default=True, help="Pods that are placed per turn.")
@click.option("--turns", default=9, show_default=True, help="Turns.")
def main(nodes: int, claims: int, pods: int, turns: int) -> None:
    """Measure scheduling cycles of basic pods in a cluster without claims, and in one with them."""
    catalog = load()
    clusters = [
        ("without claims", Cluster(catalog, nodes, 0), False),
        ("with claims", Cluster(catalog, nodes, claims), False),
    ]
    compare(clusters, f"{nodes:,} nodes, 8 devices each, {claims:,} allocated claims", pods, turns)


if __name__ == "__main__":
    main()
