"""`koordsched pending`: all pods that wait, by what they wait for and what would help."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from random import Random

import click
from rich.console import Console

from koordsched.cli.dumptime import time_text
from koordsched.cli.endpoint import Endpoint, EndpointError
from koordsched.cli.objectfiles import InputError
from koordsched.cli.offline import load_config
from koordsched.cli.output import (
    STRUCTURED,
    WIDE,
    console,
    counted,
    fail,
    output_option,
    print_notes,
    print_structured,
    table,
)
from koordsched.cli.pluginpages import returned
from koordsched.cli.standby import standby
from koordsched.cli.state_options import State, state_options
from koordsched.client.clock import SystemClock
from koordsched.cluster.pod import Pod
from koordsched.scheduling.pendinggroups import PendingGroup, PendingPodsReport, pending_groups
from koordsched.scheduling.scheduler import Scheduler

_MOST_CAUSES = 3
_MOST_WORKLOADS = 2

Ask = Callable[[], Awaitable[PendingPodsReport]]
"""Finds the pending pods."""


@click.command("pending")
@click.option("-n", "--namespace", default="", help="Only show pods of this namespace.  [default: all namespaces]")
@state_options
@click.option("-w", "--watch", is_flag=True, help="Print again whenever something has changed, until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(0.5),
    default=2.0,
    show_default=True,
    help="With --watch: seconds between checks.",
)
@output_option
def pending(namespace: str, state: State, watch: bool, interval: float, output: str) -> None:
    """Show all pending pods, grouped by reason and by what would help.

    Reads the cluster of the kubeconfig, whatever scheduler runs there, or files (-f), and evaluates the pods locally.
    With --live or --server, asks a running koordsched. Each pod is evaluated as if it were the only one; `simulate`
    places all of them.
    """
    if watch and state.filenames:
        raise click.UsageError("--watch has no effect with -f")
    if watch and (state.nodes or state.like or state.node_template):
        raise click.UsageError("--nodes, --like and --node-template have no effect with --watch")
    try:
        if watch:
            asyncio.run(_watch(namespace, state, interval, output))
        else:
            notes, report = _once(namespace, state)
            print_notes(notes)
            _print(report, output)
    except (InputError, EndpointError) as error:
        fail(error)


def _once(namespace: str, state: State) -> tuple[list[str], PendingPodsReport]:
    """The pods that wait now. Raises InputError, EndpointError."""
    if not state.is_evaluated:
        with state.endpoint() as endpoint:
            return [], _asked(endpoint, namespace)
    resolved, warnings = load_config(state.config_file, gates=state.gates)
    offline = state.prepare(resolved)
    scheduler = offline.scheduler
    pods = _in([*scheduler.pending.values(), *scheduler.others.values()], namespace)
    report = asyncio.run(returned(pending_groups(pods, scheduler.profiles, scheduler.cluster)))
    assert isinstance(report, PendingPodsReport)
    return [*warnings, *offline.notes], report


def _in(pods: Iterable[Pod], namespace: str) -> list[Pod]:
    return [pod for pod in pods if not namespace or (pod.namespace == namespace and not pod.virtual)]


def _asked(endpoint: Endpoint, namespace: str) -> PendingPodsReport:
    return endpoint.ask("/debug/pending", {"namespace": namespace}, PendingPodsReport, "a report on pending pods")


async def _watch(namespace: str, state: State, interval: float, output: str) -> None:
    async with _asking(namespace, state) as ask:
        await repeated(ask, interval, lambda report: _show_again(report, output))


@asynccontextmanager
async def _asking(namespace: str, state: State) -> AsyncIterator[Ask]:
    if not state.is_evaluated:
        with state.endpoint() as endpoint:
            yield lambda: asyncio.to_thread(_asked, endpoint, namespace)
        return
    resolved, warnings = load_config(state.config_file, gates=state.gates)
    print_notes(warnings)
    cluster = state.cluster
    assert cluster is not None
    async with (
        cluster.transport() as transport,
        standby(transport, resolved, SystemClock(), Random()) as scheduler,
    ):
        yield lambda: waiting_in(scheduler, namespace)


async def waiting_in(scheduler: Scheduler, namespace: str) -> PendingPodsReport:
    """The pending pods, as known to a scheduler in this process."""
    pods = _in((pod for pod in scheduler.pending_pods() if pod.uid not in scheduler.cluster.assigned), namespace)
    report = await returned(pending_groups(pods, scheduler.profiles, scheduler.cluster))
    assert isinstance(report, PendingPodsReport)
    return report


async def repeated(ask: Ask, interval: float, show: Callable[[PendingPodsReport], None]) -> None:
    """Shows a report, and again, every `interval` seconds, if it has changed. Until cancelled."""
    shown: PendingPodsReport | None = None
    while True:
        report = await ask()
        if report != shown:
            show(report)
            shown = report
        await asyncio.sleep(interval)


def _show_again(report: PendingPodsReport, output: str) -> None:
    out = console(output)
    if output in STRUCTURED:
        _print(report, output)
        return
    if out.is_terminal:
        out.clear()
    else:
        out.print(f"{time_text(SystemClock().wall())}:")
    _print(report, output)
    if not out.is_terminal:
        out.print()


def _print(report: PendingPodsReport, output: str) -> None:
    if output in STRUCTURED:
        print_structured(report, output)
        return
    _print_table(console(output), report, wide=output == WIDE)


def _print_table(out: Console, report: PendingPodsReport, *, wide: bool) -> None:
    if not report.groups:
        out.print("No pod is pending.")
        return
    more = ("SCHEDULER", "OLDEST", "FIRST POD") if wide else ()
    rows = table("PODS", "WORKLOADS", "WAIT BECAUSE", "WHAT WOULD HELP", *more, right=["PODS"])
    for group in report.groups:
        details = (group.scheduler, group.oldest, group.pods[0]) if wide else ()
        rows.add_row(
            str(len(group.pods)), _workloads(group, wide=wide), _causes(group, wide=wide), _help(group), *details
        )
    out.print(rows)
    out.print()
    out.print(f"{counted(report.pods, 'pod')} in {counted(len(report.groups), 'group')}.")


def _workloads(group: PendingGroup, *, wide: bool) -> str:
    names = list(group.workloads)
    rest = 0 if wide else len(names) - _MOST_WORKLOADS
    return ", ".join(names if wide else names[:_MOST_WORKLOADS]) + (f" and {rest} more" if rest > 0 else "")


def _causes(group: PendingGroup, *, wide: bool) -> str:
    if wide and group.message:
        return f"{group.reason}: {group.message}"
    causes = group.causes[:_MOST_CAUSES]
    rest = len(group.causes) - len(causes)
    text = "; ".join(causes) + (f"; and {rest} more" if rest else "")
    return f"{group.reason}: {text}" if group.reason not in ("", "Unschedulable") else text or "-"


def _help(group: PendingGroup) -> str:
    return f"{group.remedy} ({group.closest})" if group.closest else group.remedy or "-"
