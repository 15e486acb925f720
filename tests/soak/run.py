"""One soak: an API server and a scheduler as processes, the load, the disturbances, the samples, the verdicts."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from statistics import median, quantiles

import aiohttp
import msgspec
import yaml

from bench.machine import Machine, describe
from koordsched.client.clock import SystemClock
from koordsched.client.network import NetworkTransport
from koordsched.fakecluster.kubeconfig import kubeconfig, write_kubeconfig
from tests.ha.processes import Process, free_port
from tests.ha.proxy import Proxy
from tests.soak import population
from tests.soak.churn import Churn
from tests.soak.judge import Outcome, Verdict, judge
from tests.soak.observer import Observer
from tests.soak.sampling import Probe, Readings, Sample, cpu_seconds, resident
from tests.soak.user import User

ROOT = Path(__file__).parents[2]
CONFIG = Path(__file__).with_name("config.yaml")

PATIENCE = 120.0
"""Seconds that the end may take: until everything is bound, then until everything is at rest."""
EXPIRE_EVERY = 30.0
"""Seconds between two expirations of Events."""


class Plan(msgspec.Struct):
    """What to run. Times in seconds; `rate` in pods per second.

    `first_outage`: how much longer than a restart takes the server stays away the first time.
    """

    duration: float
    rate: float
    warm_up: float
    restart_every: float
    first_outage: float
    cut_every: float
    sample_every: float
    seed: int
    most_growth: float


class Report(msgspec.Struct):
    """What was found. `restarts`: seconds at which the server was restarted."""

    machine: Machine
    plan: Plan
    nodes: int
    made: int
    bound: int
    given_up: int
    node_failures: int
    nodes_replaced: int
    restarts: list[float]
    cuts: int
    verdicts: list[Verdict]
    outcome: Outcome
    samples: list[Sample]

    @property
    def passed(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)


class Soak:
    """One run in a folder of its own. `say` gets a line now and then."""

    def __init__(self, plan: Plan, folder: Path, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._folder = folder
        self._say = say
        self._rng = Random(plan.seed)
        self._port = free_port()
        self._lives = 0
        self._samples: list[Sample] = []
        self._restarts: list[float] = []
        self._cuts = 0
        self._steady = asyncio.Lock()
        """Held while the server restarts or Events expire: none may go before the observer has seen it."""
        self._secure_port = free_port()
        self._server: Process | None = None
        self._scheduler: Process | None = None
        self._began = 0.0
        self._now = asyncio.get_running_loop().time

    async def run(self) -> Report:
        """Raises TimeoutError or AssertionError when a process does not do what it must."""
        plan = self._plan
        nodes = population.nodes_for(plan.rate)
        async with self._processes() as (transport, proxy, probe):
            user = User(transport)
            observer = Observer(transport, population.quota_limit(plan.rate))
            churn = Churn(user, observer, plan.rate, nodes, self._rng)
            await self._define_quotas(user)
            await churn.prepare()
            await self._start_scheduler(proxy)
            idle_before = await self._rest(probe)
            observer.start()
            self._began = self._now()
            churn.begin()
            duties = [
                asyncio.create_task(work)
                for work in (
                    self._sample(probe, observer, churn),
                    _every(plan.restart_every, lambda: self._restart(churn, observer)),
                    _every(plan.cut_every, lambda: self._cut(proxy)),
                    _every(EXPIRE_EVERY, lambda: self._expire(churn, observer)),
                )
            ]
            await self._watch_over(duties, churn)
            outcome = await self._wind_up(churn, observer, probe, idle_before)
            await observer.stop()
            return Report(
                machine=describe(),
                plan=plan,
                nodes=nodes,
                made=churn.made,
                bound=observer.bound,
                given_up=churn.given_up,
                node_failures=churn.flaps,
                nodes_replaced=churn.replaced,
                restarts=self._restarts,
                cuts=self._cuts,
                verdicts=judge(
                    self._samples, outcome, warm_up=plan.warm_up, rate=plan.rate, most_growth=plan.most_growth
                ),
                outcome=outcome,
                samples=self._samples,
            )

    # --- processes -----------------------------------------------------------------------------------

    @asynccontextmanager
    async def _processes(self) -> AsyncIterator[tuple[NetworkTransport, Proxy, Probe]]:
        """The server runs, and what is needed to speak to it and to the scheduler, which does not run yet."""
        await self._start_server()
        config = self._folder / "kubeconfig"
        write_kubeconfig(config, kubeconfig(f"http://127.0.0.1:{self._port}"))
        transport = await NetworkTransport.open(SystemClock(), kubeconfig=str(config))
        proxy = Proxy(self._port, remember=False)
        probe = Probe(self._secure_port)
        try:
            yield transport, proxy, probe
        finally:
            await probe.close()
            for process in (self._scheduler, self._server):
                if process is not None:
                    await process.destroy()
            await proxy.stop()
            await transport.close()

    async def _start_server(self) -> None:
        loaded = ("--load", str(self._folder / f"dump-{self._lives}")) if self._lives else ()
        self._lives += 1
        self._server = await Process.start(
            "fakecluster",
            f"--port={self._port}",
            "--pod-start-delay=0.3",
            f"--dump={self._folder / f'dump-{self._lives}'}",
            *loaded,
        )
        await self._server.wait_for("fakecluster ready")

    async def _start_scheduler(self, proxy: Proxy) -> None:
        config = self._folder / "scheduler.kubeconfig"
        write_kubeconfig(config, kubeconfig(f"http://127.0.0.1:{await proxy.start()}"))
        self._scheduler = await Process.start(
            "run",
            f"--config={CONFIG}",
            f"--kubeconfig={config}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._secure_port}",
            "--authorization-always-allow-paths=/livez,/readyz,/metrics,/debug/stacks",
        )
        await self._scheduler.wait_for("successfully acquired lease")

    async def _define_quotas(self, user: User) -> None:
        for file in sorted((ROOT / "manifests" / "crds").glob("elastic*.yaml")):
            definition = yaml.safe_load(file.read_text())
            await user.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        await user.create(
            "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "koordinator-system"}}
        )

    # --- disturbances --------------------------------------------------------------------------------

    async def _restart(self, churn: Churn, observer: Observer) -> None:
        """The server ends in an orderly way and comes back with the state it had."""
        async with self._steady:
            began = self._now()
            self._restarts.append(began - self._began)
            observer.lost()
            self._server.signal(signal.SIGTERM)
            await self._server.ended()
            if len(self._restarts) == 1:
                await asyncio.sleep(self._plan.first_outage)
            await self._start_server()
            self._say(f"{began - self._began:6.0f} s: the server was away for {self._now() - began:.1f} s")
            await self._until(lambda: observer.up_to_date, PATIENCE)

    async def _expire(self, churn: Churn, observer: Observer) -> None:
        async with self._steady:
            mark = await churn.expire_events()
            await self._until(lambda: observer.marked == mark, PATIENCE)

    async def _cut(self, proxy: Proxy) -> None:
        """All connections of the scheduler break."""
        self._cuts += 1
        proxy.reset_all()

    # --- looking -------------------------------------------------------------------------------------

    async def _sample(self, probe: Probe, observer: Observer, churn: Churn) -> None:
        next_word = 0.0
        while True:
            await asyncio.sleep(self._plan.sample_every)
            with suppress(aiohttp.ClientError, TimeoutError):
                readings = await probe.read()
                sample = self._taken(readings, observer, churn, busy=True)
                self._samples.append(sample)
                if sample.seconds >= next_word:
                    next_word = sample.seconds + 60.0
                    self._say(_line(sample))

    def _taken(self, readings: Readings, observer: Observer, churn: Churn, *, busy: bool) -> Sample:
        latencies = sorted(observer.latencies())
        p99 = quantiles(latencies, n=100)[-1] if len(latencies) > 1 else 0.0
        return Sample(
            seconds=round(self._now() - self._began, 1),
            busy=busy,
            memory=resident(self._scheduler.pid),
            server_memory=resident(self._server.pid),
            cpu=cpu_seconds(self._scheduler.pid),
            server_cpu=cpu_seconds(self._server.pid),
            created=churn.made,
            bound=observer.bound,
            pods=len(observer.pods),
            latency_median=round(median(latencies), 4) if latencies else 0.0,
            latency_p99=round(p99, 4),
            **msgspec.structs.asdict(readings),
        )

    async def _watch_over(self, duties: list[asyncio.Task[None]], churn: Churn) -> None:
        """Until the time is over; ends with whatever ends one of the duties, or the scheduler."""
        end = self._began + self._plan.duration
        try:
            while self._now() < end:
                await asyncio.sleep(0.2)
                assert self._scheduler.running, "the scheduler ended:\n" + "\n".join(self._scheduler.lines[-20:])
                churn.check()
                for duty in duties:
                    if duty.done():
                        duty.result()
        finally:
            async with self._steady:  # not in the middle of a restart
                for duty in duties:
                    duty.cancel()
            await asyncio.gather(*duties, return_exceptions=True)

    async def _wind_up(self, churn: Churn, observer: Observer, probe: Probe, idle_before: Readings) -> Outcome:
        self._say("the load ends")
        await churn.end()
        await self._until(lambda: not observer.waiting, PATIENCE)
        unbound = [pod.name for pod in observer.waiting]
        await churn.clear()
        await self._until(lambda: not observer.pods and not observer.silent, PATIENCE)
        idle_after = await self._rest(probe)
        self._samples.append(self._taken(idle_after, observer, churn, busy=False))
        return Outcome(idle_before, idle_after, unbound, sorted(observer.silent.values()), observer.wrong)

    async def _until(self, condition: Callable[[], bool], within: float) -> None:
        """Waits for a condition, but no longer than so many seconds."""
        end = self._now() + within
        while not condition():
            if self._now() > end:
                return
            await asyncio.sleep(0.1)

    async def _rest(self, probe: Probe) -> Readings:
        """The readings once nothing is left to do and the number of tasks stands still, or the last ones of many."""
        end = self._now() + PATIENCE
        before = await probe.read()
        while True:
            await asyncio.sleep(1.0)
            readings = await probe.read()
            if (not readings.left and readings.tasks == before.tasks) or self._now() > end:
                return readings
            before = readings


async def _every(seconds: float, act: Callable[[], Awaitable[None]]) -> None:
    """Acts again and again; never if `seconds` is 0."""
    while seconds:
        await asyncio.sleep(seconds)
        await act()


def _line(sample: Sample) -> str:
    return (
        f"{sample.seconds:6.0f} s: {sample.memory / 1024:.1f} MiB, {sample.tasks} tasks, {sample.bound} pods bound, "
        f"{sample.pods} there, waiting {sample.waiting}, p99 {sample.latency_p99:.3f} s"
    )
