"""The endpoints of the daemon: paths, addresses and access, as set by the command line (core spec 2.3, 2.4)."""

from __future__ import annotations

import asyncio
import datetime
import logging
import ssl
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import yaml

from koordsched import __version__
from koordsched.cli.debugpages import debug_endpoints
from koordsched.client.clock import Clock
from koordsched.client.errors import ClientError
from koordsched.client.leaderelection import Elector
from koordsched.client.network import NetworkTransport
from koordsched.client.transport import Transport
from koordsched.cluster.pod import Pod
from koordsched.config import configz as shown_configuration
from koordsched.config.options import Authentication, Metrics, Options
from koordsched.config.wire import KubeSchedulerConfiguration
from koordsched.observability.access import AccessControl, LookupFailed
from koordsched.observability.authdelegate import DelegatedAuth
from koordsched.observability.endpoint import Endpoint
from koordsched.observability.health import (
    PING,
    HealthCheck,
    HealthEndpoint,
    HealthResults,
    handler_sync_check,
    shutdown_check,
    watch_checks,
)
from koordsched.observability.metric_options import MetricOptionError, MetricOptions, parse_metric_options
from koordsched.observability.pages import configz, debug_pages, flagz, statusz
from koordsched.observability.podresources import PodResources
from koordsched.observability.probes import health_endpoints, metric_endpoints
from koordsched.observability.server import EndpointServer, Listener
from koordsched.observability.servernames import serve_names
from koordsched.observability.servingtls import (
    CertificateFiles,
    ServingError,
    TLSOptions,
    serving_context,
    trust_clients,
)
from koordsched.scheduling.scheduler import Scheduler
from koordsched.scheduling.unreadable import resource_name

_log = logging.getLogger(__name__)

COMPONENT = "kube-scheduler"
EMULATION = "1.36"

FILES_AGAIN = 20.0
"""Seconds between checks of certificate files."""

AUTHORITY_AGAIN = 300.0
"""Seconds between readings of the cluster's client CA; a new one is trusted beside the old."""

FIRST_LOOKUP = 10.0
"""Seconds that the client CA may take at start if the flags do not tolerate a failure, and between attempts."""


@dataclass(frozen=True)
class Served:
    """What the endpoints show."""

    configuration: KubeSchedulerConfiguration
    flags: Mapping[str, str]
    scheduler: Scheduler
    transport: Transport
    elector: Elector | None
    stopping: Callable[[], bool]
    set_verbosity: Callable[[int], None]


