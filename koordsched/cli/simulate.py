"""`koordsched simulate`: where would the pending pods go, on the cluster as it is, or as files describe it?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import click
from rich.console import Console

from koordsched.cli.capacity_output import print_capacity
from koordsched.cli.capacity_report import CapacityReport, capacity_report
from koordsched.cli.job_table import print_refused_job
from koordsched.cli.nodegroups import read_groups
from koordsched.cli.objectfiles import InputError
from koordsched.cli.offline import load_config
from koordsched.cli.output import (
    STRUCTURED,
    WIDE,
    console,
    counted,
    fail,
    output_option,
    print_notes,
    print_structured,
    table,
)
from koordsched.cli.simulation import Outcome, Simulation
from koordsched.cli.state_options import State, evaluation_options
from koordsched.cluster.state import ClusterState
from koordsched.engine.jobexplanation import JobExplanation
from koordsched.scheduling.advice import closest

SOME_PENDING = 3
"""Exit code when not every pod was placed."""

ZONE = "topology.kubernetes.io/zone"
MOST_ROWS = 40
"""Above this many placed pods the table has a row per workload."""

_EPILOG = f"Exit code: 0 all pods were placed, {SOME_PENDING} some are pending, 1 the input cannot be used."


@click.command("simulate", epilog=_EPILOG)
@click.option("-n", "--namespace", help="Only show pods of this namespace; all pods are placed.")
@evaluation_options
@click.option("--seed", type=int, default=0, show_default=True, help="Decides between equally good nodes.")
@click.option(
    "--node-groups",
    metavar="FILE",
    help="How many nodes of which of these groups would let all pods run, and which of their nodes could go?",
)
@output_option
def simulate(namespace: str | None, state: State, seed: int, node_groups: str | None, output: str) -> None:
    """Place pending pods and say where they would go, or why not. Nothing is changed.

    Reads the cluster of the kubeconfig, or with -f a dump of a cluster (kubectl get -o yaml, a snapshot directory) or
    plain manifests. Manifests are completed as an API server would do; workloads without pods are expanded. Pods are
    placed one after the other, by priority; no pod is evicted, but preemption that would help is shown.

    \b
    How many pending pods would three more nodes like worker-1 run?
      koordsched simulate --nodes 3 --like worker-1
    What would let all of it run?
      koordsched simulate --node-groups groups.yaml
    """
    capacity: CapacityReport | None = None
    try:
        groups = read_groups(node_groups) if node_groups else []
        resolved, warnings = load_config(state.config_file, gates=state.gates)
        offline = state.prepare(resolved, seed=seed)
    except InputError as error:
        fail(error)
    cluster = offline.scheduler.cluster
    simulation = Simulation(offline.scheduler)
    outcomes = simulation.run(namespace)
    named = {outcome.job for outcome in outcomes}
    jobs = [job for name, job in simulation.jobs.items() if name in named]
    if groups:
        try:
            capacity = capacity_report(offline.scheduler, groups, seed)
        except InputError as error:
            fail(error)
    notes = [*warnings, *offline.notes]
    if output in STRUCTURED:
        print_structured(_report(outcomes, jobs, cluster, seed, notes, capacity), output)
    else:
        out = console(output)
        _print(out, outcomes, jobs, cluster, notes, wide=output == WIDE)
        if capacity is not None:
            print_capacity(out, capacity, wide=output == WIDE)
    if any(not outcome.node for outcome in outcomes):
        raise click.exceptions.Exit(SOME_PENDING)


def _report(
    outcomes: list[Outcome],
    jobs: list[JobExplanation],
    cluster: ClusterState,
    seed: int,
    notes: list[str],
    capacity: CapacityReport | None,
) -> dict[str, Any]:
    placed = sum(bool(outcome.node) for outcome in outcomes)
    return {
        "nodes": cluster.table.count,
        "placed": placed,
        "pending": len(outcomes) - placed,
        "seed": seed,
        "notes": notes,
        "pods": outcomes,
        **({"jobs": jobs} if jobs else {}),
        **({"nodeGroups": capacity} if capacity is not None else {}),
    }


def _print(
    out: Console,
    outcomes: list[Outcome],
    jobs: list[JobExplanation],
    cluster: ClusterState,
    notes: list[str],
    *,
    wide: bool,
) -> None:
    print_notes(notes)
    placed = [outcome for outcome in outcomes if outcome.node]
    if placed:
        many = len(placed) > MOST_ROWS and not wide
        out.print(_by_workload(placed, cluster) if many else _by_pod(placed, wide=wide))
        out.print()
        if not many:
            _print_given(out, placed)
    for job in jobs:
        print_refused_job(out, job, wide=wide)
        out.print()
    _print_pending(out, [outcome for outcome in outcomes if not outcome.node and not outcome.job])
    nodes = len({outcome.node for outcome in placed})
    out.print(
        f"{len(placed)} of {counted(len(outcomes), 'pending pod')} placed on {counted(nodes, 'node')} "
        f"of {cluster.table.count}"
    )
    if len(placed) > MOST_ROWS and not wide:
        out.print("(-o wide lists every pod)")


def _by_pod(placed: list[Outcome], *, wide: bool) -> Any:
    more = ("WORKLOAD", "SCHEDULER") if wide else ()
    rows = table("POD", "NODE", "FEASIBLE NODES", *more, right=["FEASIBLE NODES"])
    for outcome in placed:
        details = (outcome.workload, outcome.profile) if wide else ()
        rows.add_row(outcome.pod, outcome.node, str(outcome.feasible_nodes), *details)
    return rows


def _print_given(out: Console, placed: list[Outcome]) -> None:
    """What plugins gave the pods."""
    for outcome in placed:
        for lines in outcome.given.values():
            for line in lines:
                out.print(f"{outcome.pod}: {line}", soft_wrap=True)
    if any(outcome.given for outcome in placed):
        out.print()


def _by_workload(placed: list[Outcome], cluster: ClusterState) -> Any:
    rows = table("WORKLOAD", "PLACED", "NODES", "ZONES", right=["PLACED", "NODES"])
    nodes: dict[str, Counter[str]] = {}
    for outcome in placed:
        nodes.setdefault(outcome.workload, Counter())[outcome.node] += 1
    for workload, where in sorted(nodes.items()):
        zones: Counter[str] = Counter()
        for node, count in where.items():
            zones[zone_of(cluster, node)] += count
        spread = ", ".join(f"{zone} {count}" for zone, count in sorted(zones.items()) if zone)
        rows.add_row(workload, str(sum(where.values())), str(len(where)), spread or "-")
    return rows


def zone_of(cluster: ClusterState, node: str) -> str:
    """The zone label of a node, "" without one."""
    wire = cluster.table.nodes[cluster.table.row_of[node]]
    return wire.metadata.labels.get(ZONE, "") if wire is not None else ""


def _print_pending(out: Console, pending: list[Outcome]) -> None:
    """Pods of one workload with the same message share a paragraph."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in pending:
        groups.setdefault((outcome.workload, outcome.message), []).append(outcome)
    for (workload, message), outcomes in groups.items():
        first = outcomes[0]
        many = f" ({counted(len(outcomes), 'pod')})" if len(outcomes) > 1 else ""
        out.print(f"pending: {first.pod if len(outcomes) == 1 else workload}{many}", style="bold")
        out.print(f"  {message}", soft_wrap=True)
        advice = first.advice
        if advice is not None and first.reason != "SchedulingGated":
            out.print(f"  {advice.text}", soft_wrap=True)
            for remedy in advice.remedies[:1]:
                out.print(f"  {closest(remedy)}", soft_wrap=True)
        out.print()
