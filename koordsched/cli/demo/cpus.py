"""Exclusive CPUs: a node whose CPUs are allocated one by one, until there are no whole cores left for a pod."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
from rich.console import Console

from koordsched.cli.demo.children import ChildFailed
from koordsched.cli.endpoint import Endpoint
from koordsched.cli.output import table
from koordsched.client.transport import Transport
from koordsched.plugins.nodenumaresource.kinds import NODE_RESOURCE_TOPOLOGIES
from koordsched.plugins.nodenumaresource.reports.pages import UPSTREAM
from koordsched.plugins.shared import cpuset

NODE = "large-2"
SHARING = "demo/statements"
REFUSED = "demo/model"
"""A pod that requires whole cores."""
_LOOK_EVERY = 0.1


class CPU(msgspec.Struct):
    """One of the node's."""

    core: int = msgspec.field(name="coreID")


class Topology(msgspec.Struct):
    """All CPUs, by their ids."""

    details: dict[str, CPU] = msgspec.field(name="cpuDetails")


class Holder(msgspec.Struct):
    """A pod and its exclusive CPUs."""

    namespace: str
    name: str
    cpuset: str


class Node(msgspec.Struct):
    """What the plugin's page says about the node."""

    topology: Topology = msgspec.field(name="cpuTopology")
    free: str = msgspec.field(name="availableCPUs")
    holders: list[Holder] | None = msgspec.field(name="allocatedPods", default=None)

    @property
    def in_whole_cores(self) -> int:
        """How many of the free CPUs belong to cores that are entirely free."""
        of_core = Counter(cpu.core for cpu in self.topology.details.values())
        free = Counter(self.topology.details[str(cpu)].core for cpu in cpuset.ids(cpuset.parse(self.free)))
        return sum(count for core, count in free.items() if count == of_core[core])


async def until_reported(transport: Transport, within: float) -> None:
    """Waits until the node has reported its CPUs, at most this many seconds. Raises ChildFailed."""
    path = NODE_RESOURCE_TOPOLOGIES.object_path("", NODE)
    try:
        async with asyncio.timeout(within):
            while True:
                if (await transport.request("GET", path)).status == 200:
                    return
                await asyncio.sleep(_LOOK_EVERY)
    except TimeoutError as error:
        raise ChildFailed(f"fakecluster: {NODE} has not reported its CPUs within {within:g} s") from error


def ask(server: str, kubeconfig: str) -> Node:
    """Asks the scheduler that serves there. Raises EndpointError."""
    endpoint = Endpoint.open(server, kubeconfig=kubeconfig, token=None, ca_file=None, verify=False)
    return endpoint.ask(UPSTREAM.format(name=NODE), {}, Node, "the CPUs of a node")


def print_cpus(out: Console, node: Node, wanted: float) -> None:
    """Which pods have which CPUs, and why the pod that requests `wanted` CPUs gets none."""
    out.print(f"{NODE} gives pods CPUs of their own:")
    rows = table("POD", "CPUS")
    for holder in node.holders or ():
        rows.add_row(f"{holder.namespace}/{holder.name}", holder.cpuset)
    rows.add_row(SHARING, f"shares {node.free}")
    out.print(rows)
    out.print(
        f"{REFUSED} wants {wanted:g} CPUs in whole cores. {cpuset.parse(node.free).bit_count()} CPUs are free, "
        f"{node.in_whole_cores} of them in whole cores.",
        soft_wrap=True,
    )
