"""GPUs and NICs: nodes whose devices are given to pods by number."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from rich.console import Console

from koordsched.cli.demo.children import ChildFailed
from koordsched.cli.endpoint import Endpoint
from koordsched.cli.output import table
from koordsched.client.transport import Transport
from koordsched.plugins.deviceshare.reports.pages import NODE
from koordsched.plugins.deviceshare.reports.report import DeviceReport, NodeReport
from koordsched.plugins.deviceshare.reports.tables import VIEW
from koordsched.plugins.shared.devices.kinds import DEVICES
from koordsched.plugins.shared.devices.resources import GPU, GPU_MEMORY_RATIO, RDMA
from koordsched.scheduling.advice import Advised

NODES = ("large-1", "large-3")
REFUSED = "demo/fast-pair"
"""A pod that wants GPUs which are linked better than any two."""
_LOOK_EVERY = 0.1


@dataclass(frozen=True, slots=True)
class GPUs:
    """What `koordsched devices` says of the nodes, and what `koordsched explain` says of the pod on the first one."""

    reports: list[NodeReport]
    details: dict[str, list[str]]


async def until_reported(transport: Transport, within: float) -> None:
    """Waits until the nodes have reported their devices, at most this many seconds. Raises ChildFailed."""
    missing = list(NODES)
    try:
        async with asyncio.timeout(within):
            while missing:
                answer = await transport.request("GET", DEVICES.object_path("", missing[0]))
                if answer.status == 200:
                    missing.pop(0)
                else:
                    await asyncio.sleep(_LOOK_EVERY)
    except TimeoutError as error:
        raise ChildFailed(f"fakecluster: {missing[0]} has not reported its devices within {within:g} s") from error


def ask(server: str, kubeconfig: str) -> GPUs:
    """Asks the scheduler that serves there. Raises EndpointError."""
    endpoint = Endpoint.open(server, kubeconfig=kubeconfig, token=None, ca_file=None, verify=False)
    reports = [endpoint.ask(NODE.format(name=name), {}, NodeReport, VIEW.title) for name in NODES]
    explained = endpoint.ask("/debug/explain", {"pod": REFUSED}, Advised, "an explanation")
    details = next((node.details for node in explained.nodes if node.name == NODES[0]), {})
    return GPUs(reports, details)


def print_gpus(out: Console, shown: GPUs) -> None:
    """Which pods have which GPUs and NICs, and why one gets none."""
    out.print(f"{' and '.join(NODES)} give pods GPUs, and NICs next to them:")
    rows = table("NODE", "POD", "GPUS", "NICS")
    for report in shown.reports:
        pods = dict.fromkeys(holder.pod for device in report.devices for holder in device.pods)
        for pod in sorted(pods):
            gpus, nics = (", ".join(_held(report.devices, kind, pod)) or "-" for kind in (GPU, RDMA))
            rows.add_row(report.node.node, pod, gpus, nics)
    out.print(rows)
    out.print(f"What {NODES[0]} has for the pod {REFUSED}:")
    for line in chain.from_iterable(shown.details.values()):
        out.print(f"  {line}", soft_wrap=True)


def _held(devices: list[DeviceReport], kind: str, pod: str) -> Iterator[str]:
    """The numbers of a pod's devices, with the share of parts and the addresses of virtual functions."""
    for device in devices:
        for holder in device.pods if device.type == kind else ():
            if holder.pod == pod:
                share = holder.amounts.get(GPU_MEMORY_RATIO, 100)
                said = [f"{share} %"] * (share < 100) + holder.functions
                yield f"{device.minor} ({', '.join(said)})" if said else str(device.minor)
