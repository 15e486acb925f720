"""`koordsched shadow`: a trial beside the scheduler of a cluster, which writes nothing."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from random import Random
from typing import Any

import click
import uvloop

from koordsched import config
from koordsched.cli.clusteraccess import ClusterAccess
from koordsched.cli.flag_types import duration
from koordsched.cli.objectfiles import InputError
from koordsched.cli.offline import load_config
from koordsched.cli.output import STRUCTURED, console, counted, fail, output_option, print_notes, print_structured
from koordsched.cli.shadow_output import print_report
from koordsched.cli.standby import standby
from koordsched.cli.state_options import cluster_options
from koordsched.client.clock import SystemClock
from koordsched.config.defaults import DEFAULT_SCHEDULER_NAME
from koordsched.config.duration import Duration
from koordsched.observability.probes import metrics_endpoint
from koordsched.observability.server import EndpointServer, Listener
from koordsched.observability.servingtls import ServingError
from koordsched.shadow.metrics import ShadowMetrics
from koordsched.shadow.shadow import Shadow
from koordsched.shadow.tally import Report

LOOK_EVERY = 5.0
"""Seconds between two looks at the pods that wait."""


class _Address(click.ParamType[tuple[str, int]]):
    """HOST:PORT, or PORT alone on the local host."""

    name = "[HOST:]PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        host, _, port = value.rpartition(":")
        if not port.isdecimal() or int(port) > 65535:
            self.fail(f"{value!r} is not of the form 127.0.0.1:9090", param, ctx)
        return host.strip("[]") or "127.0.0.1", int(port)


@click.command("shadow")
@cluster_options
@click.option(
    "--scheduler-name",
    default=DEFAULT_SCHEDULER_NAME,
    show_default=True,
    help="The scheduler whose decisions are compared: the schedulerName of its pods.",
)
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    help="The configuration that decides here: its profile of that name, or its only one.  [default: kube-scheduler's]",
)
@click.option("--for", "limit", type=duration, metavar="DURATION", help="End after this time, such as 30m.")
@click.option(
    "--interval",
    type=click.FloatRange(0),
    help="Seconds between two reports; 0: one at the end.  [default: 10; with -o json or yaml 0]",
)
@click.option("--metrics", type=_Address(), help="Serve /metrics for Prometheus here, without TLS.")
@click.option(
    "--top", type=click.IntRange(0), default=5, show_default=True, help="Table: differences to show with their scores."
)
@output_option
def shadow(
    kubeconfig: str | None,
    context: str | None,
    scheduler_name: str,
    config_file: str | None,
    limit: Duration | None,
    interval: float | None,
    metrics: tuple[str, int] | None,
    top: int,
    output: str,
) -> None:
    """Watch a cluster that another scheduler serves, and say what this one would have decided.

    Each time a pod gets a node, it is decided here, too, on the state just before: on the same node or one as good, or
    elsewhere, and why. Also: pods that wait although there would be a node for them. Needs to list and watch, writes
    nothing. Ends after --for, or by Ctrl-C, with a last report.

    \b
    Half an hour beside kube-scheduler, with its default plugins:
      koordsched shadow --for 30m
    """
    every = interval if interval is not None else 0.0 if output in STRUCTURED else 10.0

    shown = False

    def show(report: Report) -> None:
        nonlocal shown
        if output in STRUCTURED:
            print_structured(report, output)
            return
        out = console(output)
        if out.is_terminal:
            out.clear()
        elif shown:
            out.print()
        shown = True
        print_report(out, report, top)

    try:
        resolved, notes = load_config(config_file, scheduler_name=scheduler_name)
        resolved = only_profile(resolved, scheduler_name)
        if resolved.extenders:
            notes = [*notes, "HTTP extenders are not asked"]
            resolved = replace(resolved, extenders=())
        print_notes(notes)
        access = ClusterAccess.of_flags(kubeconfig, context)
        uvloop.run(_run(access, resolved, metrics, every, limit.seconds if limit is not None else None, show))
    except (InputError, ServingError) as error:
        fail(error)


def only_profile(resolved: config.Resolved, name: str) -> config.Resolved:
    """The configuration with one profile: that of this name, or else the only one, under this name. Raises
    InputError."""
    profiles = resolved.profiles
    chosen = [profile for profile in profiles if profile.scheduler_name == name] or profiles
    if len(chosen) > 1:
        names = ", ".join(profile.scheduler_name for profile in profiles)
        raise InputError(f"the configuration has several profiles, none of which is named {name}: {names}")
    return replace(resolved, profiles=(replace(chosen[0], scheduler_name=name),))


async def _run(
    access: ClusterAccess,
    resolved: config.Resolved,
    address: tuple[str, int] | None,
    every: float,
    limit: float | None,
    show: Callable[[Report], None],
) -> None:
    clock = SystemClock()
    metrics = ShadowMetrics()
    trial = Shadow(resolved.profiles[0].scheduler_name, clock, metrics)
    async with (
        access.transport() as transport,
        _served(metrics, address),
        standby(transport, resolved, clock, Random(), trial) as scheduler,
    ):
        gc.collect()
        gc.freeze()  # what the first lists left will stay
        stopping = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        trial.begin(scheduler)
        print_notes([f"watching {counted(scheduler.cluster.table.count, 'node')}; Ctrl-C ends the trial with a report"])
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(scheduler.watches.hold())
            await follow(trial, stopping, every, limit, show)
            watching.cancel()


@asynccontextmanager
async def _served(metrics: ShadowMetrics, address: tuple[str, int] | None) -> AsyncIterator[None]:
    """Raises ServingError."""
    if address is None:
        yield
        return
    server = EndpointServer([metrics_endpoint(metrics, SystemClock().monotonic)], [Listener(*address)])
    await server.start()
    try:
        yield
    finally:
        await server.stop()


async def follow(
    trial: Shadow, stopping: asyncio.Event, every: float, limit: float | None, show: Callable[[Report], None]
) -> None:
    """Shows a report `every` so many seconds (0: never), and one at the end: after `limit` seconds, or when `stopping`
    is set."""

    async def repeatedly(seconds: float, act: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(seconds)
            act()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(repeatedly(LOOK_EVERY, trial.look))]
        if every:
            tasks.append(group.create_task(repeatedly(every, lambda: show(trial.report()))))
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await stopping.wait()
        for task in tasks:
            task.cancel()
    show(trial.report())
