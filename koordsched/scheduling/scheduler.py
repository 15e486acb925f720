"""The scheduler, assembled: state, queue, profiles, cycles and watches around one loop.

Everything it needs of the outside (transport, clocks, chance) is handed in, so the same object runs as a
daemon, inside tests against an in-memory API server, and under virtual time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from types import MappingProxyType

from koordsched.api.meta import ObjectMeta
from koordsched.client.clock import Clock
from koordsched.client.lanes import Lanes
from koordsched.client.transport import Transport
from koordsched.cluster.builtinkinds import PODS
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.config.resolving import Resolved
from koordsched.extender.consultation import ExtenderConsultations
from koordsched.extender.extenders import Extenders
from koordsched.extender.objects import ExtenderObjects
from koordsched.framework.controller import ControllerFactory, ControllerHandle
from koordsched.framework.handle import WARNING, Handle, Launch
from koordsched.framework.permit import WaitingPods
from koordsched.framework.pluginstates import PluginStates
from koordsched.framework.profile import PluginFactory, Profile
from koordsched.framework.replicas import OwnReplicas
from koordsched.framework.status import Code, ReasonTable
from koordsched.framework.timers import Timers
from koordsched.observability.events import EventBroadcaster
from koordsched.observability.eventsink import LaneEventSink
from koordsched.observability.metrics import Metrics
from koordsched.queue.backoff import BackoffPolicy
from koordsched.queue.item import QueuedPod
from koordsched.queue.queue import SchedulingQueue
from koordsched.queue.timers import MAX_UNSCHEDULABLE
from koordsched.scheduling.apiwrites import ApiWrites
from koordsched.scheduling.assembly import build_profiles
from koordsched.scheduling.background import Background
from koordsched.scheduling.binding import BindingCycle
from koordsched.scheduling.controllers import build_controllers, running
from koordsched.scheduling.controllerwatches import ControllerWatches
from koordsched.scheduling.cycle import SchedulingCycle, unmeasured
from koordsched.scheduling.decisions import Decisions
from koordsched.scheduling.eviction import PreemptionEvictions
from koordsched.scheduling.failure import UNSCHEDULABLE, FailedAttempt, FailureHandler
from koordsched.scheduling.handlers import NodeHandler, PodHandler
from koordsched.scheduling.inbox import Inbox
from koordsched.scheduling.objectwrites import ObjectWrites
from koordsched.scheduling.overcommitment import OvercommitmentReports, ignored_resources
from koordsched.scheduling.pending import PendingPods
from koordsched.scheduling.placement import AssumedPod
from koordsched.scheduling.podstatus import PodStatusWriter
from koordsched.scheduling.queueprofile import queue_profile
from koordsched.scheduling.recording import NOT_RECORDING, Recorder
from koordsched.scheduling.reporter import Reporter, UserReporter
from koordsched.scheduling.timing import HintTimes
from koordsched.scheduling.unreadable import Unreadable
from koordsched.scheduling.virtualpods import VirtualPodHandler, VirtualPodWriters
from koordsched.scheduling.waitnotices import WaitNotices
from koordsched.scheduling.watching import Watches

_log = logging.getLogger(__name__)

TIME_SLICE = 0.005
"""Seconds of scheduling after which watches and writes get their turn."""

FUTILE_SLICE = 0.0005
"""The same for attempts that place nothing, where namespaces take turns: no placement waits for their outcome."""

FUTILE_ROUNDS = 8
"""Rounds of the event loop in that case: a pod's way from the watch to its binding takes several rounds, each of which
would otherwise cost it a slice."""

MAX_BINDING = 256
"""Placed pods whose binding is under way and does not just wait, at most: twice as many as are written at once. During
an API outage the whole queue must not be assumed, nor must an important pod wait behind a thousand earlier ones.
"""


class Scheduler:
    """One scheduler. `start` begins to watch, `run` schedules until cancelled, `stop` leaves no write in doubt."""

    def __init__(
        self,
        resolved: Resolved,
        registry: Mapping[str, PluginFactory],
        *,
        transport: Transport,
        lanes: Lanes,
        clock: Clock,
        rng: Random,
        metrics: Metrics,
        hostname: str,
        max_unschedulable: float = MAX_UNSCHEDULABLE,
        max_binding: int = MAX_BINDING,
        fair_namespaces: bool = False,
        own_pod: tuple[str, str] = ("", ""),
        controllers: Mapping[str, ControllerFactory] = MappingProxyType({}),
        fence: Callable[[], bool] = lambda: True,
        recorder: Recorder = NOT_RECORDING,
        reporter: Reporter | None = None,
        launch: Launch | None = None,
        cpu_time: Callable[[], float] = unmeasured,
    ) -> None:
        """`own_pod`: namespace and name of the pod this runs in, if any. `controllers`: by the plugin that needs them;
        they run while `run` does. `fence` says whether we may act, for acts
        that do not go through the lanes. `recorder` hears of every step. `reporter` and `launch`, which gets evictions
        to carry out, replace those that write, for a scheduler that only repeats decisions.

        Raises ProfileError if the profiles cannot be built, ExtenderConfigError if the extenders cannot.
        """
        self._clock = clock
        self._max_binding = max_binding
        self._futile_slice = FUTILE_SLICE if fair_namespaces else TIME_SLICE
        self._lanes = lanes
        self.metrics = metrics
        self.cluster = ClusterState()
        self.waiting = WaitingPods()
        self._pending = PendingPods(self.cluster, self._in_queue)
        virtual = VirtualPodWriters()
        self.writes = ApiWrites(lanes, transport, rng, virtual)
        self.events = EventBroadcaster(LaneEventSink(lanes), clock, rng, hostname=hostname)
        names = [profile.scheduler_name for profile in resolved.profiles]
        self._status = PodStatusWriter(self.writes.patch_status, clock.wall, self._pending.by_uid)
        recorders = {name: self.events.recorder(name) for name in names}
        self.reporter: Reporter = reporter or UserReporter(recorders, self._status, virtual)
        self.cluster.pod_facts.on_malformed = self._malformed_fact
        self._recorder = recorder
        decisive = recorder.clock(clock)
        self.timers = Timers(decisive.monotonic)
        self._background = Background()
        self.plugin_states = PluginStates(recorder.read)

        # Profiles and queue know each other: plugins ask who is nominated, the queue asks plugins for hints.
        self.profiles: dict[str, Profile] = {}
        self.queue: SchedulingQueue[Pod] = SchedulingQueue(
            {},
            clock=recorder.clock(clock, of_queue=True).monotonic,
            sort_key=lambda queued: self.profiles[names[0]].queue_sort[0].sort_key(queued),
            is_pending=self._pending.is_pending,
            backoff=BackoffPolicy(resolved.pod_initial_backoff, resolved.pod_max_backoff),
            max_unschedulable=max_unschedulable,
            fair_namespaces=fair_namespaces,
        )
        self.cluster.on_event(self.queue.move_all)
        self.evictions = PreemptionEvictions(
            self.queue,
            self.waiting,
            self.writes,
            self.reporter,
            metrics,
            clock,
            lambda uid: self.binding.cancel(uid),
            self.cluster.assigned.get,
            recorder,
            launch,
        )
        self.node_handler = NodeHandler(self.cluster, self.queue, self.reporter)
        self.pod_handler = PodHandler(
            self.cluster, self.queue, self._pending, self.reporter, names, self._reject_waiting, virtual
        )
        replicas = OwnReplicas(self.cluster, *own_pod)
        offered = Handle(
            profile="",
            cluster=self.cluster,
            reasons=ReasonTable(),
            writes=self.writes,
            evictions=self.evictions,
            nominations=self.queue.nominator,
            clock=decisive,
            live_clock=clock,
            rng=recorder.chance(rng),
            events=self.reporter,
            waiting=self.waiting,
            activate=self.queue.activate,
            timers=self.timers,
            virtual_pods=VirtualPodHandler(virtual, self.pod_handler),
            own_replicas=replicas,
            count=metrics.count,
            observe=metrics.observe,
            show=lambda kind, thing: self.watches.show(kind.path, thing),
            launch=launch or self._background.start,
            pending=self._pending,
            renounce=self._renounce,
            states=self.plugin_states,
        )
        self.profiles.update(build_profiles(resolved, registry, offered, self.queue.nominator))
        writes = ObjectWrites(lanes, virtual)
        given = ControllerHandle(
            self.cluster,
            writes,
            self.reporter,
            clock,
            metrics,
            replicas,
            self.profiles,
            ControllerWatches(transport, clock, rng),
            resolved.features,
        )
        self._controllers = build_controllers(resolved, self.profiles, controllers, given)
        self._notices = WaitNotices(self.reporter, clock.monotonic, self._pending.by_uid)
        hint_times = HintTimes(metrics, clock.monotonic)
        for name, profile in self.profiles.items():
            served = queue_profile(profile, hint_times, self._notices, extended=bool(resolved.extenders))
            self.queue.add_profile(name, served)
        self.decisions = Decisions(clock.monotonic, clock.wall)
        failures = self._failures = FailureHandler(self.queue, self._pending, self.reporter, self.decisions, recorder)
        self._extenders: Extenders | None = None
        self.consultations: ExtenderConsultations | None = None
        jobs = any(profile.job_plugins for profile in self.profiles.values())
        inbox = Inbox() if resolved.extenders or jobs else None
        self._inbox = inbox if inbox is not None else Inbox()
        shown: ExtenderObjects | None = None
        if resolved.extenders and inbox is not None:
            shown = ExtenderObjects(resolved.extenders, names, self.cluster.table.resource_names.names)
            self._extenders = Extenders(
                resolved.extenders,
                shown,
                metrics,
                clock.monotonic,
                is_bound=self.writes.is_bound,
                fence=fence,
                recorder=recorder,
                bindings=lanes.external_writes,
                virtual=virtual,
            )
            # One table of reasons serves all profiles.
            reasons = self.profiles[names[0]].handle.reasons
            self.consultations = ExtenderConsultations(self._extenders, inbox, recorder, reasons)
        self.cycle = SchedulingCycle(
            self.cluster,
            self.queue,
            self.profiles,
            failures,
            self.reporter,
            metrics,
            self.decisions,
            self.waiting,
            clock.monotonic,
            rng,
            recorder,
            self.consultations,
            self._inbox,
            self._hidden_from,
            self._notices,
            cpu_time,
        )
        self.binding = BindingCycle(
            self.cluster,
            self.queue,
            self.waiting,
            failures,
            self.reporter,
            self._notices,
            metrics,
            clock.monotonic,
            self.writes.patch_metadata,
            self.evictions.displaced,
            self._extenders,
            inbox,
            recorder,
        )
        self._progress = asyncio.Event()
        self.unreadable = Unreadable(self.cluster.objects, resolved.profiles, self.queue, recorder)
        self.watches = Watches(
            transport,
            cluster=self.cluster,
            queue=self.queue,
            nodes=self.node_handler,
            pods=self.pod_handler,
            clock=clock,
            rng=rng,
            metrics=metrics,
            on_progress=self._progress.set,
            inbox=inbox,
            raw_objects=shown,
            unreadable=self.unreadable,
            binding=lambda: {placement.pod.uid for placement in self.binding.under_way},
            accept=resolved.accept,
            watch_list="WatchListClient" in resolved.features,
            recorder=recorder,
        )
        self._event_writer: asyncio.Task[None] | None = None
        metrics.observe_queue(self.queue)
        metrics.observe_cluster(self.cluster)
        self.cluster.overcommitments.ignore(ignored_resources(resolved.profiles))
        self._overcommitment = OvercommitmentReports(self.cluster, self.reporter, metrics, clock.monotonic)

    def pending_pods(self) -> list[Pod]:
        """The pods of our profiles that, according to the API server, have no node; assumed ones included."""
        return list(self._pending.by_uid.values())

    def pending_pod(self, uid: str) -> Pod | None:
        """The one of this uid."""
        return self._pending.by_uid.get(uid)

    def _renounce(self, pods: Iterable[Pod]) -> None:
        for pod in sorted(pods, key=lambda pod: pod.key):  # a replay from a checkpoint may know them in another order
            self._failures.renounce(pod)

    def _in_queue(self, key: str) -> Pod | None:
        queued = self.queue.get(key)
        return queued.pod if queued is not None else None

    # --- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins to watch; a standby does this too, so that it is warm when it becomes leader."""
        self.watches.start()
        self._event_writer = asyncio.get_running_loop().create_task(self.events.run(), name="events")

    async def wait_synced(self) -> None:
        """Waits until everything that decisions depend on has been handled."""
        while self.watches.missing():
            self._progress.clear()
            await self._progress.wait()

    async def catch_up(self) -> None:
        """To be awaited between winning an election and `run`: our watches may be behind what the predecessor did.

        Ends with an exception group when a watch has ended, which would never catch up.
        """
        async with asyncio.TaskGroup() as group:
            holding = group.create_task(self.watches.hold(), name="watches")
            await self.watches.catch_up()
            holding.cancel()

    async def run(self) -> None:
        """Schedules until cancelled.

        Ends with an exception group when scheduling, a watch or the queue's timers do: without them pods would wait for
        ever, unreported.
        """
        await self.wait_synced()
        self._recorder.leading(True)
        try:
            async with asyncio.TaskGroup() as group, running(self._controllers):
                group.create_task(self._run_timers(), name="queue timers")
                group.create_task(self.watches.hold(), name="watches")
                while True:
                    await self.queue.wait_nonempty()
                    if self.watches.reading_anew:
                        await self.wait_synced()
                    if not await self._schedule_for_a_while():
                        for _ in range(FUTILE_ROUNDS):
                            await asyncio.sleep(0)
                    await asyncio.sleep(0)
                    await self.binding.pressing_below(self._max_binding)
        finally:
            self._recorder.leading(False)

    async def stop(self, within: float = 5.0) -> None:
        """Lets bindings, status and events that are under way finish, for a limited time; then ends the watches."""
        try:
            async with asyncio.timeout(within):
                await self._background.close()
                await self.binding.close()
                await self.evictions.close()
                await self._status.drain()
        except TimeoutError:
            _log.warning("%d bindings were still in flight at the end", self.binding.in_flight)
            await self._background.abandon()
            await self.binding.abandon()
            await self.evictions.abandon()
        await self.events.drain(within)
        if self._event_writer is not None:
            self._event_writer.cancel()
        await self.watches.stop()
        if self._extenders is not None:
            await self._extenders.close()

    async def _schedule_for_a_while(self) -> bool:
        """Scheduling cycles, one after the other, until the time slice is used up, or until attempts place nothing:
        then False, and other tasks should run before the next one.
        """
        now = self._clock.monotonic
        began = fruitful = now()
        while self.binding.pressing < self._max_binding:
            queued = self.queue.pop()
            if queued is None:
                return True
            placements = await self.schedule(queued)
            after = now()
            for placement in placements:
                self.binding.start(placement)
                fruitful = after
            if after - began >= TIME_SLICE:
                return True
            if after - fruitful >= self._futile_slice:
                return False
        return True

    async def schedule(self, queued: QueuedPod[Pod]) -> Sequence[AssumedPod]:
        """One attempt at a pod that was just popped, and those that are placed with it: the pods that were assumed, to
        be bound; none if it failed.

        Nothing is awaited but HTTP extenders, and pauses of long jobs.
        """
        self._recorder.attempt(queued)
        if self.unreadable and self._must_wait(queued):
            return ()
        return await self.cycle.schedule_one(queued)

    def _must_wait(self, queued: QueuedPod[Pod]) -> bool:
        """Whether the pod needs a resource that we are not allowed to read; if so, its condition says so."""
        failed = self._hidden_from(queued.pod)
        if failed is None:
            return False
        self.metrics.attempt("unschedulable", queued.profile, 0.0)
        self._failures.handle(queued, failed)
        return True

    def _hidden_from(self, pod: Pod) -> FailedAttempt | None:
        refusal = self.unreadable.refusal(pod)
        if refusal is None:
            return None
        return FailedAttempt(UNSCHEDULABLE, refusal.message, frozenset((refusal.plugin,)) - {""})

    async def _run_timers(self) -> None:
        """Back-off ends on whole seconds (core spec 3.3), of a clock that cannot be set."""
        while True:
            now = self._clock.monotonic()
            await asyncio.sleep(math.floor(now) + 1 - now)
            self._inbox.put(self.run_timers)
            self._notices.tick()
            self._overcommitment.tick()

    def run_timers(self) -> None:
        """What happens by time alone: a step."""
        self._recorder.timers()
        self.cluster.listener_errors.retry_some()
        self.queue.timers.run()
        self.timers.run()

    def _malformed_fact(self, meta: ObjectMeta, problem: str) -> None:
        self.reporter.event(PODS, meta, WARNING, "InvalidAnnotation", f"ignored: {problem}", once=True)

    def _reject_waiting(self, uid: str) -> bool:
        waiting = self.waiting.get(uid)
        return self._recorder.ask(
            lambda: waiting is not None and waiting.reject("", "the pod is being deleted", Code.ERROR)
        )
