"""What goes wrong: the weather of each network, and the fate of processes."""

import asyncio
from random import Random

from tests.simulation.apiserver import call_later
from tests.simulation.invariants import NODES, PODS
from tests.simulation.network import CALM, FLAKY, REFUSING, SILENT


class Weather:
    """Makes trouble until cancelled; `clear` ends all of it."""

    def __init__(self, simulation):
        self.simulation = simulation
        self.plan = simulation.plan
        self.trace = simulation.trace
        self.rng = Random(f"{simulation.plan.seed} weather")
        self._handovers = Random(f"{simulation.plan.seed} times of hand-overs")
        self._interruptions = Random(f"{simulation.plan.seed} interruptions of gangs")
        self._later = []
        self.is_clear = False
        """Whether the faults have ended."""
        if self.plan.interrupted_gangs:
            simulation.server.registry.subscribe_changes(simulation.server.resource("Pod"), self._pod_changed)

    def _processes(self):
        running = [replica.process for replica in self.simulation.replicas if replica.process is not None]
        return [process for process in running if not process.main.done()]

    async def networks(self):
        """Changes the weather of one network after the other."""
        while True:
            await asyncio.sleep(self.rng.uniform(0.5, 10))
            processes = self._processes()
            if processes:
                process = self.rng.choice(processes)
                weather = self.rng.choices([CALM, FLAKY, None], self.plan.weather)[0]
                weather = weather or self.rng.choice([REFUSING, SILENT])
                self.trace(f"{process.name} network {weather}")
                process.network.set_weather(weather)

    async def troubles(self):
        """Something worse, now and then."""
        actions = [
            (4, self._kill_soon), (2, self._terminate), (3, self._pause), (3, self._compact), (2, self._step_clock),
            (1, self._outage),
        ]  # fmt: skip
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / self.plan.trouble_between))
            await self.rng.choices([action for _, action in actions], [weight for weight, _ in actions])[0]()

    async def handovers(self):
        """Leaders end while whoever leads next has not seen what they did last."""
        while self.plan.blind_handovers:
            await asyncio.sleep(self._handovers.uniform(1, 5))
            processes = self._processes()
            leading = [process for process in processes if process.may_write()]
            if not leading or len(processes) == 1:
                continue
            for process in processes:
                if process not in leading:
                    # They may have to wait for the end of the lease first.
                    process.network.blind(PODS, self.plan.lease[0] + self._handovers.uniform(1, 5))
            await asyncio.sleep(self._handovers.uniform(0.1, 2))
            for process in leading:
                self.trace(f"{process.name} told to end, the others see pods late")
                process.terminate()

    def _pod_changed(self, change):
        """A leader is killed within a gang now and then: some members are bound, others are not yet seen to be."""
        writer, node = self.simulation.server.writer, change.new["spec"].get("nodeName")
        if self.is_clear or not node or not writer or change.old is None or change.old["spec"].get("nodeName"):
            return
        if self._interruptions.random() < 0.4 and self.simulation.gang_checks.companions_on_their_way(
            writer, change.record.uid
        ):
            self.trace(f"{writer} is to end within a gang")
            self._later.append(call_later(self._interruptions.uniform(0, 0.01), self._kill, writer))

    def _kill(self, name):
        for process in self._processes():
            if process.name == name:
                process.kill()

    def clear(self):
        """Everything works from now on, and everybody runs."""
        self.is_clear = True
        for timer in self._later:
            timer.cancel()
        loop = asyncio.get_running_loop()
        for process in self._processes():
            loop.resume_process(process.name)
            process.network.heal()

    def _one(self):
        processes = [p for p in self._processes() if not asyncio.get_running_loop().is_stopped(p.name)]
        return self.rng.choice(processes) if processes else None

    async def _kill_soon(self):
        """At a step of its own: a few requests and a few turns of the loop from now."""
        process = self._one()
        if process is None:
            return
        requests = process.network.requests + self.rng.choice([0, 1, 2, 5, 20])
        for _ in range(200):
            if process.network.requests >= requests:
                break
            await asyncio.sleep(0.001 if process.synced.is_set() else 0.02)
        for _ in range(self.rng.randrange(12)):
            await asyncio.sleep(0)
        if not process.main.done():
            await process.kill()

    async def _terminate(self):
        """At any time, or while a write of its is late."""
        process = self._one()
        if process is None:
            return
        for _ in range(self.rng.choice([0, 200])):
            if process.network.late_writes or process.main.done():
                break
            await asyncio.sleep(0.05)
        self.trace(f"{process.name} told to end")
        process.terminate()

    async def _pause(self):
        process = self._one()
        if process is None:
            return
        for _ in range(self.rng.randrange(12)):
            await asyncio.sleep(0)
        loop, length = asyncio.get_running_loop(), self.rng.choice([0.5, 5, 40]) * self.rng.random()
        self.trace(f"{process.name} stopped for {length:.3f}")
        loop.stop_process(process.name)
        self._later.append(loop.call_later(length, self._resume, process.name))

    def _resume(self, name):
        self.trace(f"{name} resumed")
        asyncio.get_running_loop().resume_process(name)

    async def _compact(self):
        """While one replica is cut off, what it misses is forgotten: it has to list anew."""
        process = self._one()
        if process is None:
            return
        process.network.set_weather(REFUSING)
        await asyncio.sleep(self.rng.uniform(0.5, 10))
        self.trace(f"compaction, while {process.name} was cut off")
        for path in (PODS, NODES, *self.simulation.compacted):
            self.simulation.server.compact(path)
        process.network.set_weather(CALM)

    async def _step_clock(self):
        process = self._one()
        if process is not None:
            step = self.rng.choice([-1000, -30, -1, 1, 30, 1000]) * self.rng.random()
            self.trace(f"{process.name} wall clock moves by {step:.3f}")
            process.clock.wall_offset += step

    async def _outage(self):
        """The server is away: every connection is lost, its state is kept."""
        self.trace("server goes away")
        processes = self._processes()
        for process in processes:
            process.network.set_weather(REFUSING)
        await asyncio.sleep(self.rng.uniform(0.1, 12))
        self.trace("server is back")
        for process in processes:
            process.network.set_weather(CALM)
