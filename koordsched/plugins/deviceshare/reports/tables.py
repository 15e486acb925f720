"""Devices on the command line."""

from __future__ import annotations

from collections.abc import Iterator

from koordsched.framework.declaration import Detail, View
from koordsched.framework.display import Line, Table
from koordsched.plugins.deviceshare.reports.pages import NODE, NODES
from koordsched.plugins.deviceshare.reports.report import (
    OVERCOMMITTED,
    DeviceReport,
    NodeLine,
    NodeReport,
    Overview,
    PodReport,
    overview,
    report_on,
)
from koordsched.plugins.shared.devices.allocation import quantity_of
from koordsched.plugins.shared.devices.resources import TYPES


def overview_tables(shown: Overview) -> Iterator[Line | Table]:
    """A line per node, then what is wrong with nodes."""
    rows = [
        (
            node.node,
            node.report,
            node.vendor or "-",
            node.model or "-",
            node.partitions or "-",
            *(_counts(node, kind) for kind in TYPES),
        )
        for node in shown.nodes
    ]
    header = ("NODE", "REPORT", "VENDOR", "MODEL", "PARTITIONS", *(f"{kind.upper()} FREE" for kind in TYPES))
    yield Table(header, rows)
    for node in shown.nodes:
        for problem in node.problems:
            yield Line(f"{node.node}: {problem}")


def _counts(node: NodeLine, kind: str) -> str:
    """`3/8, 2 partly, 1 unhealthy`."""
    for count in node.types:
        if count.type == kind:
            said = [f"{count.free}/{count.devices}"]
            said += [f"{count.partly} partly"] * bool(count.partly)
            said += [f"{count.unhealthy} unhealthy"] * bool(count.unhealthy)
            said += [f"{count.overcommitted} OVERCOMMITTED"] * bool(count.overcommitted)
            return ", ".join(said)
    return "-"


def tables(shown: NodeReport) -> Iterator[Line | Table]:
    """The node, then a line per device and pod."""
    node = shown.node
    said = [f"Node {node.node}", f"report {node.report}"]
    said += [" ".join(part for part in (node.vendor, node.model) if part)] * bool(node.vendor or node.model)
    said += [f"partitions {node.partitions}"] * bool(node.partitions)
    yield Line(", ".join(said), bold=True)
    for problem in node.problems:
        yield Line(f"Problem: {problem}")
    yield Line("")
    rows: list[tuple[str, ...]] = []
    for device in shown.devices:
        place = (
            f"{device.type} {device.minor}",
            device.state.upper() if device.state == OVERCOMMITTED else device.state,
            "-" if device.numa_node is None else str(device.numa_node),
            device.pcie or "-",
            _left(device),
        )
        holders = [(report.pod, _given(report)) for report in device.pods] or [("", "")]
        for number, holder in enumerate(holders):
            rows.append((*place, *holder) if not number else ("",) * len(place) + holder)
    yield Table(("DEVICE", "STATE", "NUMA NODE", "PCIE", "LEFT", "POD", "GIVEN"), rows, numbers=("NUMA NODE",))


def _left(device: DeviceReport) -> str:
    return ", ".join(
        f"{_short(amount.resource)} {quantity_of(amount.resource, amount.left)}/"
        f"{quantity_of(amount.resource, amount.has)}"
        for amount in device.amounts
    )


def _given(report: PodReport) -> str:
    said = [f"{_short(name)} {quantity_of(name, amount)}" for name, amount in report.amounts.items()]
    said += [f"VF {function}" for function in report.functions]
    said += [f"template {report.template}"] * bool(report.template)
    return ", ".join(said)


def _short(resource: str) -> str:
    return resource.rpartition("/")[2].removeprefix("gpu-").removeprefix("memory-")


VIEW = View(
    group="devices",
    group_help="Show GPUs, NICs and FPGAs.",
    name="",
    help="""Show which pods have the devices of a node, what each device has left, and where it is.

    Without NODE: one line per node with devices, with its model, its partition policy, and how many are free.

    Reads the cluster of the kubeconfig, or files (-f), or asks a running scheduler (--live).
    """,
    title="a report on devices",
    page=NODES,
    type=Overview,
    report=overview,
    show=overview_tables,
    is_empty=lambda shown: not shown.nodes,
    detail=Detail("NODE", "a report on the devices of a node", NODE, NodeReport, report_on, tables),
)
