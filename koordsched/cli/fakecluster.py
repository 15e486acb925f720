"""`koordsched fakecluster`: the embedded API server with controllers and hollow nodes, in a process of its own."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import signal
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import click
import uvloop

from koordsched.fakecluster import snapshot
from koordsched.fakecluster.admission.devices import PodWebhook
from koordsched.fakecluster.auth import ADMIN, Authenticator
from koordsched.fakecluster.clock import SystemClock, loop_call_later
from koordsched.fakecluster.cluster import new_cluster
from koordsched.fakecluster.controllers import Controllers
from koordsched.fakecluster.datalog import DataLog
from koordsched.fakecluster.emulation import Emulation
from koordsched.fakecluster.hollow import HollowNodes, HollowOptions, Share, TemplateError
from koordsched.fakecluster.hollow.usage import HIGHEST_PERCENT
from koordsched.fakecluster.http import HttpServer
from koordsched.fakecluster.kubeconfig import kubeconfig, write_kubeconfig
from koordsched.fakecluster.registry import Registry
from koordsched.fakecluster.release import NEWEST, OLDEST, Release, parse_release
from koordsched.fakecluster.resources import Resource
from koordsched.fakecluster.server import ApiServer
from koordsched.fakecluster.store import Store
from koordsched.fakecluster.tls import self_signed
from koordsched.fakecluster.workloadapi import serve_workload_api

_RV_EPOCH = 1735689600
"""2025-01-01: resourceVersions start at the seconds since then, times the most that one second can assign."""
_RV_PER_SECOND = 10_000


@dataclass(frozen=True)
class Options:
    """The command line."""

    host: str
    port: int
    nodes: int | None
    node_template: Path | None
    kubeconfig_out: Path | None
    token: str
    tls: bool
    emulate_apiserver: bool
    load: Path | None
    data: Path | None
    dump: Path | None
    pod_start_delay: float
    load_reports: bool
    topology_reports: bool
    device_reports: bool
    workload_api: bool
    cpu_usage: float
    memory_usage: float
    usage_traces: Path | None
    seed: int | None
    kubernetes_version: Release
    omit: tuple[str, ...]
    forbid: tuple[str, ...]
    webhook: tuple[str, ...]


def _release(context: click.Context, parameter: click.Parameter, value: str) -> Release:
    try:
        return parse_release(value)
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None


@click.command(name="fakecluster")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="Port to listen on.")
@click.option(
    "--nodes",
    type=click.IntRange(0),
    default=None,
    help="Number of hollow nodes. [default: as the template says, or none]",
)
@click.option(
    "--node-template",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML file that describes the hollow nodes (zones, CPUs and NUMA nodes, GPUs and other devices, faults).",
)
@click.option(
    "--kubeconfig-out", type=click.Path(dir_okay=False, path_type=Path), help="Write a kubeconfig for this server."
)
@click.option("--token", default="", help="Bearer token that clients must present; by default none is needed.")
@click.option(
    "--tls", is_flag=True, help="Serve HTTPS with a certificate authority created for this run (see the kubeconfig)."
)
@click.option(
    "--emulate-apiserver", is_flag=True, help="Make writes as slow as on a real API server (at most 2,500 per second)."
)
@click.option(
    "--load",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory of YAML with the initial state.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of a log of all writes: a server that was killed goes on from there. --load counts only if there "
    "is no log yet.",
)
@click.option("--dump", type=click.Path(file_okay=False, path_type=Path), help="Directory to write the final state to.")
@click.option(
    "--pod-start-delay",
    type=float,
    default=0.5,
    show_default=True,
    help="Seconds from binding to Running; negative: bound pods never start.",
)
@click.option(
    "--load-reports/--no-load-reports",
    default=True,
    show_default=True,
    help="Report the nodes' usage as NodeMetrics while manifests/crds/nodemetrics.yaml is applied.",
)
@click.option(
    "--topology-reports/--no-topology-reports",
    default=True,
    show_default=True,
    help="Report the CPUs and NUMA nodes of nodes whose template has `cpus` as NodeResourceTopologies while "
    "manifests/crds/noderesourcetopologies.yaml is applied.",
)
@click.option(
    "--device-reports/--no-device-reports",
    default=True,
    show_default=True,
    help="Report the GPUs, NICs and FPGAs of nodes whose template has `devices` as Devices, and compute what nodes "
    "offer from Devices, while manifests/crds/devices.yaml is applied.",
)
@click.option(
    "--cpu-usage",
    type=click.FloatRange(0, HIGHEST_PERCENT),
    default=60,
    show_default=True,
    metavar="PERCENT",
    help="CPU that pods use, in percent of their request, unless annotated otherwise.",
)
@click.option(
    "--memory-usage",
    type=click.FloatRange(0, HIGHEST_PERCENT),
    default=80,
    show_default=True,
    metavar="PERCENT",
    help="Memory that pods use, in percent of their request, unless annotated otherwise.",
)
@click.option(
    "--usage-traces",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory of usage traces that annotations of pods may name.",
)
@click.option("--seed", type=int, default=None, help="Seed of names, uids and delays, for repeatable runs.")
@click.option(
    "--kubernetes-version",
    callback=_release,
    default=f"1.{NEWEST}",
    show_default=True,
    help=f"Release of Kubernetes to emulate, from 1.{OLDEST}: its APIs, fields and features.",
)
@click.option(
    "--workload-api", is_flag=True, help="Serve scheduling.k8s.io/v1alpha2: PodGroups and Workloads of Kubernetes."
)
@click.option(
    "--omit",
    metavar="RESOURCE",
    multiple=True,
    help="Do not serve a resource, e.g. csidrivers.storage.k8s.io; repeatable.",
)
@click.option(
    "--forbid", metavar="RESOURCE", multiple=True, help="Answer 403 to every request for a resource; repeatable."
)
@click.option(
    "--webhook",
    type=click.Choice([webhook.value for webhook in PodWebhook]),
    multiple=True,
    help="Run a webhook of koord-manager on new pods: device-resource-spec rewrites requests for GPUs (and nodes offer "
    "koordinator.sh/gpu.shared), device-resource-validation rejects contradictory requests; repeatable.",
)
def fakecluster(**flags: object) -> None:
    """Run an embedded Kubernetes API server with controllers and hollow nodes.

    It serves the Kubernetes API (kubectl works with it), keeps its state in memory and exits on SIGTERM or Ctrl-C. What
    was written is gone then, and when it is killed, unless --data keeps a log; --dump writes the state at an orderly
    end only. On SIGUSR1 it forgets its history: all watches end, and clients that resume one get 410 and have to list.

    Annotations control hollow nodes. On pods: koordsched.io/run-duration (30s) and koordsched.io/exit-code set when and
    how the containers exit, koordsched.io/usage what the pod really uses, e.g. {"cpu": "1500m", "memory": "2Gi"}. On
    nodes: koordsched.io/fail makes a node fail (true: silent; or not-ready), koordsched.io/topology sets its CPUs and
    NUMA nodes, e.g. {"cpus": {"sockets": 2, "coresPerNumaNode": 4}}, koordsched.io/fail-devices (gpu/3) which devices
    have failed. More in docs/hollow-nodes.md.
    """
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    uvloop.run(_run(Options(**flags)))  # type: ignore[arg-type]  # click has converted each flag to its type


async def _run(options: Options) -> None:
    clock = SystemClock()
    rng = random.Random(options.seed)
    registry = _cluster(options, clock, rng)
    controllers = Controllers(registry)
    try:
        hollow = HollowNodes(registry, _hollow_options(options))
    except TemplateError as problem:
        raise click.ClickException(f"node template: {problem}") from None
    authenticator = Authenticator({options.token: ADMIN}) if options.token else None
    emulation = Emulation(rng) if options.emulate_apiserver else None
    api = ApiServer(registry, authenticator, emulation, rng)
    api.forbidden.update(resource.qualified for resource in _named(registry, "--forbid", options.forbid))
    for resource in _named(registry, "--omit", options.omit):
        registry.withdraw(resource)
    http = HttpServer(api.start)
    tls, authority = self_signed(options.host, clock.now()) if options.tls else (None, b"")
    try:
        port = await http.start(options.host, options.port, tls)
    except OSError as problem:
        raise click.ClickException(
            f"cannot listen on {options.host}:{options.port}: {problem.strerror or problem}"
        ) from None
    controllers.start()
    hollow.start()
    # What exists now stays: the garbage collector need not visit it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, registry.store.begin_anew)
    url = f"{'https' if tls else 'http'}://{f'[{options.host}]' if ':' in options.host else options.host}:{port}"
    _announce(options, url, authority, len(hollow))
    await stop.wait()
    api.ready = False
    hollow.stop()
    controllers.stop()
    api.hub.close_all()
    await http.stop()
    if options.dump is not None:
        try:
            written = snapshot.dump(registry, options.dump)
        except snapshot.SnapshotError as problem:
            raise click.ClickException(f"--dump: {problem}") from None
        click.echo(f"fakecluster: wrote {written} objects to {options.dump}")


def _cluster(options: Options, clock: SystemClock, rng: random.Random) -> Registry:
    # Above those of any earlier server on this machine, so that its clients list again.
    first = max(1, int((clock.now() - _RV_EPOCH) * _RV_PER_SECOND))
    registry = new_cluster(clock, rng, loop_call_later, Store(first_rv=first), _webhooks(options))
    registry.be_like(options.kubernetes_version)
    if options.workload_api:
        serve_workload_api(registry)
    log = DataLog(options.data) if options.data is not None else None
    if options.load is not None and (log is None or log.is_empty):
        try:
            snapshot.load(registry, options.load)
        except snapshot.SnapshotError as problem:
            raise click.ClickException(f"--load: {problem}") from None
    if log is not None:
        try:
            log.start(registry)
        except snapshot.SnapshotError as problem:
            raise click.ClickException(f"--data: {problem}") from None
    return registry


def _webhooks(options: Options) -> frozenset[PodWebhook]:
    return frozenset(map(PodWebhook, options.webhook))


def _named(registry: Registry, flag: str, names: Collection[str]) -> list[Resource]:
    """The resources of these names (`plural.group`), in every version."""
    served = registry.resources()
    for name in names:
        if all(resource.qualified != name for resource in served):
            raise click.ClickException(f"{flag} {name}: no such resource, expected plural.group")
    return [resource for resource in served if resource.qualified in names]


def _hollow_options(options: Options) -> HollowOptions:
    nodes = options.nodes if options.nodes is not None or options.node_template is not None else 0
    delay = options.pod_start_delay if options.pod_start_delay >= 0 else None
    return HollowOptions(
        count=nodes,
        template=options.node_template,
        start_delay=delay,
        load_reports=options.load_reports,
        topology_reports=options.topology_reports,
        device_reports=options.device_reports,
        gpu_shared=PodWebhook.DEVICE_RESOURCE_SPEC in _webhooks(options),
        usage_share=Share(options.cpu_usage, options.memory_usage),
        usage_traces=options.usage_traces,
    )


def _announce(options: Options, url: str, authority: bytes, nodes: int) -> None:
    written = ""
    if options.kubeconfig_out is not None:
        try:
            write_kubeconfig(options.kubeconfig_out, kubeconfig(url, options.token, authority))
        except OSError as problem:
            raise click.ClickException(f"cannot write {options.kubeconfig_out}: {problem.strerror}") from None
        written = f", kubeconfig {options.kubeconfig_out}"
    click.echo(f"fakecluster ready: {url}, {nodes} nodes{written}")
