"""`python -m bench.profiling`: runs a workload on the embedded cluster and shows where the time of one pod goes."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import uvloop

from bench.api import Api, RequestRefused
from bench.population import Population
from bench.processes import Command, CommandFailed
from bench.profiling.breakdown import Breakdown
from bench.results import Result
from bench.server import ServerFailed, embedded
from bench.trial import Plan, Server, Trial
from bench.workloads import Catalog, Workload, WorkloadError, load
from koordsched.cli.output import console
from koordsched.client.clock import SystemClock
from koordsched.client.network import NetworkTransport
from koordsched.client.settings import source_of


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--workload", default="SchedulingBasic", show_default=True)
@click.option("--nodes", type=int, default=0, help="Nodes, instead of the workload's number.")
@click.option("--pods", type=int, default=0, help="Measured pods, instead of the workload's number.")
@click.option("--emulate-apiserver", is_flag=True, help="The embedded server takes a real one's time for writes.")
@click.option("--warm-up", type=float, default=1.5, show_default=True, help="Seconds of CPU time to leave out.")
def main(workload: str, nodes: int, pods: int, emulate_apiserver: bool, warm_up: float) -> None:
    """Profile the scheduler from the first binding to the last event."""
    try:
        catalog = load()
        chosen = catalog.workload(workload).scaled(nodes, pods)
        with TemporaryDirectory(prefix="bench-") as directory:
            out = Path(directory)
            samples = out / "samples.json"
            command = Command(
                "koordsched",
                shlex.join([sys.executable, "-m", "bench.profiling.sampler", str(samples), str(warm_up), "--"])
                + " --config {config} --secure-port 0",
            )
            with embedded(out, tls=True, emulate=emulate_apiserver) as server:
                result = uvloop.run(_run(catalog, workload, chosen, command, server.kubeconfig, out))
            breakdown = Breakdown.load(samples)
    except (WorkloadError, ServerFailed, CommandFailed, RequestRefused) as error:
        raise SystemExit(f"bench: {error}") from error
    terminal = console()
    terminal.print(breakdown.packages(result.cpu_ms_per_pod * 1e3))
    terminal.print(breakdown.functions(result.cpu_ms_per_pod * 1e3))
    terminal.print(
        f"{result.bound:,} of {result.pods:,} pods bound, {result.pods_per_second:,.0f} pods/s under the sampler"
    )
    if result.error:
        raise SystemExit(f"bench: {result.error}")


async def _run(
    catalog: Catalog, name: str, workload: Workload, command: Command, kubeconfig: Path, out: Path
) -> Result:
    settings = await source_of(clock=SystemClock(), kubeconfig=str(kubeconfig))()
    transport = await NetworkTransport.open(SystemClock(), kubeconfig=str(kubeconfig))
    try:
        api = Api(transport)
        population = Population(api, catalog, workload)
        await population.create_ground()
        server = Server(kubeconfig, transport.server, settings.authorization.removeprefix("Bearer "))
        trial = Trial(api, server, catalog, name, workload, population, out)
        return await trial.run(command, 1, Plan(0.0, 60.0))
    finally:
        await transport.close()


if __name__ == "__main__":
    main()
