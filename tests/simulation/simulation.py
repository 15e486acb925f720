"""One run: a cluster, replicas of the scheduler, users and weather, all of it decided by a seed."""

import asyncio
import logging
from dataclasses import dataclass, field

from tests.simulation.affinityinvariants import AffinityInvariants
from tests.simulation.apiserver import Server
from tests.simulation.breakerinvariants import NAMESPACES, BreakerInvariants
from tests.simulation.claiminvariants import CLAIMS as DEVICE_CLAIMS
from tests.simulation.claiminvariants import SLICES, ClaimInvariants, without_served
from tests.simulation.claimreckoning import strays, wrong_claims
from tests.simulation.claimusers import ClaimUsers
from tests.simulation.configuration import gang_defaults, has_native_groups, heeds_rules, preempts_by_pod
from tests.simulation.deviceinvariants import REPORTS, DeviceInvariants
from tests.simulation.devicetaints import RULES
from tests.simulation.deviceusers import DeviceUsers
from tests.simulation.extenders import Extender
from tests.simulation.ganginvariants import POD_GROUPS, GangInvariants
from tests.simulation.gangreckoning import GangReckoning, forgotten, stale_notices, stuck
from tests.simulation.gangusers import GangUsers
from tests.simulation.interruptions import Interruptions
from tests.simulation.invariants import PODS, Invariants
from tests.simulation.kubelets import Kubelets
from tests.simulation.loadusers import LoadUsers
from tests.simulation.loop import SimulationLoop
from tests.simulation.moves import Moves
from tests.simulation.nativeinvariants import GROUPS, NativeInvariants
from tests.simulation.nativeusers import NativeUsers
from tests.simulation.nodefaults import NodeFaults
from tests.simulation.numainvariants import TOPOLOGIES, NumaInvariants
from tests.simulation.numausers import NumaUsers
from tests.simulation.permits import GATE, PermitInvariants
from tests.simulation.plan import Plan
from tests.simulation.quotainvariants import QUOTAS, QuotaInvariants
from tests.simulation.quotareckoning import QuotaReckoning
from tests.simulation.quotausers import QuotaUsers
from tests.simulation.reckoning import Reckoning
from tests.simulation.replica import Process, Replica
from tests.simulation.reservationinvariants import RESERVATIONS, ReservationInvariants
from tests.simulation.reservationreckoning import ReservationReckoning
from tests.simulation.reservationusers import ReservationUsers
from tests.simulation.reservedroom import is_ending
from tests.simulation.resizes import Resizes, least_requested
from tests.simulation.tables import wrong_tables
from tests.simulation.trace import Trace
from tests.simulation.users import Users
from tests.simulation.volumeinvariants import CLAIMS, CSI_NODES, VOLUMES, VolumeInvariants
from tests.simulation.volumeusers import VolumeUsers
from tests.simulation.weather import Weather

SETTLED = 75.0
"""Virtual seconds from the last fault until everything that fits must have its node."""

CALM = 20.0
"""Virtual seconds from the last fault until no request is on its way that was sent before."""

LOOKS = 400
"""Twenty a virtual second: by then replicas have heard of what was written last, and ended the attempts they are at."""
LOOK_EVERY = 1.0
"""Virtual seconds between two looks at what gangs wait for."""

EXPECTED = ("lost lease", "cannot get or renew lease")
"""Errors in the log that faults explain."""


@dataclass
class Outcome:
    """What came of a run; `violations` is empty if all went well."""

    seed: object
    violations: list
    digest: str
    steps: int
    bindings: int
    virtual: float
    trace: list = field(repr=False)
    log: list = field(repr=False)

    @property
    def failed(self):
        return bool(self.violations)

    def report(self, lines=60):
        """For people: what is wrong, the last steps, and how to see it again."""
        head = [f"seed {self.seed}: {len(self.violations)} violations after {self.steps} steps", *self.violations[:10]]
        again = f"replay: python -m tests.simulation --seed {self.seed} --trace"
        return "\n".join([*head, "--- the last steps", *self.trace[-lines:], *self.log[-5:], "---", again])


