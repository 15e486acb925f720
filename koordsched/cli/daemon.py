"""The daemon: connection, scheduler, election, endpoints and signals, started, and stopped in order."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import platform
import signal
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

from koordsched import __version__
from koordsched.cli.debugdump import write_dump
from koordsched.cli.endpoints import EMULATION, Endpoints, Served, metric_options
from koordsched.cli.pluginmetrics import observe_plugins
from koordsched.client.clock import SystemClock
from koordsched.client.errors import ClientError
from koordsched.client.lanes import Lane, Lanes
from koordsched.client.leaderelection import ElectionConfig, Elector
from koordsched.client.leasekeeper import LeaseKeeper
from koordsched.client.network import NetworkTransport
from koordsched.client.transport import Request, Response
from koordsched.config.feature_gates import changed, stage_of
from koordsched.config.options import Options
from koordsched.config.resolving import Resolved
from koordsched.config.wire import KubeSchedulerConfiguration
from koordsched.extender.tls import ExtenderConfigError
from koordsched.framework.controller import ControllerFactory
from koordsched.framework.profile import ProfileError
from koordsched.journal.frames import NotAJournal
from koordsched.journal.header import Setting, software
from koordsched.journal.live import LiveJournal
from koordsched.observability.component import observe_build, observe_features, observe_registry
from koordsched.observability.eventsink import LaneEventSink
from koordsched.observability.internals import (
    observe_events,
    observe_gc,
    observe_lanes,
    observe_loop,
    observe_reflectors,
)
from koordsched.observability.leaseevents import LeaseEvents
from koordsched.observability.logging import LogControl
from koordsched.observability.metric_options import MetricOptionError
from koordsched.observability.metrics import Metrics
from koordsched.observability.servingtls import ServingError
from koordsched.observability.watchdog import GcMonitor, LoopMonitor, Watchdog
from koordsched.plugins import CONTROLLERS, IN_TREE
from koordsched.scheduling.cycle import unmeasured
from koordsched.scheduling.recording import NOT_RECORDING
from koordsched.scheduling.scheduler import Scheduler

_log = logging.getLogger(__name__)

LOST_LEASE = 1
"""Exit code when the lease was lost: the kubelet or init system restarts the process."""

SETTLING = 0.5
"""Seconds to wait for answers to writes in progress before the lease is released."""

GC_AT_START = (100_000, 50, 1000)
"""While the first lists are read, searching them for cycles is useless; see `_settle_memory`."""

GC_THRESHOLDS = (30_000, 1, 1000)
"""Almost nothing here forms cycles. A pass takes up to 0.5 ms per thousand objects that came since the last one: 15 ms
for the youngest, 45 ms for the middle generation. The oldest is frozen, so there are no full passes."""


class StartFailed(Exception):
    """The daemon cannot start; the message is ready for the user."""


class Daemon:
    """One run of the scheduler process. `flags`: the command line, for /flagz."""

    def __init__(
        self,
        options: Options,
        configuration: KubeSchedulerConfiguration,
        resolved: Resolved,
        logs: LogControl,
        flags: Mapping[str, str],
    ) -> None:
        self._options = options
        self._configuration = configuration
        self._resolved = resolved
        self._logs = logs
        self._flags = flags
        self._clock = SystemClock()
        self._rng = Random()
        self._identity = f"{platform.node()}_{uuid.uuid4()}"
        self._stopping = asyncio.Event()
        self._asked = False
        self._elected = asyncio.Event()
        self._code = 0
        self._settled: Callable[[], None] = _settle_memory
        """Called once, when the first lists have been taken in."""
        self._elector: Elector | None = None
        self._dump: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Runs until a signal comes or the lease is lost; returns the exit code. Raises StartFailed."""
        gc.collect()
        gc.set_threshold(*GC_AT_START)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # Under nohup the terminal may be closed.
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._asked_to_stop)
        # They would end the process. SIGUSR2 has a meaning once there is something to dump.
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            loop.add_signal_handler(number, _log.debug, "%s is ignored", number.name)
        async with AsyncExitStack() as cleanup:
            try:
                return await self._run(cleanup)
            except (ClientError, ExtenderConfigError, MetricOptionError, ProfileError, ServingError) as error:
                raise StartFailed(str(error)) from error

    def _asked_to_stop(self) -> None:
        """The first signal asks for an orderly exit, a second one for an immediate one (apiserver
        `pkg/server/signal.go`).
        """
        if self._asked:
            print("error: stopped immediately by a second signal", file=sys.stderr, flush=True)
            os._exit(1)
        self._asked = True
        self._stopping.set()

    async def _run(self, cleanup: AsyncExitStack) -> int:
        metrics = Metrics(metric_options(self._options.metrics), leads=self._may_write)
        observe_build(metrics, __version__, EMULATION)
        observe_features(
            metrics, ((name, stage_of(name), enabled) for name, enabled in self._options.feature_gates.items())
        )
        observe_registry(metrics)
        transport = await self._open_transport()
        cleanup.push_async_callback(transport.close)
        limit = self._resolved.rate_limit
        lanes = Lanes(
            transport,
            self._clock,
            self._rng,
            fence=self._may_write,
            qps=limit.qps if limit else None,
            burst=limit.burst if limit else None,
        )
        cleanup.push_async_callback(lanes.close)
        own_pod = (os.environ.get("POD_NAMESPACE", ""), os.environ.get("POD_NAME", ""))
        max_unschedulable = self._options.pod_max_in_unschedulable_pods_duration.seconds
        journal = self._open_journal(Setting(self._resolved, max_unschedulable, self._options.fair_namespaces, own_pod))
        if journal is not None:
            journal.observe(metrics)
            cleanup.callback(journal.close)
        scheduler = Scheduler(
            self._resolved,
            IN_TREE,
            transport=transport,
            lanes=lanes,
            clock=self._clock,
            rng=self._rng,
            metrics=metrics,
            hostname=platform.node(),
            max_unschedulable=max_unschedulable,
            max_binding=self._options.max_pods_binding,
            fair_namespaces=self._options.fair_namespaces,
            controllers=self._controllers(),
            own_pod=own_pod,
            fence=self._may_write,
            recorder=journal.recorder if journal is not None else NOT_RECORDING,
            cpu_time=time.thread_time if journal is None else unmeasured,  # what is recorded must repeat
        )
        observe_plugins(metrics, scheduler.profiles)
        if journal is not None:
            journal.attach(scheduler)
        if self._resolved.leader_election.leader_elect:
            self._elector = self._make_elector(transport, lanes, metrics)
        endpoints = Endpoints(
            self._options,
            Served(
                self._configuration,
                self._flags,
                scheduler,
                transport,
                self._elector,
                self._stopping.is_set,
                self._logs.set_verbosity,
            ),
            self._clock,
        )
        await endpoints.start()
        cleanup.push_async_callback(endpoints.stop)
        _log.info("%s", self._introduction(transport.server))
        cleanup.callback(self._monitor(metrics, scheduler, lanes))
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, self._start_dump, scheduler, transport)
        await self._lead(scheduler)
        return self._code

    async def _open_transport(self) -> NetworkTransport:
        return await NetworkTransport.open(
            self._clock, kubeconfig=self._resolved.kubeconfig, master=self._options.master
        )

    def _controllers(self) -> Mapping[str, ControllerFactory]:
        """Those that `--controller-plugins` leaves."""
        unknown = {name.removeprefix("-") for name in self._options.controller_plugins} - {"*", *CONTROLLERS}
        for name in sorted(unknown):
            _log.warning("--controller-plugins: there is no controller of a plugin %r", name)
        return {name: build for name, build in CONTROLLERS.items() if self._options.runs_controller(name)}

    def _introduction(self, server: str) -> str:
        (name, version), *libraries = software().items()
        below = ", ".join(f"{name} {version}" for name, version in libraries)
        profiles = ", ".join(profile.scheduler_name for profile in self._resolved.profiles)
        gates = ",".join(changed(self._resolved.features)) or "as by default"
        return f"{name} {version} ({below}) starts; API server: {server}; profiles: {profiles}; feature gates: {gates}"

    def _open_journal(self, setting: Setting) -> LiveJournal | None:
        """The journal that was asked for, if any. Raises StartFailed."""
        options = self._options.journal
        if not options.path:
            return None
        try:
            return LiveJournal(
                Path(options.path), setting, uuid.uuid4().hex, self._clock, max_size=options.max_size, keep=options.keep
            )
        except (OSError, NotAJournal) as error:
            raise StartFailed(f"--journal: {error}") from error

    def _start_dump(self, scheduler: Scheduler, transport: NetworkTransport) -> None:
        """SIGUSR2: one dump at a time."""
        if self._dump is None or self._dump.done():
            self._dump = asyncio.get_running_loop().create_task(write_dump(scheduler, transport))

    # --- leading ---------------------------------------------------------------------------------

    async def _lead(self, scheduler: Scheduler) -> None:
        """Schedules while leading (or at once, without election) until it is time to stop."""
        loop = asyncio.get_running_loop()
        election: asyncio.Task[None] | None = None
        keeper: LeaseKeeper | None = None
        if self._elector is not None:
            election = loop.create_task(self._elector.run(), name="leader election")
            keeper = LeaseKeeper(self._elector, self._clock, self._open_transport)
            keeper.start()
        else:
            self._elected.set()
        work = loop.create_task(self._schedule(scheduler), name="scheduling")
        stopping = loop.create_task(self._stopping.wait())
        waiting = {work, stopping, *([election] if election else [])}
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        self._stopping.set()
        work.cancel()
        stopping.cancel()
        if election in done:
            _log.error("Leaderelection lost")
            self._code = LOST_LEASE
        elif work in done and work.exception() is not None:
            _log.critical("the scheduling loop ended", exc_info=work.exception())
            self._code = 2
        # Bindings in progress are finished while the lease is still ours; then it is released.
        await scheduler.stop()
        if election is not None and not election.done():
            election.cancel()
            await asyncio.gather(election, return_exceptions=True)
        if keeper is not None:
            keeper.stop()

    async def _schedule(self, scheduler: Scheduler) -> None:
        if self._resolved.delay_cache_until_active:
            await self._elected.wait()
        scheduler.start()
        await scheduler.wait_synced()
        _log.info(
            "watching %d nodes and %d pods on them", scheduler.cluster.table.count, len(scheduler.cluster.assigned)
        )
        self._settled()
        await self._elected.wait()
        if self._elector is not None:
            await scheduler.catch_up()
        await scheduler.run()

    def _make_elector(self, transport: NetworkTransport, lanes: Lanes, metrics: Metrics) -> Elector:
        given = self._resolved.leader_election
        events = LeaseEvents(
            LaneEventSink(lanes, "/api/v1"),
            self._clock.wall,
            component=self._resolved.profiles[0].scheduler_name,
            namespace=given.resource_namespace,
            lease=given.resource_name,
        )
        master_status = metrics.leader_election_master_status.labels(given.resource_name)

        def on_started() -> None:
            master_status.set(1)
            events.became_leader(self._identity)
            self._elected.set()

        def on_stopped() -> None:
            # Writes that have not left this process must not leave it any more.
            transport.drop_connections()
            master_status.set(0)
            events.stopped_leading(self._identity)

        async def write(request: Request) -> Response:
            return await lanes.submit(Lane.LEASE, request)

        async def may_release() -> bool:
            await lanes.drain(SETTLING)
            return lanes.quiet_for(given.lease_duration.seconds)

        return Elector(
            ElectionConfig(
                identity=self._identity,
                namespace=given.resource_namespace,
                name=given.resource_name,
                lease_duration=given.lease_duration.seconds,
                renew_deadline=given.renew_deadline.seconds,
                retry_period=given.retry_period.seconds,
            ),
            transport,
            self._clock,
            self._rng,
            on_started=on_started,
            on_stopped=on_stopped,
            write=write,
            may_release=may_release,
        )

    def _may_write(self) -> bool:
        """The fence: asked right before each write is handed to a socket."""
        return self._elector is None or self._elector.is_leader()

    # --- watching ourselves ------------------------------------------------------------------------

    def _monitor(self, metrics: Metrics, scheduler: Scheduler, lanes: Lanes) -> Callable[[], None]:
        """Starts the monitors; returns what stops them."""
        loop_monitor = LoopMonitor(time.monotonic, time.thread_time)
        gc_monitor = GcMonitor(time.perf_counter, time.monotonic, metrics.gc_pause)
        watchdog = Watchdog(loop_monitor, time.monotonic, limit=self._longest_stall, on_limit=_end_at_once)
        observe_loop(metrics, loop_monitor, watchdog)
        observe_gc(metrics, gc_monitor)
        observe_events(metrics, scheduler.events)
        reflectors = scheduler.watches.reflectors

        def depths() -> dict[str, int]:
            lanes.refresh_waiting()
            return {lane.name.lower(): stats.waiting + stats.in_flight for lane, stats in lanes.stats.items()}

        observe_lanes(metrics, depths)
        observe_reflectors(
            metrics,
            lambda: {path: max(reflector.lists - 1, 0) for path, reflector in reflectors.items()},
            lambda: {path: reflector.failures for path, reflector in reflectors.items()},
        )
        beating = asyncio.get_running_loop().create_task(loop_monitor.run(), name="loop monitor")
        gc_monitor.start()
        watchdog.start()

        def settled() -> None:
            _settle_memory()
            loop_monitor.settled()
            gc_monitor.settled()

        self._settled = settled

        def stop() -> None:
            watchdog.stop()
            gc_monitor.stop()
            beating.cancel()

        return stop

    def _longest_stall(self) -> float | None:
        """Seconds after which a leader that hangs must exit, as others may lead by then; None while its lease holds."""
        deadline = self._elector.deadline() if self._elector is not None else float("-inf")
        if float("-inf") < deadline <= self._clock.boottime():
            return self._resolved.leader_election.renew_deadline.seconds
        return None


def _end_at_once() -> None:
    """Called by the watchdog's thread while the loop hangs: an orderly exit is not possible, so it exits at once."""
    print("error: the event loop hangs past the renew deadline of the lease", file=sys.stderr, flush=True)
    os._exit(LOST_LEASE)


def _settle_memory() -> None:
    """The objects of the first lists stay: keep the garbage collector from visiting them (a million pods would take
    seconds).
    """
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
