"""`python -m bench.startup`: from process start to the first binding, next to listing and decoding alone; and what it
takes to list anew."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import msgspec
import orjson
import uvloop

from bench.api import Api, RequestRefused, collection
from bench.machine import Machine, describe
from bench.manifests import MARK, Manifest
from bench.observer import Observer
from bench.population import SCHEDULER, Population
from bench.processes import Command, CommandFailed, SchedulerProcess, free_port, write_config
from bench.runningpods import encoded
from bench.server import OURS, ServerFailed, embedded
from bench.startup.lister import Listing
from bench.trial import BLOCK, read_metrics
from bench.watching import WatchLost
from bench.workloads import Nodes, Pods, Workload, load
from koordsched.client.clock import SystemClock
from koordsched.client.errors import ClientError
from koordsched.client.network import NetworkTransport

BOUND_WITHIN = 600.0
AT_REST_WITHIN = 120.0
RELISTED_WITHIN = 600.0
"""Seconds until the first pod must be bound, until the process must have come to rest after that, and until everything
must have been listed anew."""

PROBE = "probe"
_PROBE_PATH = f"/api/v1/namespaces/default/pods/{PROBE}"
_PODS_LISTED = 'koordsched_reflector_restarts_total{resource="/api/v1/pods"}'
OWNER: Manifest = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "benchmark-owner", "namespace": "default", "labels": MARK},
}


@dataclass(frozen=True)
class Given:
    """The command line, checked. `leave_clean`: the server lives on, so what was made there has to go.

    `forget_history`: makes all clients of the server list anew; None if that is not asked for.
    """

    command: Command
    kubeconfig: Path
    nodes: int
    pods: int
    unique_labels: bool
    full_size: bool
    rounds: int
    out: Path
    leave_clean: bool
    forget_history: Callable[[], None] | None


class Relist(msgspec.Struct):
    """What it takes to list everything anew, with the scheduler at work.

    `seconds`: until a pod was bound that can only be known once all pods have been listed. Milliseconds: the longest
    times between two turns of the loop, on the wall and in CPU time of its thread, and the longest pause for garbage
    collection of the last minute or two; before it and at its end.
    """

    seconds: float
    cpu_seconds: float
    block_ms: tuple[float, float]
    block_cpu_ms: tuple[float, float]
    gc_pause_ms: tuple[float, float]
    peak_rss_mib: int

    @property
    def text(self) -> str:
        """In words."""
        return (
            f"listed anew in {self.seconds:.1f} s ({self.cpu_seconds:.1f} s CPU); longest block {self.block_ms[1]:.0f} "
            f"({self.block_cpu_ms[1]:.0f}) ms, before {self.block_ms[0]:.0f} ({self.block_cpu_ms[0]:.0f}) ms; longest "
            f"collection {self.gc_pause_ms[1]:.0f} ms; peak memory {self.peak_rss_mib:,} MiB"
        )


class Startup(msgspec.Struct):
    """One start. Times are in seconds since the process was started, `x` in those of the listing before it."""

    listing: Listing
    first_binding: float
    x: float
    cpu_seconds: float
    peak_rss_mib: int
    relist: Relist | None = None


class Startups(msgspec.Struct):
    """Everything of one invocation."""

    machine: Machine
    scheduler: str
    nodes: int
    pods: int
    unique_labels: bool
    full_size: bool
    creating_seconds: float
    starts: list[Startup]

    @property
    def cluster(self) -> str:
        """In words."""
        kind = ("" if self.full_size else " small") + " pods" + (" with unique labels" if self.unique_labels else "")
        return f"{self.nodes:,} nodes, {self.pods:,}{kind}"

    @property
    def row(self) -> str:
        """The start with the median ratio, as a row for the documentation."""
        start = sorted(self.starts, key=lambda each: each.x)[len(self.starts) // 2]
        return (
            f"| {self.cluster} | {start.listing.seconds:.1f} s | {start.first_binding:.1f} s | {start.x:.2f} | "
            f"{start.peak_rss_mib:,} MiB |"
        )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="API server to use. Default: an embedded one.")  # fmt: skip
@click.option("--scheduler", default=OURS, metavar="NAME=COMMAND",
              help="Scheduler to start, as for `python -m bench`. Default: koordsched.")  # fmt: skip
@click.option("--nodes", default=5_000, show_default=True)
@click.option("--pods", default=150_000, show_default=True, help="Pods on the nodes already.")
@click.option("--unique-labels", is_flag=True, help="Every pod has a label of its own, as in StatefulSets.")
@click.option("--small-pods", is_flag=True, help="Pods without what schedulers skip: they take as much memory in "
              "a scheduler, and a quarter in the server.")  # fmt: skip
@click.option(
    "--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Starts, each after a listing."
)
@click.option("--relist", is_flag=True, help="Afterwards have the embedded server end all watches with 410, and "
              "measure how long listing anew blocks the event loop of koordsched.")  # fmt: skip
@click.option("--tls/--no-tls", default=True, show_default=True, help="HTTPS on the embedded server.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("bench/out"), show_default=True,
              help="Directory for startup.json and logs.")  # fmt: skip
def main(
    kubeconfig: Path | None,
    scheduler: str,
    nodes: int,
    pods: int,
    unique_labels: bool,
    small_pods: bool,
    rounds: int,
    relist: bool,
    tls: bool,
    out: Path,
) -> None:
    """Measure how long a scheduler takes from process start to the first binding, and its memory."""
    out.mkdir(parents=True, exist_ok=True)
    try:
        command = Command.parse(scheduler)
        with ExitStack() as stack:
            leave_clean, forget_history = kubeconfig is not None, None
            if kubeconfig is None:
                directory = Path(stack.enter_context(TemporaryDirectory(prefix="bench-")))
                server = stack.enter_context(embedded(directory, tls=tls, emulate=False))
                kubeconfig = server.kubeconfig
                forget_history = server.forget_history if relist else None
            elif relist:
                raise ValueError("--relist is for the embedded server: no other can be told to forget its history")
            given = Given(
                command,
                kubeconfig.resolve(),
                nodes,
                pods,
                unique_labels,
                not small_pods,
                rounds,
                out,
                leave_clean,
                forget_history,
            )
            measured = uvloop.run(_run(given))
    except (ValueError, ServerFailed, CommandFailed, RequestRefused, WatchLost, ClientError) as error:
        raise SystemExit(f"bench: {error}") from error
    path = out / "startup.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=1))
    click.echo(measured.row)
    click.echo(f"wrote {path}")


async def _run(given: Given) -> Startups:
    transport = await NetworkTransport.open(SystemClock(), kubeconfig=str(given.kubeconfig))
    try:
        api = Api(transport)
        workload = Workload(
            nodes=[Nodes(count=given.nodes, zones=["a", "b", "c"])], measure=Pods(kind="basic", count=0)
        )
        population = Population(api, load(), workload)
        await population.clear()
        await population.clear_ground()
        await population.create_ground()
        began = time.monotonic()
        await api.create_encoded("/api/v1/namespaces/default/pods", await _pods(api, given))
        taken = round(time.monotonic() - began, 1)
        result = Startups(
            describe(),
            given.command.name,
            given.nodes,
            given.pods,
            given.unique_labels,
            given.full_size,
            taken,
            [],
        )
        click.echo(f"{result.cluster}; created in {taken:,.0f} s")
        for number in range(given.rounds):
            start = await _start(api, population, given, f"{SCHEDULER}{number}")
            result.starts.append(start)
            click.echo(
                f"listed and decoded {start.listing.objects:,} objects ({start.listing.mebibytes:,.0f} MiB) in "
                f"{start.listing.seconds:.2f} s ({start.listing.cpu_seconds:.2f} s CPU); first binding after "
                f"{start.first_binding:.2f} s ({start.cpu_seconds:.2f} s CPU), {start.x:.2f}x; "
                f"peak memory {start.peak_rss_mib:,} MiB"
            )
            if start.relist is not None:
                click.echo(start.relist.text)
        if given.leave_clean:
            await population.clear()
            await population.clear_ground()
            await api.delete(f"{collection(OWNER)}/{OWNER['metadata']['name']}")
    finally:
        await transport.close()
    return result


async def _pods(api: Api, given: Given) -> Iterator[bytes]:
    await api.create(OWNER)
    owner = orjson.loads(await api.get(f"{collection(OWNER)}/{OWNER['metadata']['name']}"))["metadata"]
    reference = {key: OWNER[key] for key in ("apiVersion", "kind")} | {"name": owner["name"], "uid": owner["uid"]}
    reference["controller"] = True
    names = [f"node-{row}" for row in range(given.nodes)]
    return encoded(
        names,
        given.pods,
        owner=reference,
        unique_labels=given.unique_labels,
        stored=False,
        full_size=given.full_size,
    )


async def _start(api: Api, population: Population, given: Given, scheduler: str) -> Startup:
    """One listing, then one start, and another listing of that scheduler if it is asked for."""
    listed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "bench.startup.lister", str(given.kubeconfig)],
        capture_output=True,
        text=True,
        timeout=BOUND_WITHIN,
    )
    if listed.returncode:
        raise CommandFailed(f"the lister ended with code {listed.returncode}: {listed.stderr.strip()[-300:]}")
    listing = msgspec.json.decode(listed.stdout, type=Listing)
    await api.create(population.probe(scheduler))
    config, log, port = given.out / f"{scheduler}.json", given.out / f"{scheduler}.log", free_port()
    write_config(config, scheduler, given.kubeconfig, {})
    values = {"name": scheduler, "kubeconfig": str(given.kubeconfig), "config": str(config), "port": str(port)}
    arguments = given.command.arguments(values)
    _, version = await api.list_all("/api/v1/namespaces")
    process = SchedulerProcess(arguments, log)
    relist: Relist | None = None
    try:
        moment = await _probe_bound(api, process, version, BOUND_WITHIN)
        cpu = process.cpu_at(moment)
        await process.idle(AT_REST_WITHIN)
        peak = process.peak_rss_mib
        await api.delete(_PROBE_PATH)
        if given.forget_history is not None:
            await process.idle(AT_REST_WITHIN)
            relist = await _relist(api, population.probe(scheduler), process, port, given.forget_history)
    finally:
        await process.stop()
    taken = moment - process.started
    return Startup(
        listing,
        first_binding=round(taken, 3),
        x=round(taken / listing.seconds, 3),
        cpu_seconds=round(cpu, 2),
        peak_rss_mib=peak,
        relist=relist,
    )


async def _probe_bound(api: Api, process: SchedulerProcess, version: str, within: float) -> float:
    """Waits until the probe is bound; when that was. `version`: of a moment before. Raises CommandFailed."""
    began = time.monotonic()
    async with Observer(api.transport, PROBE, version) as observer:
        while PROBE not in observer.bound:
            process.check()
            await observer.progress(1.0)
            if time.monotonic() - began > within:
                raise CommandFailed(f"the probe was not bound within {within:g} s")
        return observer.bound[PROBE]


async def _relist(
    api: Api, probe: Manifest, process: SchedulerProcess, port: int, forget_history: Callable[[], None]
) -> Relist:
    """Has everything listed anew. Raises CommandFailed if the scheduler does not do that."""
    before = await asyncio.to_thread(read_metrics, port)
    cpu, began = process.cpu_seconds, time.monotonic()
    forget_history()
    while not (await asyncio.to_thread(read_metrics, port)).get(_PODS_LISTED):
        process.check()
        if time.monotonic() - began > AT_REST_WITHIN:
            raise CommandFailed(f"the scheduler does not list anew, or does not say so in {_PODS_LISTED}")
        await asyncio.sleep(0.1)
    # The probe is in the last page of the listing, or comes too late for it.
    _, version = await api.list_all("/api/v1/namespaces")
    await api.create(probe)
    moment = await _probe_bound(api, process, version, RELISTED_WITHIN)
    await process.idle(AT_REST_WITHIN)
    after = await asyncio.to_thread(read_metrics, port)
    await api.delete(_PROBE_PATH)

    def both(name: str) -> tuple[float, float]:
        return round(before.get(name, 0.0) * 1e3, 1), round(after.get(name, 0.0) * 1e3, 1)

    return Relist(
        seconds=round(moment - began, 2),
        cpu_seconds=round(process.cpu_at(moment) - cpu, 2),
        block_ms=both(f'{BLOCK}{{clock="wall"}}'),
        block_cpu_ms=both(f'{BLOCK}{{clock="cpu"}}'),
        gc_pause_ms=both("koordsched_gc_pause_max_seconds"),
        peak_rss_mib=process.peak_rss_mib,
    )


if __name__ == "__main__":
    main()
