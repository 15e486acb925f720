"""`python -m bench.engine.dra`: what the allocator of dynamic resource allocation costs per decision.

A decision is all that the allocator does for a pod: its demand from claims of its own, verdicts on all nodes, the
devices on the node of the highest score (the first of several), and these in use from then on. Scheduling cycle, claims
and API come on top. The nodes have eight GPUs each, with attributes as drivers publish them, one of which (a uuid) is
different for each device. Part of the nodes is full before the first turn; after each turn some pods leave at random.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random
from statistics import median
from typing import Any

import click
import numpy as np

from bench.engine.measuring import no_garbage_collection
from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceClass,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceSlice,
)
from koordsched.plugins.dynamicresources.structured import (
    Allocator,
    CelExpressions,
    DevicesInUse,
    Features,
    Outcome,
    SliceIndex,
)

Json = dict[str, Any]
DRIVER = "gpu.bench.io"
GPUS = 8
CLASSES = {
    "gpu": f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'",
    "part": f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'part'",
}
_PROFILES = {"full": 8, "half": 4, "quarter": 2, "slice": 1}
"""Partitions of a GPU, and their size in eighths of it."""


@dataclass(frozen=True)
class Case:
    """Claims of pods. `kind`: of the devices of nodes (gpu, shared, part, network). `best_fit`: an argument."""

    name: str
    requests: tuple[Json, ...]
    kind: str = "gpu"
    constraints: tuple[Json, ...] = ()
    best_fit: bool = False


def _request(name: str, number: int = 1, of: str = "gpu", selector: str = "", **fields: Any) -> Json:
    made: Json = {"deviceClassName": of, "allocationMode": "ExactCount", "count": number, **fields}
    if selector:
        made["selectors"] = [{"cel": {"expression": selector}}]
    return {"name": name, "exactly": made}


_SAME_ROOT = ({"matchAttribute": f"{DRIVER}/root"},)
_QUARTER = (_request("r", of="part", selector=f"device.attributes['{DRIVER}'].size == 2"),)
CASES = (
    Case("a GPU", (_request("r"),)),
    Case("a GPU, best fit", (_request("r"),), best_fit=True),
    Case("a GPU by its memory", (_request("r", selector=f"device.capacity['{DRIVER}'].memory.isInteger()"),)),
    Case("a GPU, not of a uuid", (_request("r", selector=f"device.attributes['{DRIVER}'].uuid != 'x'"),)),
    Case("four GPUs on a root", (_request("r", 4),), constraints=_SAME_ROOT),
    Case("two and one on a root", (_request("a", 2), _request("b")), constraints=_SAME_ROOT),
    Case("10 of 80 Gi of a GPU", (_request("r", capacity={"requests": {"memory": "10Gi"}}),), "shared"),
    Case("10 of 80 Gi, best fit", (_request("r", capacity={"requests": {"memory": "10Gi"}}),), "shared", best_fit=True),
    Case("a quarter of a GPU", _QUARTER, "part"),
    Case("a quarter of a GPU, best fit", _QUARTER, "part", best_fit=True),
    Case("a GPU and a network device", (_request("r"), _request("n", of="net")), "network"),
)


def _gpu(node: int, at: int, kind: str) -> Json:
    attributes: Json = {
        "type": {"string": "gpu"},
        "uuid": {"string": f"GPU-{node:05}-{at}"},
        "model": {"string": "bench 80"},
        "index": {"int": at},
        "root": {"string": f"pci{at // 4}"},
        "driverVersion": {"version": "570.1.0"},
    }
    made: Json = {"name": f"gpu-{at}", "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}}
    return made | ({"allowMultipleAllocations": True} if kind == "shared" else {})


def _parts(node: int, at: int) -> list[Json]:
    """All partitions of a GPU."""
    found = []
    for profile, size in _PROFILES.items():
        for place in range(8 // size):
            attributes = {
                "type": {"string": "part"},
                "parent": {"string": f"GPU-{node:05}-{at}"},
                "size": {"int": size},
            }
            uses = {"counterSet": f"gpu-{at}", "counters": {"slices": {"value": str(size)}}}
            found.append({"name": f"gpu-{at}-{profile}-{place}", "attributes": attributes, "consumesCounters": [uses]})
    return found


def slices(node: int, kind: str) -> list[ResourceSlice]:
    """What a node publishes."""
    name = f"node-{node}"
    pages: list[Json] = []
    if kind == "part":
        sets = [{"name": f"gpu-{at}", "counters": {"slices": {"value": "8"}}} for at in range(GPUS)]
        pages.append({"sharedCounters": sets})
        parts = [part for at in range(GPUS) for part in _parts(node, at)]
        pages += [{"devices": parts[start : start + 64]} for start in range(0, len(parts), 64)]
    else:
        pages.append({"devices": [_gpu(node, at, kind) for at in range(GPUS)]})
    pool = {"name": name, "generation": 1, "resourceSliceCount": len(pages)}
    return [
        convert(
            {
                "metadata": {"name": f"{name}-{page}"},
                "spec": {"driver": DRIVER, "pool": pool, "nodeName": name, **spec},
            },
            ResourceSlice,
        )
        for page, spec in enumerate(pages)
    ]


def network(devices: int) -> list[ResourceSlice]:
    """A pool of devices that all nodes reach."""
    pages = [range(start, min(start + 128, devices)) for start in range(0, devices, 128)]
    pool = {"name": "network", "generation": 1, "resourceSliceCount": len(pages)}
    return [
        convert(
            {
                "metadata": {"name": f"network-{number}"},
                "spec": {
                    "driver": "net.bench.io",
                    "pool": pool,
                    "allNodes": True,
                    "devices": [{"name": f"net-{at}"} for at in page],
                },
            },
            ResourceSlice,
        )
        for number, page in enumerate(pages)
    ]


class Cluster:
    """Nodes with the devices of a case."""

    def __init__(self, case: Case, nodes: int) -> None:
        self.case = case
        features = Features()
        self.in_use = DevicesInUse(features)
        self.index = SliceIndex(features, self.in_use)
        shares = count()
        self.allocator = Allocator(self.index, CelExpressions(features), features, lambda: f"share-{next(shares)}")
        selectors = CLASSES | {"net": "device.driver == 'net.bench.io'"}
        self.classes = {
            name: convert(
                {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": text}}]}}, DeviceClass
            )
            for name, text in selectors.items()
        }
        for node in range(nodes):
            self.index.put_node(node, convert({"metadata": {"name": f"node-{node}"}}, core.Node))
            for each in slices(node, case.kind):
                self.index.put_slice(each)
        for each in network(nodes * GPUS if case.kind == "network" else 0):
            self.index.put_slice(each)
        self.rows = np.arange(nodes)
        self.rng = Random(7)
        self.held: list[str] = []

    def fill(self, nodes: int) -> None:
        """The first nodes have no device left; what they have is given back as any other."""
        for node in range(nodes):
            for each in slices(node, self.case.kind):
                for device in each.spec.devices:
                    result = DeviceRequestAllocationResult("r", each.spec.driver, each.spec.pool.name, device.name)
                    name = f"{each.spec.pool.name}/{device.name}"
                    self.in_use.put(name, AllocationResult(DeviceAllocationResult((result,))))
                    self.held.append(name)

    def claim(self, name: str) -> ResourceClaim:
        """A claim of the case."""
        devices = {"requests": list(self.case.requests), "constraints": list(self.case.constraints)}
        metadata = {"name": name, "namespace": "default", "uid": name}
        return convert({"metadata": metadata, "spec": {"devices": devices}}, ResourceClaim)

    def decide(self, claim: ResourceClaim) -> AllocationResult | None:
        """One decision."""
        demand = self.allocator.demand((claim,), self.classes.get, best_fit=self.case.best_fit)
        verdicts = self.allocator.verdicts(demand, self.rows)
        fitting = np.flatnonzero(verdicts.outcomes == Outcome.FITS)
        if not len(fitting):
            return None
        row = int(self.rows[fitting[verdicts.scores[fitting].argmax()]])
        found = self.allocator.allocate(demand, row)
        if found is None:
            return None
        self.in_use.put(claim.metadata.uid, found.results[0])
        self.held.append(claim.metadata.uid)
        return found.results[0]

    def leave(self, number: int) -> None:
        """So many claims at random are deallocated."""
        for _ in range(min(number, len(self.held))):
            at = self.rng.randrange(len(self.held))
            self.held[at], self.held[-1] = self.held[-1], self.held[at]
            self.in_use.drop(self.held.pop())


def _seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


@click.command()
@click.option("--nodes", default=1_000, show_default=True, help="Number of nodes.")
@click.option("--pods", default=200, show_default=True, help="Decisions in each turn.")
@click.option("--turns", default=5, show_default=True, help="Turns; after each, pods leave at random.")
@click.option(
    "--full", default=0.5, show_default=True, help="Part of the nodes whose GPUs are in use at the beginning."
)
@click.option("--only", default="", help="Cases whose names contain this.")
def main(nodes: int, pods: int, turns: int, full: float, only: str) -> None:
    """Measure the cases one after the other, and print medians."""
    click.echo(f"{nodes:,} nodes of {GPUS} GPUs, {pods} decisions per turn, CPU time")
    click.echo(f"{'case':32} {'first ms':>9} {'µs each':>9} {'per second':>11} {'failed':>7}")
    for case in CASES:
        if only not in case.name:
            continue
        cluster = Cluster(case, nodes)
        names = count()
        cluster.fill(int(nodes * full))
        cluster.index.refresh()
        first = cluster.claim("first")
        with no_garbage_collection():
            warm = _seconds(lambda cluster=cluster, first=first: cluster.decide(first))  # type: ignore[misc]
            costs, failed = [], 0
            for _ in range(turns):
                claims = [cluster.claim(f"c{next(names)}") for _ in range(pods)]
                started = time.process_time()
                failed += sum(cluster.decide(claim) is None for claim in claims)
                costs.append((time.process_time() - started) / pods)
                cluster.leave(pods // 2)
        each = median(costs)
        click.echo(f"{case.name:32} {warm * 1e3:9.1f} {each * 1e6:9.0f} {1 / each:11,.0f} {failed:7}")


if __name__ == "__main__":
    main()
