"""`python -m bench`: schedulers, one after the other, on the same server with the same workload."""

from __future__ import annotations

import shlex
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import uvloop

from bench.api import Api, RequestRefused
from bench.machine import describe, version_of
from bench.population import Population
from bench.processes import Command, CommandFailed
from bench.report import table, write
from bench.results import Report
from bench.server import OURS, ServerFailed, embedded
from bench.trial import Plan, Server, Trial, yardstick
from bench.workloads import Catalog, Workload, WorkloadError, load
from koordsched.cli.output import console
from koordsched.client.clock import SystemClock
from koordsched.client.errors import ClientError
from koordsched.client.network import NetworkTransport
from koordsched.client.settings import source_of

CEILING = yardstick(events=True).name
"""What schedulers are compared with."""


@dataclass(frozen=True)
class Options:
    """The command line, checked."""

    commands: list[Command]
    workloads: dict[str, Workload]
    plan: Plan
    rounds: int
    out: Path


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="API server to use; what the benchmark makes there it also deletes. "
              "Default: an embedded one.")  # fmt: skip
@click.option("--scheduler", "schedulers", multiple=True, metavar="NAME=COMMAND",
              help="Scheduler to measure; may be repeated. {name}, {kubeconfig}, {config}, {config_all} and {port} are "
              "filled in; with {config_all} every node is scored for every pod. Default: koordsched.")  # fmt: skip
@click.option("--workload", "names", multiple=True, default=("SchedulingBasic",), show_default=True,
              help="Workload; may be repeated; 'all' for all.")  # fmt: skip
@click.option("--nodes", type=int, default=0, help="Nodes, instead of the workload's number.")
@click.option("--pods", type=int, default=0, help="Measured pods, instead of the workload's number.")
@click.option("--rate", type=float, default=0.0, metavar="PODS/S",
              help="Pods arrive at this rate while the scheduler runs; -1: as fast as they can be created. "
              "Default: they wait when it starts.")  # fmt: skip
@click.option("--small-pods", is_flag=True,
              help="Pods without what real ones have and schedulers skip (environment, managed fields, volumes), as "
              "in scheduler_perf.")  # fmt: skip
@click.option("--yardstick/--no-yardstick", default=True, show_default=True,
              help="Measure the bare binder, with and without events, as the ceiling.")  # fmt: skip
@click.option("--ceiling-only", is_flag=True, help="Of the two, only the one with events.")
@click.option("--rounds", type=int, default=1, show_default=True, help="Run everything so often, in turns.")
@click.option("--tls/--no-tls", default=True, show_default=True, help="HTTPS on the embedded server.")
@click.option("--emulate-apiserver", is_flag=True, help="The embedded server takes a real one's time for writes.")
@click.option("--patience", type=float, default=60.0, show_default=True, help="Seconds without a binding to give up.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("bench/out"), show_default=True,
              help="Directory for results.json, charts and logs.")  # fmt: skip
def main(
    kubeconfig: Path | None,
    schedulers: tuple[str, ...],
    names: tuple[str, ...],
    nodes: int,
    pods: int,
    rate: float,
    small_pods: bool,
    yardstick: bool,
    ceiling_only: bool,
    rounds: int,
    tls: bool,
    emulate_apiserver: bool,
    patience: float,
    out: Path,
) -> None:
    """Measure schedulers on an API server, from outside: all figures come from its watch and from /proc."""
    try:
        catalog = load()
        options = Options(
            commands=_commands(schedulers, with_yardstick=yardstick, ceiling_only=ceiling_only),
            workloads=_workloads(catalog, names, nodes, pods),
            plan=Plan(rate, patience, full_size=not small_pods),
            rounds=rounds,
            out=out,
        )
        out.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            if kubeconfig is None:
                directory = Path(stack.enter_context(TemporaryDirectory(prefix="bench-")))
                kubeconfig = stack.enter_context(embedded(directory, tls=tls, emulate=emulate_apiserver)).kubeconfig
                server = f"embedded{', TLS' if tls else ''}{', emulated service times' if emulate_apiserver else ''}"
            else:
                server = kubeconfig.name
            report = uvloop.run(_run(options, catalog, kubeconfig.resolve(), server))
    except (WorkloadError, ServerFailed, CommandFailed, RequestRefused, ClientError, ValueError) as error:
        raise SystemExit(f"bench: {error}") from error
    for path in write(report, out, CEILING):
        click.echo(f"wrote {path}")
    if any(result.error for result in report.results):
        raise SystemExit(1)


def _commands(schedulers: tuple[str, ...], *, with_yardstick: bool, ceiling_only: bool) -> list[Command]:
    """The commands to measure. Raises ValueError."""
    beside = [yardstick(events=events) for events in (False, True) if with_yardstick and (events or not ceiling_only)]
    return [*beside, *(Command.parse(text) for text in schedulers or (OURS,))]


def _workloads(catalog: Catalog, names: tuple[str, ...], nodes: int, pods: int) -> dict[str, Workload]:
    chosen = list(catalog.workloads) if "all" in names else list(names)
    return {name: catalog.workload(name).scaled(nodes=nodes, pods=pods) for name in chosen}


async def _run(options: Options, catalog: Catalog, kubeconfig: Path, server: str) -> Report:
    terminal = console()
    settings = await source_of(clock=SystemClock(), kubeconfig=str(kubeconfig))()
    transport = await NetworkTransport.open(SystemClock(), kubeconfig=str(kubeconfig))
    try:
        api = Api(transport)
        report = Report(
            describe(),
            server,
            await api.version(),
            {c.name: version for c in options.commands if (version := version_of(shlex.split(c.template)[0]))},
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            [],
        )
        known = Server(kubeconfig, transport.server, settings.authorization.removeprefix("Bearer "))
        number = 0
        for name, workload in options.workloads.items():
            population = Population(api, catalog, workload, full_size=options.plan.full_size)
            await population.clear()
            await population.clear_ground()
            await population.create_ground()
            if strangers := await population.strangers():
                terminal.print(f"{name}: {strangers:,} nodes on this server are not the benchmark's", style="yellow")
            for _ in range(options.rounds):
                for command in options.commands:
                    number += 1
                    terminal.print(f"{name}: {command.name} ...", style="dim")
                    trial = Trial(api, known, catalog, name, workload, population, options.out)
                    report.results.append(await trial.run(command, number, options.plan))
            results = [result for result in report.results if result.workload == name]
            terminal.print(table(name, results, CEILING))
            # What a long run has found so far is not lost when it is ended.
            write(report, options.out, CEILING)
        await population.clear()
    finally:
        await transport.close()
    return report


if __name__ == "__main__":
    main()
