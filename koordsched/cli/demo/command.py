"""The demonstration, from start to end."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import click
from rich.console import Console

from koordsched.api import core
from koordsched.api.decoding import Decoder
from koordsched.cli import INTERRUPTED
from koordsched.cli.demo import claims, cpus, gangs, gpus, loads, reservations
from koordsched.cli.demo.applying import Applier
from koordsched.cli.demo.children import ChildFailed, Children
from koordsched.cli.demo.display import Progress, placements, print_differences, print_pending
from koordsched.cli.demo.expectations import Expectations, differences, load_expectations
from koordsched.cli.demo.observation import Observation, Tally
from koordsched.cli.demo.stage import Stage, StageFailed
from koordsched.cli.endpoint import EndpointError
from koordsched.cli.objectfiles import InputError, Sourced, read_objects
from koordsched.cli.output import console, fail
from koordsched.client.clock import SystemClock
from koordsched.client.errors import ClientError
from koordsched.client.network import NetworkTransport
from koordsched.client.reflector import Reflector
from koordsched.client.transport import Transport
from koordsched.fakecluster.datalog import DataLog

EXAMPLES = Path(__file__).parents[1] / "data" / "examples"
DEFINITIONS = EXAMPLES.parent / "crds"

KINDS = (
    "nodemetrics",
    "noderesourcetopologies",
    "devices",
    "reservations",
    "podgroups",
    "clusternetworktopologies",
)
"""The files of the definitions that the scheduler needs."""

NOT_AS_EXPECTED = 4
"""Exit code when everything worked but the result is not the expected one."""

READY_WITHIN = 60.0
SETTLED_AFTER = 3.0
"""Seconds without a change after which a cluster of another size counts as settled."""
_LOOK_EVERY = 0.1


@dataclass(frozen=True, slots=True)
class Options:
    """The command line."""

    nodes: int
    burst: int
    keep: bool
    port: int
    timeout: float
    data: Path | None


@click.command(
    "demo",
    epilog=f"Exit code: 0 the result is as expected, {NOT_AS_EXPECTED} it is not, 1 something failed.",
)
@click.option("--nodes", type=click.IntRange(1, 20_000), default=100, show_default=True, help="Size of the cluster.")
@click.option("--burst", type=click.IntRange(0), default=1000, show_default=True, help="Pods in the speed measurement.")
@click.option("--keep", is_flag=True, help="Keep everything running until Ctrl-C, to explore with kubectl.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="Port of the API server."
)
@click.option("--timeout", type=float, default=120.0, show_default=True, help="Seconds to wait for the result.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for a log of all writes to the API server: `koordsched fakecluster --data` goes on from there.",
)
def demo(**flags: object) -> None:
    """Start a cluster of hollow nodes and the scheduler, apply example workloads, and show the result.

    With 100 nodes the outcome is checked: how many pods of each workload run, where, and the exact reason of each one
    that must stay pending.
    """
    options = Options(**flags)  # type: ignore[arg-type]  # click has converted each flag to its type
    if options.data is not None and not DataLog(options.data).is_empty:
        fail(f"{options.data} has a log already: `koordsched fakecluster --data {options.data}` goes on from it")
    folder = Path(tempfile.mkdtemp(prefix="koordsched-demo-"))
    try:
        code = asyncio.run(_interruptible(_Demo(options, folder, console())))
    except (ChildFailed, InputError, ClientError, EndpointError) as error:
        fail(f"{error}\n(logs: {folder})")
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == NOT_AS_EXPECTED:
        click.echo(f"logs: {folder}", err=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    raise click.exceptions.Exit(code)


async def _interruptible(run: _Demo) -> int:
    """Ctrl-C and SIGTERM cancel the demonstration, which cleans up after itself."""
    task = asyncio.get_running_loop().create_task(run.run())
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in signals:
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return run.outcome if run.outcome is not None else INTERRUPTED


class _Demo:
    """One run. `outcome`: the exit code, once it is known."""

    def __init__(self, options: Options, folder: Path, out: Console) -> None:
        self._options = options
        self._folder = folder
        self._out = out
        self._kubeconfig = folder / "kubeconfig"
        self._loads: loads.Loads | None = None
        self._requested = 0.0
        self._cpus: cpus.Node | None = None
        self._gpus: gpus.GPUs | None = None
        self._reserved: reservations.Reserved | None = None
        self._claims: claims.Claims | None = None
        self._gangs: gangs.Gangs | None = None
        self.outcome: int | None = None

    async def run(self) -> int:
        """Returns the exit code. Raises ChildFailed, InputError or ClientError."""
        loop = asyncio.get_running_loop()
        expected = load_expectations(EXAMPLES / "expected.yaml")
        async with Children(self._folder) as children:
            with Progress(self._out) as progress:
                await self._start_cluster(children, progress)
                transport = await NetworkTransport.open(SystemClock(), kubeconfig=str(self._kubeconfig))
                try:
                    applier = Applier(transport)
                    zones = await applier.zones()
                    observation = Observation(loop.time, zones)
                    await applier.create(read_objects([str(DEFINITIONS / f"{name}.yaml") for name in KINDS]))
                    await applier.create(read_objects([str(EXAMPLES / "gangs" / "demo" / gangs.TOPOLOGY)]))
                    if loads.BUSY in zones:
                        await loads.until_reported(transport, READY_WITHIN)
                    if cpus.NODE in zones:
                        await cpus.until_reported(transport, READY_WITHIN)
                    if zones.keys() >= {*gpus.NODES}:
                        await gpus.until_reported(transport, READY_WITHIN)
                    stage = Stage(transport, applier, observation, children, self._options.timeout)
                    serving = await self._start_scheduler(children, progress)
                    watching = loop.create_task(_reflector(transport, observation).run())
                    try:
                        found = await self._play(children, progress, stage, expected, serving)
                    finally:
                        watching.cancel()
                finally:
                    await transport.close()
            self.outcome = NOT_AS_EXPECTED if found else 0
            self._report(observation, found, checked=self._options.nodes == expected.nodes)
            if self._options.keep:
                await self._keep(children, serving)
        return self.outcome

    async def _start_cluster(self, children: Children, progress: Progress) -> None:
        template = EXAMPLES / "node-templates" / "demo.yaml"
        cluster = await children.start(
            "fakecluster",
            *("fakecluster", "--nodes", str(self._options.nodes), "--node-template", str(template)),
            *("--port", str(self._options.port), "--kubeconfig-out", str(self._kubeconfig)),
            *(("--data", str(self._options.data)) if self._options.data is not None else ()),
        )
        await cluster.until(lambda: _has_content(self._kubeconfig), READY_WITHIN, "being ready")
        progress.step(f"cluster    {self._options.nodes} hollow nodes, an API server in process {cluster.process.pid}")

    async def _start_scheduler(self, children: Children, progress: Progress) -> str:
        """Returns where it serves its endpoints."""
        port = _free_port()
        scheduler = await children.start(
            "scheduler",
            *("run", "--kubeconfig", str(self._kubeconfig), "--config", str(EXAMPLES / "demo-scheduler.yaml")),
            *("--enable-network-topology-manager", "--bind-address", "127.0.0.1", "--secure-port", str(port)),
        )
        progress.step(f"scheduler  koordsched run, process {scheduler.process.pid}")
        return f"https://127.0.0.1:{port}"

    async def _play(
        self,
        children: Children,
        progress: Progress,
        stage: Stage,
        expected: Expectations,
        serving: str,
    ) -> list[str]:
        """Applies the workloads, waits for the outcome, then what is played in steps, then the burst; returns what is
        not as expected."""
        applier, observation = stage.applier, stage.observation
        count = await applier.create(read_objects([str(EXAMPLES / "workloads")]))
        progress.step(f"workloads  {count} objects created")
        checked = self._options.nodes == expected.nodes
        quiet = _Quiet(observation)

        def settled() -> bool:
            return not differences(expected, observation.tallies()) if checked else quiet.is_it()

        await self._watch(children, progress, observation, settled)
        found = differences(expected, observation.tallies()) if checked else []
        if checked and not found:
            self._loads = await asyncio.to_thread(loads.ask, serving, str(self._kubeconfig))
            self._requested = observation.requested_cpu(loads.BUSY)
            self._cpus = await asyncio.to_thread(cpus.ask, serving, str(self._kubeconfig))
            self._gpus = await asyncio.to_thread(gpus.ask, serving, str(self._kubeconfig))
            try:
                progress.step("steps      a Reservation, claims of devices, and gangs")
                self._reserved = await reservations.play(stage, EXAMPLES)
                self._claims = await claims.play(stage, EXAMPLES)
                self._gangs = await gangs.play(stage, EXAMPLES, observation.zones)
            except StageFailed as failed:
                found.append(str(failed))
        if self._options.burst and not found:
            await applier.create([_burst(self._options.burst)])
            # Waits until they run, so that the tables show a settled cluster; the measurement ends with the last
            # binding.
            await self._watch(
                children,
                progress,
                observation,
                lambda: observation.tallies().get(BURST, Tally()).running == self._options.burst,
            )
            placed, _ = observation.placing(BURST)
            if placed != self._options.burst:
                found.append(f"{BURST}: {placed} placed, not {self._options.burst}")
        return found

    async def _watch(
        self, children: Children, progress: Progress, observation: Observation, done: Callable[[], bool]
    ) -> None:
        """Shows progress until it is done, or time is up."""
        now = asyncio.get_running_loop().time
        start = now()
        while not done() and now() - start < self._options.timeout:
            children.check()
            progress.update(now() - start, observation.tallies())
            await asyncio.sleep(_LOOK_EVERY)
        progress.update(now() - start, observation.tallies())

    def _report(self, observation: Observation, found: list[str], *, checked: bool) -> None:
        out, tallies = self._out, observation.tallies()
        out.print()
        out.print(placements(tallies))
        out.print()
        print_pending(out, tallies)
        if self._loads is not None:
            out.print()
            loads.print_loads(out, self._loads, self._requested)
        if self._cpus is not None:
            out.print()
            cpus.print_cpus(out, self._cpus, observation.requested_by(cpus.REFUSED))
        if self._gpus is not None:
            out.print()
            gpus.print_gpus(out, self._gpus)
        if self._reserved is not None:
            out.print()
            reservations.print_reserved(out, self._reserved)
        if self._claims is not None:
            out.print()
            claims.print_claims(out, self._claims)
        if self._gangs is not None:
            out.print()
            gangs.print_gangs(out, self._gangs)
        out.print()
        placed, seconds = observation.placing(BURST)
        if placed:
            speed = f" ({placed / seconds:,.0f} pods/s)" if seconds else ""
            out.print(f"{BURST}: {placed} pods created, placed and bound in {seconds:.2f} s{speed}")
        total = sum(tally.placed for tally in tallies.values())
        pending = sum(tally.pods for tally in tallies.values()) - total
        if found:
            print_differences(out, found)
        elif checked:
            out.print(f"{total} pods placed, {pending} pending, each for the reason expected.")
        else:
            out.print(f"{total} pods placed, {pending} pending. (The outcome is checked with 100 nodes only.)")

    async def _keep(self, children: Children, serving: str) -> None:
        """Until Ctrl-C, or until a process ends."""
        kubectl = f"kubectl --kubeconfig {self._kubeconfig}"
        koordsched = "koordsched" if shutil.which("koordsched") else f"{sys.executable} -m koordsched"
        asking = f"--server {serving} --kubeconfig {self._kubeconfig} --insecure-skip-tls-verify"
        self._out.print(
            f"\nStill running; Ctrl-C ends it. Look around with:\n"
            f"  {kubectl} get pods -n demo -o wide\n"
            f"  {kubectl} describe pod impossible -n demo\n"
            f"  {kubectl} scale -n demo deployment/web --replicas 30\n"
            f"  {koordsched} explain demo/impossible {asking}\n"
            f"  {koordsched} load nodes {asking}",
            soft_wrap=True,
        )
        while True:
            children.check()
            await asyncio.sleep(_LOOK_EVERY)


BURST = "Deployment demo/burst"


class _Quiet:
    """Whether nothing has changed for a while."""

    def __init__(self, observation: Observation) -> None:
        self._observation = observation
        self._now = asyncio.get_running_loop().time
        self._changes, self._since = -1, 0.0

    def is_it(self) -> bool:
        if self._observation.changes != self._changes:
            self._changes, self._since = self._observation.changes, self._now()
        return self._now() - self._since > SETTLED_AFTER


def _burst(replicas: int) -> Sourced:
    (burst,) = read_objects([str(EXAMPLES / "burst.yaml")])
    burst.obj["spec"]["replicas"] = replicas
    return burst


def _reflector(transport: Transport, observation: Observation) -> Reflector[core.Pod]:
    return Reflector(transport, "/api/v1/pods", Decoder(core.Pod), observation, clock=SystemClock(), rng=Random())


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
