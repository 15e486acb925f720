"""`python -m bench.shadow`: what a trial beside another scheduler costs, from outside.

Pods arrive at a rate on an embedded server, and the bare binder, or another scheduler, binds them. `koordsched shadow`
watches and decides each of them, too. Beside the bare binder, which takes the nodes in turns, most decisions differ,
and what both nodes score is looked up, which costs the most.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import msgspec
import uvloop

from bench.api import Api, RequestRefused
from bench.machine import describe
from bench.observer import Observer
from bench.population import SCHEDULER, Population
from bench.processes import Command, CommandFailed, SchedulerProcess, free_port, write_config
from bench.server import KOORDSCHED, OURS, ServerFailed, embedded
from bench.trial import MEASURED, read_metrics, yardstick
from bench.watching import WatchLost
from bench.workloads import Catalog, Workload, WorkloadError, load
from koordsched.client.clock import SystemClock
from koordsched.client.errors import ClientError
from koordsched.client.network import NetworkTransport
from koordsched.client.settings import source_of
from koordsched.shadow.tally import Report

SETTLE_WITHIN = 60.0
BOUND_WITHIN = 120.0
"""Seconds for processes to come to rest, and for the last pods to be bound."""

NAME = f"{SCHEDULER}there"


class Measured(msgspec.Struct):
    """CPU of the trial from the first pod on, the rate at which pods were bound, and what the trial reported."""

    cpu_ms_per_pod: float
    pods_per_second: float
    startup_cpu_seconds: float
    peak_rss_mib: int
    report: Report


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--workload", "name", default="SchedulingBasic", show_default=True, help="Workload.")
@click.option("--nodes", default=5_000, show_default=True, help="Nodes.")
@click.option("--pods", default=10_000, show_default=True, help="Pods that arrive.")
@click.option("--rate", default=500.0, show_default=True, metavar="PODS/S", help="Rate at which they do.")
@click.option("--beside", type=click.Choice(["binder", "koordsched"]), default="binder", show_default=True,
              help="What binds them.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Directory for logs and shadow.json.")
def main(name: str, nodes: int, pods: int, rate: float, beside: str, out: Path | None) -> None:
    """Measure what `koordsched shadow` takes per pod."""
    try:
        with ExitStack() as stack:
            directory = Path(stack.enter_context(TemporaryDirectory(prefix="bench-")))
            kubeconfig = stack.enter_context(embedded(directory, tls=False, emulate=False)).kubeconfig
            where = out or directory
            where.mkdir(parents=True, exist_ok=True)
            workload = load().workload(name).scaled(nodes=nodes, pods=pods)
            command = yardstick(events=False) if beside == "binder" else Command.parse(OURS)
            measured = uvloop.run(_run(load(), workload, rate, command, kubeconfig, where))
    except (WorkloadError, ServerFailed, CommandFailed, RequestRefused, WatchLost, ClientError) as error:
        raise SystemExit(f"bench: {error}") from error
    if out is not None:
        (out / "shadow.json").write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=1))
    report = measured.report
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in report.kinds.items() if count)
    median = (report.deciding.median or 0.0) * 1e6
    click.echo(f"{describe().processor}, load {describe().load}")
    click.echo(f"{report.decisions:,} decisions beside the {beside} on {nodes:,} nodes: {kinds}")
    click.echo(
        f"{measured.cpu_ms_per_pod:.3f} ms of CPU per pod, {measured.pods_per_second:.0f} pods/s "
        f"(one core: {1e3 / measured.cpu_ms_per_pod:,.0f} pods/s); a decision {median:.0f} µs; "
        f"start {measured.startup_cpu_seconds:.1f} s of CPU; {measured.peak_rss_mib} MiB"
    )


async def _run(
    catalog: Catalog, workload: Workload, rate: float, command: Command, kubeconfig: Path, out: Path
) -> Measured:
    """Raises CommandFailed, RequestRefused, WatchLost, ClientError."""
    settings = await source_of(clock=SystemClock(), kubeconfig=str(kubeconfig))()
    transport = await NetworkTransport.open(SystemClock(), kubeconfig=str(kubeconfig))
    shadow_log = out / "shadow.log"
    processes: list[SchedulerProcess] = []
    try:
        api = Api(transport)
        population = Population(api, catalog, workload)
        await population.create_ground()
        await population.create_init(NAME, f"{NAME}-nobody")
        config = out / "beside.json"
        write_config(config, NAME, kubeconfig, workload.profile)
        values = {
            "name": NAME,
            "kubeconfig": str(kubeconfig),
            "config": str(config),
            "port": str(free_port()),
            "server": transport.server,
            "token": settings.authorization.removeprefix("Bearer "),
        }
        port = free_port()
        arguments = [*KOORDSCHED, "shadow", "--kubeconfig", str(kubeconfig), "--scheduler-name", NAME, "-o", "json"]
        arguments += ["--metrics", str(port)]
        shadow = SchedulerProcess(arguments, shadow_log)
        processes += [shadow, SchedulerProcess(command.arguments(values), out / "beside.log")]
        for process in processes:
            await process.idle(SETTLE_WITHIN)
            process.check()
        began, before = time.monotonic(), shadow.cpu_seconds
        _, version = await api.list_all("/api/v1/namespaces")
        pods = population.measured(MEASURED.removesuffix("-"), NAME)
        async with Observer(api.transport, MEASURED, version) as observer:
            await population.create_at(pods, rate)
            end = time.monotonic() + BOUND_WITHIN
            while time.monotonic() < end:
                if len(observer.bound) == len(pods) and await asyncio.to_thread(_decisions, port) == len(pods):
                    break
                await observer.progress(1.0)
                for process in processes:
                    process.check()
        spent = await shadow.idle(SETTLE_WITHIN) - before
        bound = observer.bound
        await shadow.stop()
        shadow.check()
    finally:
        for process in processes:
            await process.stop()
        await transport.close()
    return Measured(
        cpu_ms_per_pod=spent / len(bound) * 1e3,
        pods_per_second=len(bound) / (max(bound.values()) - began),
        startup_cpu_seconds=before,
        peak_rss_mib=shadow.peak_rss_mib,
        # After the notes.
        report=msgspec.json.decode(b"{" + shadow_log.read_bytes().partition(b"{")[2], type=Report),
    )


def _decisions(port: int) -> float:
    metrics = read_metrics(port)
    return sum(value for name, value in metrics.items() if name.startswith("koordsched_shadow_decisions_total"))


if __name__ == "__main__":
    main()