class Simulation:
    """The parts of a run, and its course."""

    def __init__(self, seed, trace_length):
        loop = asyncio.get_running_loop()
        self.plan = Plan.of(seed)
        self.trace = Trace(loop.time, trace_length)
        self.server = Server(f"{seed} server", self.trace)
        self._violated = asyncio.Event()
        self.invariants = Invariants(self.server, self.trace, self._violated.set)
        features, checks = self.plan.features, self.invariants.features
        self.quotas = QuotaUsers(self) if "quotas" in features else None
        self.volumes = VolumeUsers(self) if "volumes" in features else None
        self.loads = LoadUsers(self) if "loads" in features else None
        self.faults = NodeFaults(self) if "breakers" in features else None
        self.breaker_checks = BreakerInvariants(self) if self.faults is not None else None
        self.numa = NumaUsers(self) if "numa" in features else None
        self.devices = DeviceUsers(self) if "devices" in features else None
        self.reservations = ReservationUsers(self) if "reservations" in features else None
        self.gangs = GangUsers(self) if "gangs" in features else None
        self.claims = ClaimUsers(self) if "claims" in features else None
        self.natives = NativeUsers(self) if has_native_groups(self.plan) else None
        self.resizes = Resizes(self) if self.plan.resizes else None
        self.invariants.least_requested = least_requested if self.plan.resizes else None
        self.moves = Moves(self) if self.plan.moves else None
        self.native_checks = None
        if self.natives is not None:
            self.native_checks = NativeInvariants(self.invariants, self.server)
        self.gang_checks = None
        if self.gangs is not None:
            self.gang_checks = GangInvariants(self.invariants, self.server, gang_defaults(self.plan))
        self.interruptions = Interruptions(self) if self.plan.interruptions else None
        self.permits = PermitInvariants(self.invariants) if "permits" in features else None
        self.extender = Extender(self) if "extenders" in features else None
        self.users = Users(self)
        self._quota_checks, self._volume_checks = None, None
        if self.quotas is not None:
            self._quota_checks = QuotaInvariants(self.invariants, self.server, self.plan, self.users.broken)
        if self.volumes is not None:
            self._volume_checks = VolumeInvariants(self.invariants, self.server)
        more = [self.permits, self.extender, self.gang_checks, self._volume_checks, self._quota_checks]
        if self.numa is not None:
            more.append(NumaInvariants(self.invariants, self.server, self.numa))
        if self.devices is not None:
            more.append(DeviceInvariants(self.invariants, self.server, self.devices))
        if self.claims is not None:
            more.append(ClaimInvariants(self.invariants, self.server, heeds_rules(self.plan)))
            self.invariants.without_served = without_served
        if self.reservations is not None:
            self.invariants.reserved = ReservationInvariants(self)
            more.append(self.invariants.reserved)
        more.append(AffinityInvariants(self.invariants))
        checks += [each for each in more if each is not None]
        self.kubelets = Kubelets(self)
        self.weather = Weather(self)
        self.replicas = [Replica(letter, self) for letter in "abc"[: self.plan.replicas]]
        self.trace(str(self.plan))

    @property
    def compacted(self):
        """Paths of what is compacted beside pods and nodes."""
        quotas = [QUOTAS] if self.quotas is not None and self.quotas.are_known else []
        volumes = [CLAIMS, VOLUMES, CSI_NODES] if self.volumes is not None else []
        reports = [TOPOLOGIES] if self.numa is not None else []
        reports += [REPORTS] if self.devices is not None else []
        reports += [RESERVATIONS] if self.reservations is not None else []
        reports += [DEVICE_CLAIMS, SLICES, RULES] if self.claims is not None else []
        reports += [POD_GROUPS] if self.gangs is not None else []
        reports += [GROUPS] if self.natives is not None else []
        return quotas + reports + volumes + ([NAMESPACES] if self.faults is not None else [])

    def leader(self):
        """The process that acts, None while there is none."""
        running = [replica.process for replica in self.replicas if not replica.process.main.done()]
        leading = [process for process in running if process.may_write() and process.synced.is_set()]
        return leading[0] if leading else None

    async def run(self):
        """The whole course; returns at the first violation."""
        course = asyncio.create_task(self._course())
        violated = asyncio.create_task(self._violated.wait())
        await asyncio.wait({course, violated}, return_when=asyncio.FIRST_COMPLETED)
        violated.cancel()
        if not course.done():
            course.cancel()
        await asyncio.gather(course, violated, return_exceptions=True)
        if not course.cancelled():
            course.result()

    async def _course(self):
        create = asyncio.create_task
        self.users.settle_in()
        lasting = [create(self.kubelets.collect_garbage()), *(create(replica.run()) for replica in self.replicas)]
        if self.gangs is not None:
            lasting.append(create(self._watch_gangs()))
        weather = self.weather
        making = (self.users.run(), weather.networks(), weather.troubles(), weather.handovers())
        trouble = [create(trouble) for trouble in making]
        try:
            await asyncio.sleep(self.plan.chaos)
            for task in trouble:
                task.cancel()
            await asyncio.gather(*trouble, return_exceptions=True)
            self.trace("faults end")
            self.weather.clear()
            self.users.tidy_up()
            stages = [self.faults.stage(self.breaker_checks)] if self.faults is not None else []
            await asyncio.gather(asyncio.sleep(SETTLED), self._be_calm(), *stages)
            if self.faults is not None:
                await self.faults.quiet()
            if self.quotas is not None:
                self.quotas.grow()
                await asyncio.sleep(SETTLED)
            await self._until_no_reservation_ends()
            await self._come_to_rest([leader for leader in [self.leader()] if leader is not None])
            for task in lasting:
                if task.done():
                    task.result()  # none of them ends by itself
            await self._reckon()
        finally:
            for task in [*trouble, *lasting]:
                task.cancel()
            await asyncio.gather(*trouble, *lasting, return_exceptions=True)
            await self._end_all()

    async def _be_calm(self):
        await asyncio.sleep(CALM)
        self.invariants.calm = True

    async def _until_no_reservation_ends(self):
        """By the leader's clock, which may differ so much that one ends at any time; nor was one deleted just now."""
        known = None
        while self.reservations is not None and (leader := self.leader()) is not None:
            things = self.reservations.objects()
            before, known = known, {thing["metadata"]["uid"] for thing in things}
            if known == before and not any(is_ending(thing, leader.clock.wall()) for thing in things):
                return
            await asyncio.sleep(1)

    async def _watch_gangs(self):
        while True:
            await asyncio.sleep(LOOK_EVERY)
            for process in (replica.process for replica in self.replicas):
                if process is not None and process.synced.is_set() and not process.is_ending():
                    for text in forgotten(process.scheduler):
                        self.invariants.fail(f"{process.name}: {text}")

    async def _reckon(self):
        fail = self.invariants.fail
        quotas = self._quota_checks.now() if self._quota_checks is not None else None
        storage = self._volume_checks.objects() if self._volume_checks is not None else ()
        gangs = None
        if self.gangs is not None:
            gangs = GangReckoning(self.gang_checks, self.users.broken, self.plan, self.native_checks)
        reckoning = Reckoning(
            self.server,
            self.users.broken,
            quotas,
            storage,
            self.loads,
            self._set_apart(),
            self.numa,
            self.devices,
        )
        reckoning.gangs, reckoning.preempts = gangs, preempts_by_pod(self.plan)
        reckoning.claims = self.claims
        if self.reservations is not None:
            reckoning.reservations = ReservationReckoning(self)
        for text in [*reckoning.unplaced(), *reckoning.unredeemed(), *reckoning.wrong_reservations()]:
            fail(text)
        leader = self.leader()
        now = leader.clock.wall() if leader is not None else None
        for text in gangs.wrong(reckoning, self._quota_checks, now) if gangs is not None else ():
            fail(text)
        for text in wrong_claims(self.server, reckoning.waits) if self.claims is not None else ():
            fail(text)
        running = [replica.process for replica in self.replicas if not replica.process.main.done()]
        if len(running) < len(self.replicas):
            fail("not every replica is running")
        fresh = Process("rebuild", self, 0.0, observes=True)
        await fresh.synced.wait()
        await self._come_to_rest([*running, fresh])
        for text in self._wrong_with_quotas(quotas, fresh):
            fail(text)
        for process in running:
            texts = [*reckoning.strays(process), *reckoning.unheard(process), *reckoning.differences(process, fresh)]
            more = [*wrong_tables(process.scheduler), *process.unread(), *self._wrong_breakers(process)]
            more += strays(process.scheduler) if self.claims is not None else ()
            more += [*stuck(process.scheduler), *(stale_notices(process.scheduler) if process.may_write() else ())]
            for text in [*texts, *(f"{process.name}: {text}" for text in more)]:
                fail(text)
        for text in self._wrong_breakers(fresh):
            fail(text)
        fresh.terminate()
        await asyncio.wait([fresh.main])

    async def _come_to_rest(self, processes):
        """Waits until none of these is about to handle what was written while the newest of them was reading, or tries
        a pod; at most a while, then they are judged as they are."""
        for _ in range(LOOKS):
            if not any(map(self._is_busy, processes)):
                return
            await asyncio.sleep(0.05)

    def _is_busy(self, process):
        scheduler, reflectors = process.scheduler, process.scheduler.watches.reflectors
        under_way = [*scheduler.queue.in_flight_pods(), *scheduler.cluster.assumed]
        if self.breaker_checks is not None and process.may_write() and not self.breaker_checks.is_quiet(process):
            return True
        return bool(under_way or scheduler.binding.in_flight or scheduler._status._under_way) or any(
            int(reflectors[path].resource_version or 0)
            < max((each.rv for each in self.server.records(path)), default=0)
            for path in (PODS, *self.compacted)
            if path in reflectors
        )

    def _set_apart(self):
        """(workloads that are quarantined, nodes on which no pod can start)."""
        nodes = [node["metadata"] for node in self.server.objects("Node")]
        closed = {meta["name"] for meta in nodes if (meta.get("labels") or {}).get(GATE) == "closed"}
        if self.faults is None:
            return (), closed
        return self.breaker_checks.quarantined(), closed | {self.faults.lasting}

    def _wrong_breakers(self, process):
        return self.breaker_checks.wrong_states(process, self.faults.lasting) if self.faults is not None else ()

    def _wrong_with_quotas(self, quotas, fresh):
        if quotas is None:
            return []
        reckoning = QuotaReckoning(self.server, self.quotas, quotas)
        found = [*reckoning.stale_statuses(), *reckoning.differences(fresh)]
        return found + (reckoning.overused() if self.plan.revokes and self.plan.by_runtime else [])

    async def _end_all(self):
        """Ends every process in an orderly way; what is left of any of them afterwards has leaked."""
        loop = asyncio.get_running_loop()
        self.weather.clear()
        processes = [process for replica in self.replicas for process in replica.processes]
        for process in processes:
            loop.resume_process(process.name)
            process.terminate()
        await asyncio.wait([asyncio.gather(*(p.main for p in processes), return_exceptions=True)], timeout=60)
        await asyncio.sleep(45)
        for process in processes:
            for task in loop.tasks_of(process.name):
                self.invariants.fail(f"{process.name} leaked {task.get_coro().__qualname__}")
                task.cancel()


