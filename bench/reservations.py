"""`python -m bench.reservations`: at what rate Reservations are created and bound, beside that of pods, from outside.

Pods and Reservations with the same requests are created in turns on an embedded server while the scheduler runs. A rate
is that from the first request to the last that has its node, as lists show it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import click
import orjson
import uvloop
from msgspec.structs import replace

from bench.api import Api, RequestRefused
from bench.machine import describe
from bench.manifests import Manifest
from bench.population import SCHEDULER, Population
from bench.processes import Command, CommandFailed, SchedulerProcess, free_port, write_config
from bench.server import OURS, ServerFailed, embedded
from bench.workloads import Catalog, WorkloadError, load
from koordsched.client.clock import SystemClock
from koordsched.client.errors import ClientError
from koordsched.client.network import NetworkTransport
from koordsched.client.settings import source_of
from koordsched.plugins.reservation.kinds import RESERVATIONS

NAME = f"{SCHEDULER}reservations"
SETTLE_WITHIN, BOUND_WITHIN = 60.0, 300.0
POLL = 0.5
"""Seconds for the scheduler to come to rest, for all to be bound, and between lists."""

REQUESTS = {"cpu": "100m", "memory": "500Mi"}
PROFILE = {"plugins": {"multiPoint": {"enabled": [{"name": "Reservation"}]}}}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--nodes", default=5_000, show_default=True, help="Nodes.")
@click.option("--count", default=5_000, show_default=True, help="Pods, and Reservations, in each turn.")
@click.option("--turns", default=3, show_default=True, help="Turns.")
@click.option("--emulate-apiserver", is_flag=True, help="The embedded server takes a real one's time for writes.")
def main(nodes: int, count: int, turns: int, emulate_apiserver: bool) -> None:
    """Measure the rates, and print them with their ratio."""
    try:
        with ExitStack() as stack:
            directory = Path(stack.enter_context(TemporaryDirectory(prefix="bench-")))
            server = stack.enter_context(embedded(directory, tls=False, emulate=emulate_apiserver))
            rates = uvloop.run(_run(load(), nodes, count, turns, server.kubeconfig, directory))
    except (WorkloadError, ServerFailed, CommandFailed, RequestRefused, ClientError) as error:
        raise SystemExit(f"bench: {error}") from error
    click.echo(f"{describe().processor}, load {describe().load}; {nodes:,} nodes, {turns} turns of {count:,}")
    for pods, reservations in rates:
        click.echo(f"pods {pods:,.0f}/s, Reservations {reservations:,.0f}/s: {reservations / pods:.2f}")
    click.echo(f"median of the ratios {median(reservations / pods for pods, reservations in rates):.2f}")


async def _run(
    catalog: Catalog, nodes: int, count: int, turns: int, kubeconfig: Path, out: Path
) -> list[tuple[float, float]]:
    """Raises CommandFailed, RequestRefused, ClientError."""
    settings = await source_of(clock=SystemClock(), kubeconfig=str(kubeconfig))()
    transport = await NetworkTransport.open(SystemClock(), kubeconfig=str(kubeconfig))
    scheduler: SchedulerProcess | None = None
    try:
        api = Api(transport)
        workload = replace(
            catalog.workload("SchedulingBasic").scaled(nodes=nodes, pods=1), definitions=["reservations.yaml"]
        )
        await Population(api, catalog, workload).create_ground()
        config = out / "config.json"
        write_config(config, NAME, kubeconfig, PROFILE)
        values = {
            "name": NAME,
            "kubeconfig": str(kubeconfig),
            "config": str(config),
            "port": str(free_port()),
            "server": transport.server,
            "token": settings.authorization.removeprefix("Bearer "),
        }
        scheduler = SchedulerProcess(Command.parse(OURS).arguments(values), out / "scheduler.log")
        await scheduler.idle(SETTLE_WITHIN)
        rates = []
        for turn in range(turns):
            pods = await _rate(api, scheduler, _pods(turn, count), "/api/v1/pods", "spec", count * (turn + 1))
            reservations = await _rate(
                api, scheduler, _reservations(turn, count), RESERVATIONS.path, "status", count * (turn + 1)
            )
            rates.append((pods, reservations))
        return rates
    finally:
        if scheduler is not None:
            await scheduler.stop()
        await transport.close()


async def _rate(
    api: Api, scheduler: SchedulerProcess, manifests: list[Manifest], path: str, part: str, expected: int
) -> float:
    """Objects per second, until so many of the collection have a node."""
    began = time.monotonic()
    await api.create_all(manifests)
    while time.monotonic() - began < BOUND_WITHIN:
        scheduler.check()
        items, _ = await api.list_all(path)
        if sum(bool(orjson.loads(bytes(item)).get(part, {}).get("nodeName")) for item in items) >= expected:
            return len(manifests) / (time.monotonic() - began)
        await asyncio.sleep(POLL)
    raise RequestRefused(f"{path}: not all have a node after {BOUND_WITHIN} s")


def _spec() -> Manifest:
    return {
        "schedulerName": NAME,
        "containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": REQUESTS}}],
    }


def _pods(turn: int, count: int) -> list[Manifest]:
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{turn}-{number}", "namespace": "default"},
            "spec": _spec(),
        }
        for number in range(count)
    ]


def _reservations(turn: int, count: int) -> list[Manifest]:
    return [
        {
            "apiVersion": RESERVATIONS.api_version,
            "kind": RESERVATIONS.name,
            "metadata": {"name": f"reservation-{turn}-{number}"},
            "spec": {
                "template": {"spec": _spec()},
                "owners": [{"labelSelector": {"matchLabels": {"app": f"app-{number}"}}}],
            },
        }
        for number in range(count)
    ]


if __name__ == "__main__":
    main()
