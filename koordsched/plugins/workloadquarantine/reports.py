"""Pages and a command about quarantines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from koordsched.framework.declaration import NotFound, Page, View
from koordsched.framework.display import Line, Table
from koordsched.plugins.shared.workloads import Workload
from koordsched.plugins.workloadquarantine.plugin import Details, WorkloadQuarantine

PATH = "/apis/v1/plugins/WorkloadQuarantine/workloads"


class Suspect(msgspec.Struct, frozen=True, rename="camel"):
    """A workload that is not quarantined, and the nodes that went down soon after new pods of it came."""

    namespace: str
    kind: str
    name: str
    nodes: tuple[str, ...]


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """All that is known."""

    quarantined: tuple[Details, ...] = ()
    suspects: tuple[Suspect, ...] = ()


def report(plugin: WorkloadQuarantine) -> Report:
    """All quarantines, and suspected workloads."""
    quarantines = plugin.quarantines
    return Report(
        tuple(found for workload in sorted(quarantines.held) if (found := plugin.details(workload)) is not None),
        tuple(
            Suspect(*workload, tuple(suspicion.nodes))
            for workload, suspicion in sorted(quarantines.suspicions.items())
            if workload not in quarantines.held
        ),
    )


def tables(shown: Report) -> Iterator[Line | Table]:
    """A line per workload."""
    if not shown.quarantined:
        yield Line("No workload is quarantined.")
    else:
        rows = [
            (each.namespace, f"{each.kind}/{each.name}", each.until or "-", ", ".join(each.nodes), each.chance)
            for each in shown.quarantined
        ]
        yield Table(("NAMESPACE", "WORKLOAD", "UNTIL", "NODES THAT WENT DOWN", "CHANCE"), rows)
    for suspect in shown.suspects:
        nodes = ", ".join(suspect.nodes)
        yield Line(f"{suspect.kind} {suspect.namespace}/{suspect.name} had new pods on {nodes} shortly before.")


def refusal_table(values: Any) -> list[Line | Table]:
    """Why a pod is held back. `values`: `Details` as JSON. Raises msgspec.ValidationError if they are not."""
    details = msgspec.convert(values, Details)
    lift = f"kubectl annotate namespace {details.namespace} {details.annotation}-"
    nodes = f"{len(details.nodes)} of {details.placed} nodes with new pods of it went down"
    return [
        Line(f"{details.kind} {details.name} is quarantined until {details.until or 'this is lifted'}.", bold=True),
        Line(f"{nodes}: {', '.join(details.nodes)} (chance {details.chance})"),
        Line(f"({lift} lifts it)"),
    ]


def _all(plugin: WorkloadQuarantine, parameters: Mapping[str, str]) -> Report:
    return report(plugin)


def _one(plugin: WorkloadQuarantine, parameters: Mapping[str, str]) -> Details:
    """One quarantine. Raises NotFound."""
    workload = Workload(parameters["namespace"], parameters["kind"], parameters["name"])
    details = plugin.details(workload)
    if details is None:
        raise NotFound(f"{workload} is not quarantined")
    return details


PAGES = (Page(PATH, _all), Page(PATH + "/{namespace}/{kind}/{name}", _one))

VIEW = View(
    group="quarantine",
    group_help="Show quarantined workloads.",
    name="workloads",
    help="""Show the workloads whose pods are held back because they bring nodes down.

    Reads the cluster of the kubeconfig, or files (-f), or asks a running scheduler (--live).
    """,
    title="a report on quarantines",
    page=PATH,
    type=Report,
    report=report,
    show=tables,
)
