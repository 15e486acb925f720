"""`python -m bench.engine.reservations`: what Reservations cost the engine, as a multiple of a basic pod.

All clusters have the same nodes; all but the first have the same number of Reservations on them, which belong to
applications with some Reservations each. Pods are placed on them in turns: basic ones without Reservations; basic ones
that own none; and owners of some, which may use them or have to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

import click

from bench.engine.placement import SCHEDULER, Placement, compare
from bench.manifests import Manifest, node, pod
from bench.workloads import Catalog, NodeKind, load
from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.pod import Pod
from koordsched.plugins.reservation.kinds import RESERVATION_AFFINITY
from koordsched.plugins.reservation.plugin import Reservation


@dataclass(frozen=True, slots=True)
class Case:
    """Pods, and the Reservations beside them. `owned`: how many Reservations each pod may use."""

    name: str
    plugin: bool = True
    owned: int = 0
    annotations: dict[str, str] = field(default_factory=dict)


CASES = (
    Case("basic pod, without Reservations", plugin=False),
    Case("basic pod that owns none"),
    Case("owner of one", owned=1),
    Case("owner of four", owned=4),
    Case("owner of four, which has to use one", owned=4, annotations={RESERVATION_AFFINITY: "{}"}),
    Case("owner of a hundred", owned=100),
    Case("owner of a thousand", owned=1000),
)


class ReservationPlacement(Placement):
    """Nodes with Reservations."""

    def __init__(self, catalog: Catalog, case: Case, nodes: int, reservations: int) -> None:
        super().__init__(Reservation.name if case.plugin else "")
        self._catalog = catalog
        self._case = case
        self._numbers = count()
        self._apps = max(1, reservations // (case.owned or 4))
        capacity = {"cpu": "192", "memory": "2Ti", "pods": "110"}
        for index in range(nodes):
            name = f"node-{index}"
            self.cluster.upsert_node(convert(node(NodeKind(capacity=capacity), name, index, ""), core.Node))
        for index in range(reservations if case.plugin else 0):
            self.offline.add(self._reservation(index, f"node-{index * 7 % nodes}"))

    def _reservation(self, index: int, on: str) -> Manifest:
        holds = {"cpu": "16", "memory": "64Gi"}
        selector = {"matchLabels": {"app": f"app-{index % self._apps}"}}
        template = {
            "spec": {
                "schedulerName": SCHEDULER,
                "containers": [{"name": "room", "image": "pause", "resources": {"requests": holds}}],
            }
        }
        return {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": f"r-{index}", "uid": f"r-{index}", "resourceVersion": "1"},
            "spec": {
                "template": template,
                "owners": [{"labelSelector": selector}],
                "ttl": "24h",
                "allocateOnce": False,
                "allocatePolicy": "Aligned",
            },
            "status": {"phase": "Available", "nodeName": on, "allocatable": holds},
        }

    def pods(self, tag: str, count: int) -> list[Pod]:
        """Pods of the case that wait, of one application after the other."""
        return [self.build(self._pod(f"{tag}-{i}")) for i in range(count)]

    def _pod(self, name: str) -> Manifest:
        thing = pod(self._catalog.pods["basic"], name, "default", 0, SCHEDULER, full_size=False)
        app = f"app-{next(self._numbers) % self._apps}" if self._case.owned else "none"
        thing["metadata"]["labels"] = {"app": app}
        thing["metadata"]["annotations"] = dict(self._case.annotations)
        return thing


@click.command()
@click.option("--nodes", default=5_000, show_default=True, help="Number of nodes.")
@click.option("--reservations", default=10_000, show_default=True, help="Reservations on them.")
@click.option("--pods", default=300, show_default=True, help="Pods placed in each turn.")
@click.option("--turns", default=5, show_default=True, help="Turns.")
def main(nodes: int, reservations: int, pods: int, turns: int) -> None:
    """Measure all cases in turns, and print medians."""
    catalog = load()
    clusters = [(case.name, ReservationPlacement(catalog, case, nodes, reservations), False) for case in CASES]
    compare(clusters, f"{nodes:,} nodes with {reservations:,} Reservations", pods, turns)


if __name__ == "__main__":
    main()