class Endpoints:
    """The listeners of one daemon, from `start` to `stop`."""

    def __init__(self, options: Options, served: Served, clock: Clock) -> None:
        self._options = options
        self._served = served
        self._clock = clock
        self._started = clock.wall()
        self._reviewers: list[NetworkTransport] = []
        self._upkeep: list[asyncio.Task[None]] = []
        self._server: EndpointServer | None = None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of every listening socket."""
        return self._server.addresses if self._server is not None else []

    async def start(self) -> None:
        """Opens the listeners; asks the API server only if the flags require it. Raises ServingError."""
        try:
            listeners = []
            if self._options.secure_serving.port:
                listeners.append(await self._secure())
            plain = self._options.insecure_serving
            if plain.port:
                listeners.append(Listener(plain.address, plain.port))
            if listeners:
                self._server = EndpointServer(self._endpoints(), listeners)
                await self._server.start()
        except ServingError:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Closes the listeners."""
        for task in self._upkeep:
            task.cancel()
        await asyncio.gather(*self._upkeep, return_exceptions=True)
        if self._server is not None:
            await self._server.stop()
        for transport in self._reviewers:
            await transport.close()

    # --- what is served ----------------------------------------------------------------------------

    def _endpoints(self) -> list[Endpoint]:
        served, scheduler = self._served, self._served.scheduler
        results = HealthResults()
        election = [HealthCheck("leaderElection", served.elector.check)] if served.elector is not None else []
        ready = [*election, shutdown_check(served.stopping), handler_sync_check(self._unsynced)]
        pages = [
            *health_endpoints(HealthEndpoint("healthz", [PING, *election], results)),
            *health_endpoints(HealthEndpoint("livez", [PING], results)),
            *health_endpoints(HealthEndpoint("readyz", ready, results, lambda: watch_checks(self._obstacles()))),
            *metric_endpoints(
                scheduler.metrics,
                results,
                PodResources(self._pods, scheduler.cluster.table.resource_names),
                self._leads,
                self._clock.monotonic,
            ),
            configz(lambda: shown_configuration(served.configuration)),
            statusz(COMPONENT, __version__, EMULATION, self._started, self._clock.wall),
            flagz(COMPONENT, served.flags),
            *debug_endpoints(scheduler),
        ]
        if served.configuration.enable_profiling:
            pages += debug_pages(served.set_verbosity)
        return pages

    def _unsynced(self) -> list[str]:
        """The resources whose initial list is missing, with what keeps it."""
        watches = self._served.scheduler.watches
        return [
            f"{path} ({watches.problems[path]})" if path in watches.problems else path for path in watches.missing()
        ]

    def _obstacles(self) -> dict[str, str]:
        """The resources that cannot be watched, as roles name them, and why."""
        found = self._served.scheduler.watches.obstacles()
        return {resource_name(path): f"{path}: {why}" for path, why in found.items()}

    def _leads(self) -> bool:
        return self._served.elector is None or self._served.elector.is_leader()

    def _pods(self) -> list[Pod]:
        scheduler = self._served.scheduler
        assigned = scheduler.cluster.assigned
        return [*assigned.values(), *(pod for pod in scheduler.pending_pods() if pod.uid not in assigned)]

    # --- HTTPS -------------------------------------------------------------------------------------

    async def _secure(self) -> Listener:
        flags = self._options.secure_serving
        tls = TLSOptions(
            flags.tls_cert_file,
            flags.tls_private_key_file,
            flags.cert_dir,
            flags.tls_min_version,
            flags.tls_cipher_suites,
        )
        now = datetime.datetime.fromtimestamp(self._clock.wall(), datetime.UTC)
        hosts = [] if flags.bind_address in ("0.0.0.0", "::") else [flags.bind_address]
        context = serving_context(tls, now, hosts)
        contexts = [context]
        files = [CertificateFiles(context, tls)]
        for name_tls, name_context in serve_names(context, tls, flags.tls_sni_cert_key, now):
            contexts.append(name_context)
            files.append(CertificateFiles(name_context, name_tls))
        self._keep_up(self._follow_files(files))
        access = await self._access(contexts)
        return Listener(flags.bind_address, flags.port, context, access)

    async def _access(self, contexts: Sequence[ssl.SSLContext]) -> AccessControl:
        who, what = self._options.authentication, self._options.authorization
        users = DelegatedAuth(
            await self._reviewer(who.kubeconfig), self._clock.monotonic, cache_seconds=who.token_cache_ttl.seconds
        )
        rights = DelegatedAuth(
            await self._reviewer(what.kubeconfig),
            self._clock.monotonic,
            cache_seconds=min(what.authorized_ttl.seconds, what.unauthorized_ttl.seconds),
        )
        await self._trust_clients(contexts, users, who)
        return AccessControl(users.authenticate, rights.authorize, allowed_paths=what.always_allow_paths)

    async def _reviewer(self, kubeconfig: str) -> Transport:
        """Where reviews are asked for: the API server scheduled for, or that of another kubeconfig."""
        if not kubeconfig:
            return self._served.transport
        try:
            transport = await NetworkTransport.open(self._clock, kubeconfig=kubeconfig)
        except ClientError as error:
            raise ServingError(str(error)) from error
        self._reviewers.append(transport)
        return transport

    async def _trust_clients(
        self, contexts: Sequence[ssl.SSLContext], users: DelegatedAuth, flags: Authentication
    ) -> None:
        """Client certificates: from a file, or as the cluster publishes, which need not be known at once."""
        if flags.requestheader_client_ca_file:
            _log.warning("--requestheader-client-ca-file has no effect: authenticating proxies are not supported")
        if flags.client_ca_file:
            try:
                bundle = await asyncio.to_thread(Path(flags.client_ca_file).read_bytes)
            except OSError as error:
                raise ServingError(f"--client-ca-file {flags.client_ca_file}: {error.strerror}") from error
            for context in contexts:
                trust_clients(context, bundle)
        if flags.skip_lookup:
            return
        known: bytes | None = None
        if not flags.tolerate_lookup_failure:
            try:
                async with asyncio.timeout(FIRST_LOOKUP):
                    known = await users.client_ca()
            except (LookupFailed, TimeoutError) as error:
                raise ServingError(f"the client CA cannot be read from the cluster: {error or 'timeout'}") from error
            for context in contexts:
                if known:
                    trust_clients(context, known)
        self._keep_up(self._follow_authority(contexts, users, known))

    def _keep_up(self, work: Coroutine[None, None, None]) -> None:
        self._upkeep.append(asyncio.get_running_loop().create_task(work))

    async def _follow_files(self, files: Sequence[CertificateFiles]) -> None:
        """Uses certificate files when they are replaced; an invalid pair leaves the previous one in use."""
        while True:
            await asyncio.sleep(FILES_AGAIN)
            for pair in files:
                try:
                    if pair.reload_if_changed():
                        _log.info("Serving with the renewed certificate")
                except ServingError as error:
                    _log.warning("Keeping the current serving certificate: %s", error)

    async def _follow_authority(
        self, contexts: Sequence[ssl.SSLContext], users: DelegatedAuth, known: bytes | None
    ) -> None:
        """Trusts the CA that the cluster publishes, and later ones."""
        warned = False
        while True:
            pause = AUTHORITY_AGAIN
            try:
                bundle = await users.client_ca()
                if bundle and bundle != known:
                    for context in contexts:
                        trust_clients(context, bundle)
                    known = bundle
            except (LookupFailed, ServingError) as error:
                pause = FIRST_LOOKUP if known is None else AUTHORITY_AGAIN
                if not warned:
                    _log.info("The endpoints accept no client certificates until this succeeds: %s", error)
                    warned = True
            await asyncio.sleep(pause)