class _Log(logging.Handler):
    """Keeps what the code under test says; errors that no fault explains are violations."""

    def __init__(self, level):
        super().__init__(level)
        self.lines = []
        self.errors = []

    def emit(self, record):
        text = f"{record.levelname} {record.name}: {record.getMessage()}"
        if record.exc_info and record.exc_info[1] is not None:
            text += f" ({record.exc_info[1]!r})"
        self.lines.append(text)
        if record.levelno >= logging.ERROR and not record.getMessage().startswith(EXPECTED):
            self.errors.append(text)


def run(seed, *, trace_length=400, log_level=logging.ERROR):
    """Runs one seed; the same seed takes the same steps."""
    log, logger = _Log(log_level), logging.getLogger("koordsched")
    level, logger.level = logger.level, log_level
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(log)
    try:
        with asyncio.Runner(loop_factory=SimulationLoop) as runner:
            return runner.run(_run(seed, trace_length, log))
    finally:
        logger.removeHandler(log)
        logger.setLevel(level)
        logger.propagate = propagate


async def _run(seed, trace_length, log):
    loop = asyncio.get_running_loop()
    began = loop.time()
    simulation = Simulation(seed, trace_length)
    await simulation.run()
    trace, invariants = simulation.trace, simulation.invariants
    return Outcome(
        seed=seed,
        violations=[*invariants.violations, *(f"log: {text}" for text in log.errors), *loop.failures],
        digest=trace.digest,
        steps=trace.steps,
        bindings=invariants.bindings,
        virtual=loop.time() - began,
        trace=trace.lines,
        log=log.lines,
    )
