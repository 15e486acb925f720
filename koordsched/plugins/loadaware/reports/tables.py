"""Loads on the command line."""

from __future__ import annotations

from collections.abc import Iterator

from koordsched.api.quantity import format_bytes
from koordsched.framework.declaration import View
from koordsched.framework.display import Line, Table
from koordsched.plugins.loadaware.reports.pages import NODES
from koordsched.plugins.loadaware.reports.report import Report, ResourceLoad, report


def tables(shown: Report) -> Iterator[Line | Table]:
    """A line per node and resource, then what is wrong with nodes."""
    rows: list[tuple[str, ...]] = []
    for node in shown.nodes:
        said = node.report if node.age is None else f"{node.report}, {node.age} s"
        name, refuses = node.node, "refuses pods" if node.refuses else ""
        for line in node.resources:
            if line.total or line.measured:
                rows.append((name, said, *_numbers(line), refuses))
                name = said = refuses = ""
    figures = "TOTAL", "MEASURED", "ESTIMATED", "USE", "THRESHOLD", "PROD"
    yield Table(("NODE", "REPORT", "RESOURCE", *figures, ""), rows, numbers=figures)
    for node in shown.nodes:
        if node.problem:
            yield Line(f"{node.node}: {node.problem}")


def _numbers(line: ResourceLoad) -> tuple[str, ...]:
    share = f"{100 * (line.measured + line.estimated) / line.total:.0f}%" if line.total else ""
    limits = (f"{percent}%" if percent else "-" for percent in (line.threshold, line.prod_threshold))
    amounts = (_amount(line.resource, amount) for amount in (line.total, line.measured, line.estimated))
    return line.resource, *amounts, share, *limits


def _amount(resource: str, amount: int) -> str:
    if resource == "cpu":
        return f"{amount / 1000:.1f}"
    if resource == "memory":
        return f"{amount / (1 << 30):.1f}Gi"
    return format_bytes(amount)


VIEW = View(
    group="load",
    group_help="Show the load of nodes.",
    name="nodes",
    help="""Show the usage of each node: as measured in its newest NodeMetric, and as estimated for pods placed since.

    Reads the cluster of the kubeconfig, or files (-f), or asks a running scheduler (--live).
    """,
    title="a report on loads",
    page=NODES,
    type=Report,
    report=report,
    show=tables,
)