def metric_options(flags: Metrics) -> MetricOptions:
    """The metrics flags and the file one of them may name. Raises MetricOptionError."""
    items = [piece for item in flags.allow_labels for piece in _one_value_each(item)]
    if flags.allow_labels_manifest:
        items += _manifest(flags.allow_labels_manifest)
    return parse_metric_options(
        disabled_metrics=flags.disabled,
        allow_metric_labels=items,
        show_hidden_metrics_for_version=flags.show_hidden_for_version,
    )


def _one_value_each(item: str) -> list[str]:
    """`metric,label='a,b'` as one item per value."""
    target, equals, values = item.partition("=")
    if not equals:
        return [item]
    return [f"{target}={value.strip()}" for value in values.strip("'\"").split(",")]


def _manifest(path: str) -> list[str]:
    try:
        document = yaml.safe_load(Path(path).read_bytes())
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise MetricOptionError(f"--allow-metric-labels-manifest {path}: {error}") from error
    if not isinstance(document, dict):
        raise MetricOptionError(f"--allow-metric-labels-manifest {path}: not a map of metric,label to values")
    return [piece for target, values in document.items() for piece in _one_value_each(f"{target}={values}")]


def flags_in_force(context: click.Context) -> dict[str, str]:
    """Every flag of the running command by its name without dashes, as text: what /flagz shows."""
    shown = {}
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if not isinstance(parameter, click.Option) or parameter.name not in context.params:
            continue
        name = max(parameter.opts, key=len).lstrip("-")
        if isinstance(value, bool):
            shown[name] = str(value).lower()
        elif isinstance(value, tuple | list):
            shown[name] = ",".join(map(str, value))
        else:
            shown[name] = "" if value is None else str(value)
    return shown
