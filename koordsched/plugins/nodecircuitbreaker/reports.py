"""Pages and a command about circuit breakers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from koordsched.framework.declaration import NotFound, Page, View
from koordsched.framework.display import Line, Table
from koordsched.plugins.nodecircuitbreaker.plugin import NodeCircuitBreaker

PATH = "/apis/v1/plugins/NodeCircuitBreaker/nodes"


class BreakerReport(msgspec.Struct, frozen=True, rename="camel"):
    """The breaker of a node. `state`: open, half-open, closed, or held (closed because too many others are not).

    `failures` are those within the window that count, of `workloads`; `probe`: the pod on trial.
    """

    node: str
    state: str
    since: str = ""
    until: str = ""
    openings: int = 0
    probe: str = ""
    reason: str = ""
    failures: int = 0
    workloads: tuple[str, ...] = ()


class Breakers(msgspec.Struct, frozen=True, rename="camel"):
    """All breakers that are not closed, and those of nodes with failures."""

    nodes: tuple[BreakerReport, ...] = ()


def report_on(plugin: NodeCircuitBreaker, node: str) -> BreakerReport:
    """The breaker of one node. Raises NotFound."""
    breakers = plugin.breakers
    row = breakers.cluster.table.row_of.get(node)
    if row is None:
        raise NotFound(f"there is no node {node}")
    case = breakers.evidence.case(node)
    workloads = tuple(map(str, case.workloads))
    record = breakers.records.get(row)
    if record is None:
        held = breakers.held.get(node)
        state = "closed" if held is None else "held"
        return BreakerReport(node, state, reason=held or "", failures=case.failures, workloads=workloads)
    pod = breakers.cluster.assigned.get(record.probe)
    probe = pod.key if pod is not None else record.probe
    return BreakerReport(
        node,
        record.state,
        record.since,
        record.until,
        record.openings,
        probe,
        record.reason,
        case.failures,
        workloads,
    )


def report(plugin: NodeCircuitBreaker) -> Breakers:
    """All breakers to show."""
    breakers = plugin.breakers
    table = breakers.cluster.table
    names = {*(table.names[row] for row in breakers.records), *breakers.held, *breakers.evidence.nodes}
    return Breakers(tuple(report_on(plugin, name) for name in sorted(names) if name in table.row_of))


def tables(shown: Breakers) -> Iterator[Line | Table]:
    """A line per node."""
    if not shown.nodes:
        yield Line("All circuit breakers are closed.")
        return
    rows = [
        (each.node, each.state, each.until or "-", str(each.openings), str(each.failures), each.probe, each.reason)
        for each in shown.nodes
    ]
    header = ("NODE", "STATE", "UNTIL", "OPENINGS", "FAILURES", "PROBE", "WHY")
    yield Table(header, rows, numbers=("OPENINGS", "FAILURES"))


def _all(plugin: NodeCircuitBreaker, parameters: Mapping[str, str]) -> Breakers:
    return report(plugin)


def _one(plugin: NodeCircuitBreaker, parameters: Mapping[str, str]) -> BreakerReport:
    return report_on(plugin, parameters["name"])


PAGES = (Page(PATH, _all), Page(PATH + "/{name}", _one))

VIEW = View(
    group="breaker",
    group_help="Show circuit breakers of nodes.",
    name="nodes",
    help="""Show the nodes whose circuit breaker is not closed, and those on which pods fail.

    Reads the cluster of the kubeconfig, or files (-f), or asks a running scheduler (--live).
    """,
    title="a report on circuit breakers",
    page=PATH,
    type=Breakers,
    report=report,
    show=tables,
)
