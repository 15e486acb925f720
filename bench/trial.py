"""One scheduler, one workload, one measurement."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from bench import results
from bench.api import Api, RequestRefused
from bench.observer import Observer
from bench.population import SCHEDULER, Population
from bench.processes import Command, CommandFailed, SchedulerProcess, free_port, write_config
from bench.unrest import Unrest
from bench.watching import WatchLost
from bench.workloads import Catalog, Workload

MEASURED = "measured-"
"""Names of the pods that count begin with this."""

PROBE_WITHIN = 120.0
SETTLE_WITHIN = 60.0
EVENTS_WITHIN = 120.0
"""Seconds for a started scheduler to bind the first pod, to come to rest, and to write its last events."""

_EVENTS_WAITING = "koordsched_events_pending"
BLOCK = "koordsched_event_loop_block_max_seconds"

BARE_BINDER = Path(__file__).with_name("bare_binder.py")


@dataclass(frozen=True)
class Server:
    """The API server, as far as scheduler processes have to know it."""

    kubeconfig: Path
    url: str
    token: str


@dataclass(frozen=True)
class Plan:
    """How pods arrive, how large they are, and how long to wait.

    `rate`: pods per second; 0: all are there before the scheduler starts; negative: as fast as they can be created,
    while it runs. `patience`: seconds without any binding after which a run is given up. `full_size`: pods have the
    size of real ones.
    """

    rate: float
    patience: float
    full_size: bool = True

    @property
    def arrival(self) -> str:
        """In words."""
        how = f"{self.rate:g}/s" if self.rate > 0 else "all at once" if self.rate < 0 else "waiting"
        return how if self.full_size else f"{how}, small"


def yardstick(*, events: bool) -> Command:
    """The bare binder: it watches, binds in turn, decides nothing."""
    flags = " --events" if events else ""
    return Command(
        "bare binder + events" if events else "bare binder",
        f"{sys.executable} {BARE_BINDER} --server {{server}} --token {{token}} --insecure "
        # It is ended from outside: by itself it would end before its last events are written.
        f"--scheduler-name {{name}} --pods {sys.maxsize}{flags}",
        decides=False,
    )


class Trial:
    """Runs one command on a populated server."""

    def __init__(
        self,
        api: Api,
        server: Server,
        catalog: Catalog,
        name: str,
        workload: Workload,
        population: Population,
        out: Path,
    ) -> None:
        self._api = api
        self._server = server
        self._name = name
        self._catalog = catalog
        self._workload = workload
        self._population = population
        self._out = out

    async def run(self, command: Command, number: int, plan: Plan) -> results.Result:
        """Everything from the first pod to the last event. What goes wrong is told in the result."""
        scheduler = f"{SCHEDULER}{number}"
        # Who decides nothing would fail at gates, or fill a cluster with pods that do not fit.
        others = scheduler if command.decides else f"{scheduler}-nobody"
        population = self._population
        await population.clear()
        await population.create_init(scheduler, others)
        pods = population.measured(MEASURED.removesuffix("-"), scheduler)
        waiting = plan.rate == 0
        port = free_port()
        arguments = self._arguments(command, scheduler, port)
        if waiting:
            await self._api.create_all(pods)
        _, version = await self._api.list_all("/api/v1/namespaces")
        loop = asyncio.get_running_loop()
        error = ""
        async with Observer(self._api.transport, MEASURED, version) as observer:
            process = SchedulerProcess(arguments, self._out / f"{scheduler}.log")
            began = process.started
            arriving: asyncio.Task[None] | None = None
            unrest = None
            try:
                if not waiting:
                    await self._warm_up(process, scheduler)
                    began = time.monotonic()
                    arriving = loop.create_task(self._arrive(pods, plan.rate))
                unrest = loop.create_task(Unrest(self._api, self._catalog, self._workload, others).run(version))
                error = await self._await_bindings(observer, process, len(pods), plan.patience)
                if arriving is not None:
                    await arriving
                unrest.cancel()
                with suppress(asyncio.CancelledError):
                    await unrest
                await self._come_to_rest(process, port)
            except (CommandFailed, RequestRefused, WatchLost) as problem:
                error = str(problem)
            finally:
                for task in (arriving, unrest):
                    if task is not None:
                        task.cancel()
                metrics = await loop.run_in_executor(None, read_metrics, port)
                await process.stop()
        written = await population.count_events(MEASURED, scheduler)
        return self._result(command, plan, observer, process, began, len(pods), metrics, written, error)

    @staticmethod
    async def _come_to_rest(process: SchedulerProcess, port: int) -> None:
        """Waits until all events are written: the process rests, and knows of none that wait, if it says so.

        On a busy machine a process may seem to rest because it does not get its turn.
        """
        end = time.monotonic() + EVENTS_WITHIN
        while (left := end - time.monotonic()) > 0:
            await process.idle(left)
            if process.ended or not (await asyncio.to_thread(read_metrics, port)).get(_EVENTS_WAITING):
                return

    def _arguments(self, command: Command, scheduler: str, port: int) -> list[str]:
        config, config_all = self._out / f"{scheduler}.json", self._out / f"{scheduler}-all.json"
        for path in (config, config_all):
            write_config(
                path, scheduler, self._server.kubeconfig, self._workload.profile, score_every_node=path is config_all
            )
        values = {
            "name": scheduler,
            "kubeconfig": str(self._server.kubeconfig),
            "config": str(config),
            "config_all": str(config_all),
            "port": str(port),
            "server": self._server.url,
            "token": self._server.token,
        }
        return command.arguments(values)

    async def _warm_up(self, process: SchedulerProcess, scheduler: str) -> None:
        """Waits until a first pod has been bound and everything has calmed down."""
        _, version = await self._api.list_all("/api/v1/namespaces")
        async with Observer(self._api.transport, "probe", version) as probe:
            await self._api.create(self._population.probe(scheduler))
            problem = await self._await_bindings(probe, process, 1, PROBE_WITHIN)
        if problem:
            raise CommandFailed(f"the first pod was not bound: {problem}")
        await process.idle(SETTLE_WITHIN)

    async def _arrive(self, pods: list[dict[str, object]], rate: float) -> None:
        if rate > 0:
            await self._population.create_at(pods, rate)
        else:
            await self._api.create_all(pods)

    @staticmethod
    async def _await_bindings(observer: Observer, process: SchedulerProcess, pods: int, patience: float) -> str:
        """Waits until so many pods are bound; what went wrong, or nothing."""
        known = 0
        since = time.monotonic()
        while len(observer.bound) < pods:
            process.check()
            await observer.progress(1.0)
            if len(observer.bound) > known:
                known, since = len(observer.bound), time.monotonic()
            elif time.monotonic() - since > patience:
                return f"no binding for {patience:g} s"
            elif process.ended and time.monotonic() - since > 2.0:
                return "the scheduler ended"
        return ""

    def _result(
        self,
        command: Command,
        plan: Plan,
        observer: Observer,
        process: SchedulerProcess,
        began: float,
        pods: int,
        metrics: dict[str, float],
        written: int,
        error: str,
    ) -> results.Result:
        moments = sorted(observer.bound.values())
        origin = began if plan.rate else (moments[0] if moments else began)
        cpu_before = process.cpu_at(origin)
        latencies = [
            bound - observer.appeared[name] for name, bound in observer.bound.items() if name in observer.appeared
        ]
        dropped = [value for name, value in metrics.items() if name.startswith("koordsched_events_dropped_total")]
        return results.Result(
            scheduler=command.name,
            command=command.template,
            workload=self._name,
            arrival=plan.arrival,
            nodes=self._workload.node_count,
            pods=pods,
            bound=len(moments),
            pods_per_second=round(results.mean_rate(moments, observer.first_change), 1),
            series=results.per_second(moments),
            first_binding=round(moments[0] - began, 3) if moments else 0.0,
            last_binding=round(moments[-1] - began, 3) if moments else 0.0,
            latency=results.latency_of(latencies) if plan.rate else None,
            cpu_ms_per_pod=round((process.cpu_seconds - cpu_before) / max(1, len(moments)) * 1e3, 4),
            startup_cpu_seconds=round(cpu_before, 2),
            peak_rss_mib=process.peak_rss_mib,
            events_written=written,
            events_dropped=int(sum(dropped)) if dropped else None,
            block_ms=_milliseconds(metrics.get(f'{BLOCK}{{clock="wall"}}')),
            block_cpu_ms=_milliseconds(metrics.get(f'{BLOCK}{{clock="cpu"}}')),
            gc_pause_ms=_milliseconds(metrics.get("koordsched_gc_pause_max_seconds")),
            distinct_nodes=len(set(observer.nodes.values())),
            curve=results.curve_of(moments, origin),
            error=error,
        )


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 1)


def read_metrics(port: int) -> dict[str, float]:
    """The samples at /metrics of a plain HTTP port, by name with labels; none if nobody answers there."""
    samples: dict[str, float] = {}
    with suppress(OSError, ValueError), urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
        for line in response.read().decode().splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                samples[name] = float(value)
    return samples
