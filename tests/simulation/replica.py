"""One replica of the scheduler: what the daemon wires together, as a process of the simulation.

A process can be ended as by SIGTERM, killed as by SIGKILL at any await, and stopped and resumed as by SIGSTOP and
SIGCONT. When it ends, its supervisor starts it anew, with nothing but what the API server knows.
"""

import asyncio
from contextvars import copy_context
from functools import partial
from random import Random
from unittest.mock import patch

from koordsched.cli.daemon import SETTLING
from koordsched.client.lanes import Lane, Lanes
from koordsched.client.leaderelection import ElectionConfig, Elector
from koordsched.extender import client
from koordsched.observability.metrics import Metrics
from koordsched.scheduling.placement import stays
from koordsched.scheduling.scheduler import Scheduler
from tests.plugins.reservation.naive.names import IGNORED
from tests.simulation import configuration
from tests.simulation.conditions import LastWords
from tests.simulation.invariants import NODES, Decision
from tests.simulation.leaseedges import LeaseEdges
from tests.simulation.loop import OWNER
from tests.simulation.network import Network
from tests.simulation.permits import Gatekeeper
from tests.simulation.quotainvariants import QUOTAS
from tests.virtualtime import VirtualClock

NEVER = 1e9
"""Seconds that a pod may sit unschedulable: the flush is a safety net, and a net would hide what falls."""


class WorkingClock(VirtualClock):
    """Reading the monotonic clock costs time: work takes some, so time slices end. `boottime_costs`: so does reading
    the clock by which leases count."""

    def __init__(self, loop, wall_offset, cost, boottime_costs=False):
        super().__init__(loop, wall_offset)
        self._cost = cost
        self._boottime_cost = cost if boottime_costs else 0.0

    def monotonic(self):
        self._loop.burn(self._cost)
        return super().monotonic()

    def boottime(self):
        self._loop.burn(self._boottime_cost)
        return super().boottime()


