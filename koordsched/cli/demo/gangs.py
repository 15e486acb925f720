"""Gangs: one in a rack, one that fits, one that waits for room, one that has others evicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from koordsched.cli.demo.stage import Stage, StageFailed
from koordsched.cli.output import table

NODES = tuple(f"rack-{rack}-{number}" for rack in "abc" for number in range(3))
TOPOLOGY = "network-topology.yaml"
_TRAINING, _RENDERING, _INDEXING, _URGENT = (
    f"Job demo/{name}" for name in ("training", "rendering", "indexing", "urgent")
)
_SCAVENGER = "Deployment demo/scavenger"
_SIZES = {_TRAINING: 6, _SCAVENGER: 4, _RENDERING: 4, _INDEXING: 6, _URGENT: 4}


@dataclass(frozen=True, slots=True)
class Gangs:
    """`rack`: the nodes of the one that had to be in one. `waited`: seconds until the one that waited had nodes.
    `evicted`: how many pods had to go."""

    rack: list[str]
    waited: float
    evicted: int


async def play(stage: Stage, examples: Path, zones: Mapping[str, str]) -> Gangs:
    """`zones`: by node; there is a rack in each. Raises StageFailed, ChildFailed or InputError."""
    folder = examples / "gangs" / "demo"

    async def runs(number: int, workload: str) -> None:
        await stage.create(folder / f"{number}-{workload.rpartition('/')[2]}.yaml")
        size = _SIZES[workload]
        await stage.until_tally(
            workload, lambda tally: tally.running + tally.succeeded == size, f"{workload}: {size} pods run"
        )

    await runs(10, _TRAINING)
    nodes = stage.tally(_TRAINING).nodes
    if len({zones.get(node) for node in nodes}) != 1:
        raise StageFailed(f"{_TRAINING}: on {', '.join(sorted(nodes))}, which are in several racks")
    await runs(20, _SCAVENGER)
    await runs(30, _RENDERING)
    await runs(40, _INDEXING)
    await runs(50, _URGENT)
    # Those that took their place in the Deployment wait.
    left = await stage.until_tally(
        _SCAVENGER,
        lambda tally: tally.pending.total() and tally.running + tally.pending.total() == tally.pods,
        f"{_SCAVENGER}: gives way to {_URGENT}",
    )
    return Gangs(sorted(nodes), stage.observation.placing(_INDEXING)[1], left.pending.total())


def print_gangs(out: Console, shown: Gangs) -> None:
    """A line for each."""
    out.print(f"{len(NODES)} nodes in three racks run gangs, as a whole or not at all:")
    rows = table("GANG", "WORKERS", "OUTCOME")
    for workload, outcome in (
        (_TRAINING, f"has to be in one rack: {', '.join(shown.rack)}"),
        (_RENDERING, "runs at once"),
        (_INDEXING, f"waited {shown.waited:.1f} s, until demo/rendering had ended"),
        (_URGENT, f"has {shown.evicted} pods of demo/scavenger evicted"),
    ):
        rows.add_row(workload.rpartition(" ")[2], str(_SIZES[workload]), outcome)
    out.print(rows)
