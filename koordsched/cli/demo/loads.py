"""Scheduling by load: nodes report their usage, and one of them uses more than pods request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import chain
from typing import Any

import orjson
from rich.console import Console

from koordsched.cli.demo.children import ChildFailed
from koordsched.cli.endpoint import Endpoint
from koordsched.cli.output import print_blocks
from koordsched.client.transport import Transport
from koordsched.plugins.loadaware.kinds import NODE_METRICS
from koordsched.plugins.loadaware.reports.report import NodeReport, Report
from koordsched.plugins.loadaware.reports.tables import VIEW
from koordsched.scheduling.advice import Advised

BUSY = "busy-0"
NODES = (BUSY, "quiet-0", "quiet-1")
"""Those of which the pods of the profile have to choose."""
REFUSED = "demo/on-busy"
"""A pod for the busy node alone."""
_LOOK_EVERY = 0.1


@dataclass(frozen=True, slots=True)
class Loads:
    """What `koordsched load nodes` says of CPUs, and what `koordsched explain` says of the pod on the busy node."""

    report: Report
    details: dict[str, list[str]]


async def until_reported(transport: Transport, within: float) -> None:
    """Waits for the first report of the busy node, at most this many seconds. Raises ChildFailed."""
    path = NODE_METRICS.object_path("", BUSY)
    try:
        async with asyncio.timeout(within):
            while True:
                response = await transport.request("GET", path)
                if response.status == 200 and (orjson.loads(response.body).get("status") or {}).get("updateTime"):
                    return
                await asyncio.sleep(_LOOK_EVERY)
    except TimeoutError as error:
        raise ChildFailed(f"fakecluster: {BUSY} has not reported within {within:g} s") from error


def ask(server: str, kubeconfig: str) -> Loads:
    """Asks the scheduler that serves there. Raises EndpointError."""
    endpoint = Endpoint.open(server, kubeconfig=kubeconfig, token=None, ca_file=None, verify=False)
    report: Report = endpoint.ask(VIEW.page, {}, Report, VIEW.title)
    explained = endpoint.ask("/debug/explain", {"pod": REFUSED}, Advised, "an explanation")
    details: dict[str, Any] = next((node.details for node in explained.nodes if node.name == BUSY), {})
    return Loads(Report([_cpu_alone(node) for node in report.nodes if node.node in NODES]), details)


def print_loads(out: Console, loads: Loads, requested: float) -> None:
    """The nodes, and why the busy one is avoided. `requested`: CPUs that pods request there."""
    out.print(f"{BUSY} looks empty: pods request {requested:.2f} CPUs. By its report it is not; load-aware avoids it:")
    print_blocks(out, VIEW.show(loads.report))
    out.print(f"What {BUSY} would use with the pod {REFUSED}:")
    for line in chain.from_iterable(loads.details.values()):
        out.print(f"  {line}", soft_wrap=True)


def _cpu_alone(node: NodeReport) -> NodeReport:
    node.resources = [each for each in node.resources if each.resource == "cpu"]
    return node
