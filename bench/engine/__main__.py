"""`python -m bench.engine`: cost per pod of the workloads at several sizes, and preemption decisions per second."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from rich.table import Table

from bench.engine.measuring import Cost, preemptions, sweep
from bench.machine import Machine, describe
from bench.workloads import Catalog, WorkloadError, load
from koordsched.cli.output import console

SIZES = (1_000, 5_000, 15_000, 50_000, 100_000)

COMPARED = (
    "SchedulingBasic",
    "SchedulingNodeAffinity",
    "HardSpreadZonesAndHosts",
    "SchedulingPodAntiAffinity",
    "PreferredZoneAffinity",
    "SchedulingRequiredPodAntiAffinityWithNSSelector",
    "DeploymentReplicas",
    "DistinctShapes",
)
"""What `--quick` looks at, at 5,000 nodes with 15,000 pods on them."""

QUICK_NODES, QUICK_EXISTING = 5_000, 15_000

SPECIAL = ("PreemptionBasic", "PreemptionAsync", "PreemptionWithGracePeriod", "Quotas")
"""Timed as preemption decisions instead; what quotas add is measured by `bench.engine.quota`."""


class Results(msgspec.Struct):
    """Everything that was measured, for machines."""

    machine: Machine
    costs: list[Cost]
    preemptions_per_second: float


@click.command()
@click.option("--workload", "names", multiple=True, help="Workload to measure; may be repeated. Default: all.")
@click.option("--nodes", "sizes", multiple=True, type=int, help="Number of nodes; may be repeated.")
@click.option("--pods", default=500, show_default=True, help="Pods timed per workload and size.")
@click.option("--quick", is_flag=True, help="The workloads that are compared with each other.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Directory for engine.json.")
def main(names: tuple[str, ...], sizes: tuple[int, ...], pods: int, quick: bool, out: Path | None) -> None:
    """Measure the engine alone: no API server, no queue."""
    try:
        catalog = load()
        chosen = list(names) or (list(COMPARED) if quick else [n for n in catalog.workloads if n not in SPECIAL])
        at = list(sizes) or ([QUICK_NODES] if quick else list(SIZES))
        costs = _measure(catalog, chosen, at, pods, QUICK_EXISTING if quick else 0)
    except WorkloadError as error:
        raise SystemExit(f"bench: {error}") from error
    preempting = preemptions(catalog)
    terminal = console()
    terminal.print(_table(costs, at))
    terminal.print(
        f"preemption: {preempting.per_second:,.0f} decisions/s "
        f"({preempting.decisions} pods on {preempting.nodes:,} full nodes, {preempting.victims} victims)"
    )
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        results = Results(describe(), costs, preempting.per_second)
        (out / "engine.json").write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))


def _measure(catalog: Catalog, names: list[str], sizes: list[int], pods: int, existing: int) -> list[Cost]:
    costs = []
    for cost in sweep(catalog, names, sizes, pods, existing):
        costs.append(cost)
        short = "" if cost.placed == cost.pods else f", {cost.pods - cost.placed} of {cost.pods} not placed"
        click.echo(
            f"{cost.workload} {cost.nodes:,} nodes: {cost.median:.1f} µs/pod "
            f"({cost.best:.1f} to {cost.worst:.1f}; first {cost.first:.0f}){short}",
            err=True,
        )
    return costs


def _table(costs: list[Cost], sizes: list[int]) -> Table:
    """Microseconds per pod, and how many times that of a basic pod on as many nodes."""
    table = Table(title="engine only, µs per pod: median of batches (times a basic pod)")
    table.add_column("workload")
    for size in sizes:
        table.add_column(f"{size:,} nodes", justify="right")
    by_name: dict[str, dict[int, Cost]] = {}
    for cost in costs:
        by_name.setdefault(cost.workload, {})[_nearest(cost.nodes, sizes)] = cost
    basic = by_name.get("SchedulingBasic", {})
    for name, row in by_name.items():
        cells = []
        for size in sizes:
            here = row.get(size)
            if here is None:
                cells.append("")
                continue
            times = f" ({here.median / basic[size].median:.1f}x)" if size in basic and name != "SchedulingBasic" else ""
            cells.append(f"{here.median:,.0f}{times}")
        table.add_row(name, *cells)
    return table


def _nearest(nodes: int, sizes: list[int]) -> int:
    return min(sizes, key=lambda size: abs(size - nodes))


if __name__ == "__main__":
    main()