class Process:
    """One life of a replica."""

    def __init__(self, name, simulation, wall_offset, *, observes=False):
        """`observes`: it watches and never acts."""
        self.name = name
        self.simulation = simulation
        self.plan = plan = simulation.plan
        self.trace = simulation.trace
        self.network = Network(name, plan, simulation.trace, simulation.server.state_at, simulation.invariants.fail)
        self.clock = WorkingClock(asyncio.get_running_loop(), wall_offset, plan.cycle_cost, plan.lease_edges)
        if plan.lease_edges and not observes:
            self.network.edges = LeaseEdges(self)
        self.scheduler = None
        self._words = None
        self.elector = None
        self.transport = None
        self.observes = observes
        self._held = None
        """What was known when a scheduling cycle with extenders began, while it lasts."""
        self._on_their_way = set()
        """uids of the pods that were being bound when the last one was placed."""
        self.synced = asyncio.Event()
        self._stopping = asyncio.Event()
        self._elected = asyncio.Event()
        context = copy_context()
        context.run(OWNER.set, name)
        self.main = asyncio.get_running_loop().create_task(self._run(), context=context, name=name)

    def is_ending(self):
        """Whether it has ended, or takes nothing up any more."""
        return self._stopping.is_set() or self.network.dead or self.main.done()

    # --- what is done to it --------------------------------------------------------------------------

    def terminate(self):
        """SIGTERM."""
        self._stopping.set()

    def kill(self):
        """SIGKILL: nothing it does from here on reaches anybody; requests under way may or may not arrive.

        Returns the task that clears away what is left of it.
        """
        loop, rng = asyncio.get_running_loop(), self.network.rng
        self.trace(f"{self.name} killed")
        self.network.dead = True
        if self.transport is not None:
            for request in list(self.transport._serving):
                if rng.random() < 0.5:
                    request.cancel()
        loop.resume_process(self.name)
        return loop.create_task(self._bury())

    async def _bury(self):
        """Ends its tasks, and those that they start when they end."""
        loop = asyncio.get_running_loop()
        while tasks := loop.tasks_of(self.name):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def unread(self):
        """Texts about pods whose status does not say what this one said, if it is the one that acts."""
        return self._words.unread(self.simulation.server.objects("Pod")) if self.may_write() else []

    # --- what it does --------------------------------------------------------------------------------

    async def _run(self):
        """As koordsched.cli.daemon.Daemon."""
        rng = Random(f"{self.plan.seed} {self.name}")
        self.transport = self.simulation.server.door(self.name, self.network)
        lanes = Lanes(self.transport, self.clock, rng, fence=self._passes)
        # Certificates take 20 ms to load, and what is posted to extenders never leaves the process.
        with patch.object(client, "tls_context"):
            self.scheduler = Scheduler(
                configuration.resolved(self.plan),
                configuration.PLUGINS,
                transport=self.transport,
                lanes=lanes,
                clock=self.clock,
                rng=rng,
                metrics=Metrics(process_metrics=False, leads=self.may_write),
                hostname=self.name,
                max_unschedulable=NEVER,
                controllers=configuration.controllers(self.plan),
                fence=self.may_write,
            )
        for reflector in self.scheduler.watches.reflectors.values():
            reflector._page_size = self.plan.page_size
        self._words = LastWords(self.scheduler)
        self._watch_decisions()
        if self.simulation.breaker_checks is not None:
            self.simulation.breaker_checks.watch(self)
        permits = self.scheduler.profiles[configuration.PROFILE].plugins.get(Gatekeeper.name)
        if permits is not None:
            permits.waiting = self.scheduler.waiting
            self.simulation.permits.watch(self.name, permits)
        if self.plan.elects and not self.observes:
            self.elector = self._make_elector(lanes, rng)
        try:
            await self._lead()
        finally:
            self._tell_what_was_met()
            await lanes.close()
            await self.transport.close()

    def _tell_what_was_met(self):
        """How much of the bad weather has come through to the reflectors."""
        reflectors = self.scheduler.watches.reflectors.values()
        for what in ("stale_events", "failures"):
            self.trace(f"{self.name} met {what}: {sum(getattr(reflector, what) for reflector in reflectors)}")

    async def _lead(self):
        loop = asyncio.get_running_loop()
        election = None
        if self.elector is not None:
            election = loop.create_task(self.elector.run())
        elif not self.observes:
            self._elected.set()
        work = loop.create_task(self._schedule())
        stopping = loop.create_task(self._stopping.wait())
        waiting = {work, stopping, *([election] if election else [])}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        self._stopping.set()
        work.cancel()
        stopping.cancel()
        if work.done() and not work.cancelled() and work.exception() is not None:
            self.simulation.invariants.fail(f"{self.name}: the scheduling loop ended: {work.exception()!r}")
        await self.scheduler.stop()
        if election is not None and not election.done():
            election.cancel()
            await asyncio.gather(election, return_exceptions=True)

    async def _schedule(self):
        self.scheduler.start()
        await self.scheduler.wait_synced()
        self.synced.set()
        self.trace(f"{self.name} synced")
        await self._elected.wait()
        self.trace(f"{self.name} leads")
        if self.elector is not None:
            await self.scheduler.catch_up()
        await self.scheduler.run()

    def may_write(self):
        return not self.observes and (self.elector is None or self.elector.is_leader())

    def _passes(self):
        """The fence of writes."""
        passes = self.may_write()
        if passes and self.network.edges is not None:
            self.network.edges.passed()
        return passes

    def _make_elector(self, lanes, rng):
        duration, deadline, period = self.plan.lease

        async def write(request):
            return await lanes.submit(Lane.LEASE, request)

        async def may_release():
            await lanes.drain(SETTLING)
            return lanes.quiet_for(duration)

        def on_stopped():
            self.transport.drop_connections()
            self.trace(f"{self.name} leads no more")

        return Elector(
            ElectionConfig(self.name, lease_duration=duration, renew_deadline=deadline, retry_period=period),
            self.transport,
            self.clock,
            rng,
            on_started=self._elected.set,
            on_stopped=on_stopped,
            write=write,
            may_release=may_release,
        )

    def _watch_decisions(self):
        """Notes what was known at each decision, for the invariants."""
        scheduler, invariants = self.scheduler, self.simulation.invariants
        cycle, place, schedule_one = scheduler.cycle, scheduler.cycle.place, scheduler.cycle.schedule_one
        attempted = invariants.attempted.setdefault(self.name, set())
        gangs = self.simulation.gang_checks

        def placing(transaction, attempt, row):
            pod, promises, decision = attempt.pod, self._nominated_rows(attempt.pod), self._decision(row)
            used = self._used(row)
            # A watch may show a binding before its answer comes; until then its pod is on its way for plugins.
            self._on_their_way = {*scheduler.cluster.assumed, *(each.pod.uid for each in scheduler.binding.under_way)}
            invariants.placed(pod.uid, decision, scheduler.cluster.assumed)
            status, waits = place(transaction, attempt, row)
            if stays(status):
                self._check_promises(pod, row, promises.get(decision.node, ()), used)
                if self.simulation.breaker_checks is not None:
                    self.simulation.breaker_checks.taken(self, pod, decision.node, decision)
            return status, waits

        async def observed(queued):
            attempted.add(queued.pod.uid)
            known = self._knowledge()
            placements = await schedule_one(queued)
            if gangs is not None and placements:
                decision = known._replace(acts=self.may_write())
                uids = [each.pod.uid for each in placements]
                for checks in (gangs, self.simulation.native_checks):
                    if checks is not None:
                        checks.placed_together(uids, decision, self._on_their_way)
            for placement in placements:
                pod = placement.queued.pod
                self.trace(f"{self.name} places {pod.key} {pod.uid[:8]} on {placement.node}")
                if self.simulation.claims is not None:
                    self.simulation.claims.placed(pod.namespace, pod.name)
                if self.simulation.interruptions is not None:
                    self.simulation.interruptions.placed(self, placement)
            if not placements:
                self.trace(f"{self.name} places {queued.key} {queued.pod.uid[:8]} on nowhere")
            return placements

        cycle.place, cycle.schedule_one = placing, observed
        if gangs is not None:
            self._watch_jobs(attempted, gangs)
        self._watch_pauses(scheduler._inbox)
        for extender in scheduler._extenders._all if scheduler._extenders is not None else ():
            extender._post = partial(self.simulation.extender.post, self)

    def _watch_jobs(self, attempted, gangs):
        """Notes which pods are tried together, and what is evicted for them."""
        scheduler = self.scheduler
        evict = scheduler.evictions.start
        give_back = scheduler.cycle.give_back
        victims = []

        def beginning(begin, pod):
            job = begin(pod)
            attempted.update(member.uid for member in job.members) if job is not None else None
            return job

        def evicting(trigger, node, pods, **more):
            uids = [pod.uid for pod in pods]
            gangs.leaving(uids)
            if "triggerPod" in more.get("reason", ""):
                victims.extend(uids)
            evict(trigger, node, pods, **more)

        def giving_back(*args):
            known = self._held if self._held is not None else self._knowledge()
            give_back(*args)
            if victims:
                on_their_way = {placement.pod.uid for placement in scheduler.binding.under_way}
                gangs.evicting(victims, on_their_way, known._replace(acts=self.may_write()))
                victims.clear()

        for plugin in scheduler.profiles[configuration.PROFILE].job_plugins:
            plugin.begin_job = partial(beginning, plugin.begin_job)
        scheduler.evictions.start = evicting
        scheduler.cycle.give_back = giving_back

    def _watch_pauses(self, inbox):
        """While a cycle lasts that asks extenders, or places many pods, it reads the state of its beginning; what is
        delivered meanwhile waits in the inbox.
        """
        hold, release = inbox.hold, inbox.release_now

        def holding():
            if self._held is None:
                self._held = self._knowledge()
            hold()

        def releasing():
            release()
            self._held = None

        inbox.hold, inbox.release_now = holding, releasing

    def _decision(self, row):
        """What is known when a pod is placed on a row."""
        table = self.scheduler.cluster.table
        known = self._held if self._held is not None else self._knowledge()
        return known._replace(node=table.names[row], acts=self.may_write())

    def _knowledge(self):
        """What is known at this moment."""
        reflectors = self.scheduler.watches.reflectors
        return Decision(
            self.name,
            "",
            {path: int(reflector.resource_version or 0) for path, reflector in reflectors.items()},
            {
                path
                for path, reflector in reflectors.items()
                if not reflector._listed and (reflector.resource_version or self._knows_any(path))
            },
            order=0,
            read={
                NODES: _versions(node for node in self.scheduler.cluster.table.nodes if node is not None),
                QUOTAS: _versions(self.scheduler.cluster.objects.at(QUOTAS) or ()),
            },
        )

    def _knows_any(self, path):
        """Whether some objects of a kind that was not there have been handled by now."""
        store = self.scheduler.cluster.objects.at(path)
        return store is not None and len(store) > 0

    def _nominated_rows(self, pod):
        """Node name -> pods of at least the same priority that are to go there."""
        nominator = self.scheduler.queue.nominator
        return {
            node: [other for other in nominator.nominated_on(node, pod.priority) if other.uid != pod.uid]
            for node in sorted(nominator.nodes_with_nominated())
        }

    def _used(self, row):
        """What is in use of every resource."""
        return [int(column.data[row]) for column in self.scheduler.cluster.table.requested]

    def _check_promises(self, pod, row, promised, before):
        """The room that a node was cleared for must not go to anybody less important.

        `before`: what was in use; what a Reservation had kept for the pod was. What its restricted options leave out it
        keeps, though the pod takes that room (reservation spec 6, limit 13). Pods that ignore Reservations may have all
        that they keep.
        """
        if pod.labels.labels.get(IGNORED) == "true":
            return
        table = self.scheduler.cluster.table
        for index, amount in pod.requests.amounts if promised else ():
            due = sum(dict(other.requests.amounts).get(index, 0) for other in promised)
            used, there = int(table.requested[index].data[row]), int(table.allocatable[index].data[row])
            known = before[index] + self._kept_twice(pod, index, amount) if index < len(before) else -1
            # What a node has none of is served by claims: devices are promised to no pod.
            if due and there and used + due > there and used > known:
                name = table.resource_names.names[index]
                self.simulation.invariants.fail(
                    f"{self.name} places pod {pod.key} on {table.names[row]}, where {name} is promised to "
                    f"{', '.join(other.key for other in promised)}: {used} + {due} of {there}"
                )

    def _kept_twice(self, pod, index, amount):
        """How much of what a placed pod requests its Reservation keeps all the same."""
        plugin = self.scheduler.profiles[configuration.PROFILE].plugins.get(configuration.RESERVATION)
        used = plugin.cache.allocated.of(pod) if plugin is not None else None
        info = plugin.cache.get(used.uid) if used is not None else None
        return min(amount, info.left(index)) if info is not None and index not in info.terms.names else 0


class Replica:
    """A process and its supervisor, which starts it again whenever it ends."""

    def __init__(self, name, simulation):
        self.name = name
        self.simulation = simulation
        self.rng = Random(f"{simulation.plan.seed} supervisor {name}")
        self.lives = 0
        self.process = None
        self.processes = []

    async def run(self):
        """Until cancelled."""
        await asyncio.sleep(self.rng.uniform(0, 3))
        while True:
            self.lives += 1
            skew = self.rng.uniform(-100, 100)
            self.process = Process(f"{self.name}.{self.lives}", self.simulation, skew)
            self.processes.append(self.process)
            await asyncio.wait([self.process.main])
            main = self.process.main
            if not main.cancelled() and main.exception() is not None and not self.process.network.dead:
                self.simulation.invariants.fail(f"{self.process.name} ended: {main.exception()!r}")
            self.simulation.trace(f"{self.process.name} ended")
            await asyncio.sleep(self.rng.uniform(0.1, 3))


def _versions(objects):
    """Key -> version."""
    return {(o.metadata.namespace, o.metadata.name): int(o.metadata.resource_version) for o in objects}
