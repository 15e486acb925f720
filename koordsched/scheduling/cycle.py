"""The scheduling cycle: one pod, from the head of the queue to a node, or to the reason why not.

The whole cycle reads from top to bottom in `schedule_one` (core spec 3.6); `jobcycle` does it for pods that are placed
together. What it reads is one consistent state: it runs in one piece, or, while HTTP extenders are asked, the changes
of the cluster wait. What has to wait for the API server happens in the binding cycle.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from koordsched.cluster.events import ASSIGNED_POD_DELETE
from koordsched.cluster.pod import Pod
from koordsched.cluster.podevents import leaving
from koordsched.cluster.state import ClusterState
from koordsched.engine.attempt import Attempt, internal_error
from koordsched.engine.transaction import Transaction
from koordsched.extender.client import ExtenderError
from koordsched.extender.wire import MAX_MESSAGE, clipped
from koordsched.framework.diagnosis import rejecting_plugins
from koordsched.framework.interface import PostFilterResult
from koordsched.framework.jobs import GroupJob, Job, JobScheduling
from koordsched.framework.permit import WaitingPods
from koordsched.framework.profile import Profile
from koordsched.framework.scoring import Choice, ScoringFailed, best_of
from koordsched.framework.status import Status
from koordsched.framework.turns import Pause, with_pauses
from koordsched.framework.verdicts import Verdicts
from koordsched.observability.metrics import Metrics
from koordsched.queue.equivalence import Refusal
from koordsched.queue.item import QueuedPod
from koordsched.queue.queue import SchedulingQueue
from koordsched.scheduling.decisions import Decisions
from koordsched.scheduling.evaluationcounts import EvaluationCounts
from koordsched.scheduling.failure import SCHEDULER_ERROR, UNSCHEDULABLE, FailedAttempt, FailureHandler
from koordsched.scheduling.groupcycle import GroupAttempt
from koordsched.scheduling.inbox import Inbox
from koordsched.scheduling.jobcycle import JobAttempt
from koordsched.scheduling.placement import AssumedPod, NotPlaced, erroneous, refused_by, stays
from koordsched.scheduling.pluginsampling import PluginSampling
from koordsched.scheduling.recording import NOT_RECORDING, Recorder
from koordsched.scheduling.reporter import Reporter
from koordsched.scheduling.waitnotices import WaitNotices

if TYPE_CHECKING:
    from koordsched.extender.consultation import ExtenderConsultation

_log = logging.getLogger(__name__)


def unmeasured() -> float:
    """The CPU time where attempts are not measured: where they are to be the same whenever they are repeated."""
    return 0.0


COSTLY = 0.2
"""CPU seconds that an attempt at one pod may take before the pod has to rest."""

REST = 20.0
"""How much longer than such an attempt took: so no pod gets more than a twentieth of the time."""

LONGEST_REST = 300.0
"""Seconds."""

Consult = Callable[[Pod], "ExtenderConsultation | None"]
"""Begins a consultation about a pod; None if no extender is interested in it."""


@dataclass(eq=False, repr=False)
class SchedulingCycle:
    """Places pods one after the other. `consult`: None without extenders. `inbox`: where changes wait during a long
    job; `unreadable`: whether a pod must wait for what we may not read. `notices` of pods that are kept out of the
    queue end when they are tried with the rest of their job.

    `cpu_time`: seconds of the calling thread; pods rest after attempts that took many.

    Every failure without a PostFilter clears the pod's nomination.
    """

    cluster: ClusterState
    queue: SchedulingQueue[Pod]
    profiles: Mapping[str, Profile]
    failures: FailureHandler
    reporter: Reporter
    metrics: Metrics
    decisions: Decisions
    waiting: WaitingPods
    clock: Callable[[], float]
    rng: Random
    recorder: Recorder = NOT_RECORDING
    consult: Consult | None = None
    inbox: Inbox = field(default_factory=Inbox)
    unreadable: Callable[[Pod], FailedAttempt | None] | None = None
    notices: WaitNotices | None = None
    cpu_time: Callable[[], float] = unmeasured

    def __post_init__(self) -> None:
        self._sampling = PluginSampling(self.metrics, self.clock)
        self._evaluated = {
            name: EvaluationCounts(self.metrics, name, profile.chains) for name, profile in self.profiles.items()
        }

    async def schedule_one(self, queued: QueuedPod[Pod]) -> Sequence[AssumedPod]:
        """Finds a node and assumes the pod there, or all pods that are placed with it; empty if that failed, which has
        been handled.

        Nothing is awaited but extenders, and pauses of long jobs: without them it runs in one piece.
        """
        pod = queued.pod
        if not self.is_wanted(pod):
            return ()
        profile = self.profiles[pod.shape.scheduler_name]
        started, cpu = self.clock(), self.cpu_time()
        if profile.job_plugins:
            try:
                for plugin in profile.job_plugins:
                    plugin.taken_up(pod)
                begun = profile.begin_job(pod)
            except Exception as error:
                self.give_back(queued, profile, started, self.broken(pod, error))
                return ()
            if begun is not None:
                return await self._schedule_job(queued, *begun)
        consultation = self.consult(pod) if self.consult is not None else None
        known = self.queue.refusal_of_equivalent(queued) if consultation is None else None
        if known is not None and known.message is not None:
            # What an equivalent pod was refused with a moment ago is the answer here, too.
            failed = FailedAttempt(UNSCHEDULABLE, known.message, known.plugins, known.pending, refusal=known)
            self.give_back(queued, profile, started, NotPlaced(failed))
            return ()
        attempt = self.begin(profile, pod)
        attempt.cycle.may_be_suspended = consultation is not None
        outcome: AssumedPod | NotPlaced
        try:
            row = await self.decide(attempt, started, consultation)
            outcome = self._take(attempt, queued, row, started) if isinstance(row, int) else row
        except asyncio.CancelledError:
            if consultation is not None:
                consultation.abandon()
            raise
        except Exception as error:
            outcome = self.given_up(attempt, error)
        if consultation is not None:
            await consultation.end()
        if isinstance(outcome, AssumedPod):
            return (outcome,)
        took = self.cpu_time() - cpu if consultation is None else 0.0  # while extenders answer, others use the CPU
        self.give_back(queued, profile, started, outcome, self._rest_after(pod, took))
        return ()

    @staticmethod
    def _rest_after(pod: Pod, took: float) -> float:
        """Seconds for which a pod rests after an attempt that took this much CPU time."""
        if took < COSTLY:
            return 0.0
        rest = min(took * REST, LONGEST_REST)
        _log.warning(
            "an attempt at %s took %.1f s of CPU time; it is not tried again for %.0f s", pod.title, took, rest
        )
        return rest

    async def _schedule_job(
        self, queued: QueuedPod[Pod], plugin: JobScheduling, job: Job | GroupJob
    ) -> Sequence[AssumedPod]:
        if isinstance(job, GroupJob):
            return await GroupAttempt(self, queued, plugin, job).run()
        return await JobAttempt(self, queued, plugin, job).run()

    def begin(self, profile: Profile, pod: Pod) -> Attempt:
        """An attempt, perhaps a sampled one."""
        attempt = Attempt(profile, self.cluster, pod)
        self._sampling.begin(attempt.cycle)
        return attempt

    def is_wanted(self, pod: Pod) -> bool:
        """Whether the pod still has to be scheduled; if not, that has been handled."""
        if pod.deleting:
            self.reporter.failed(pod, f"skip schedule deleting pod: {pod.title}")
        elif pod.uid not in self.cluster.assigned:
            return True
        self.queue.done(pod.uid)
        return False

    def given_up(self, attempt: Attempt, error: Exception) -> NotPlaced:
        """An exception ended the attempt. A bug of a plugin fails one attempt; it must not stop the scheduler."""
        if isinstance(error, (ScoringFailed, ExtenderError)):
            return erroneous(clipped(str(error), MAX_MESSAGE))
        pod = attempt.pod
        if self.cluster.assumed.get(pod.uid) is pod:
            attempt.profile.run_unreserve(attempt.cycle, pod, pod.row)
            self.cluster.forget(pod)
        return self.broken(pod, error)

    @staticmethod
    def broken(pod: Pod, error: Exception) -> NotPlaced:
        """A bug ended an attempt at the pod."""
        _log.error("scheduling %s failed", pod.title, exc_info=error)
        return erroneous(internal_error(error))

    async def decide(
        self,
        attempt: Attempt,
        started: float,
        consultation: ExtenderConsultation | None,
        *,
        shared: bool = True,
        makes_room: bool = True,
        pause: Pause | None = None,
    ) -> int | NotPlaced:
        """The row for the pod. Raises ScoringFailed or ExtenderError.

        `shared`: a refusal may hold for equivalent pods. `makes_room`: without a node, PostFilter plugins are asked;
        `pause` is awaited between the steps of their searches.
        """
        profile = attempt.profile
        if not attempt.has_nodes:
            return NotPlaced(FailedAttempt(UNSCHEDULABLE, attempt.message(), nominated=""))
        verdicts = self._filter(attempt, started)
        if consultation is not None:
            again = partial(self._filter, attempt, None, all_nodes=True)
            verdicts = await consultation.filter(attempt, again)
        found = self.clock()
        error = attempt.error()
        if error is not None:
            return erroneous(error.message)
        if not verdicts.feasible and not makes_room:
            return NotPlaced(FailedAttempt(UNSCHEDULABLE, attempt.message()))
        if not verdicts.feasible:
            outcome = await self._post_filter(attempt, consultation, pause)
            return self._no_node(attempt, outcome, shared=shared and consultation is None)
        choice = await self._choose(attempt, consultation)
        table = self.cluster.table
        row = choice.row = self.recorder.chosen(table, choice)
        scored = self.clock()
        if choice.total is not None:
            self.metrics.extension_point("Score", profile.name).observe(scored - found)
            self._evaluated[profile.name].scored(choice)
        self.metrics.scheduling_algorithm_duration.observe(scored - started)
        self.decisions.record(attempt.pod, table, choice, scored, profile.chains)
        return row

    async def _choose(self, attempt: Attempt, consultation: ExtenderConsultation | None) -> Choice:
        if consultation is None or attempt.verdicts.feasible == 1:
            return attempt.choose(self.rng)
        scored = attempt.score()
        added = await consultation.prioritize(attempt)
        if added is not None:
            scored.add(added)
        return best_of(scored, self.rng)

    def _filter(self, attempt: Attempt, started: float | None, *, all_nodes: bool = False) -> Verdicts:
        """Runs PreFilter and Filter, measured from `started` or from now."""
        name = attempt.profile.name
        began = self.clock() if started is None else started
        verdicts = attempt.filter(all_nodes=all_nodes)
        self.metrics.extension_point("Filter", name).observe(self.clock() - began)
        self._evaluated[name].filtered(verdicts.plan, verdicts.pre_filtered, attempt.cycle)
        return verdicts

    def place(self, transaction: Transaction, attempt: Attempt, row: int) -> tuple[Status, dict[str, float]]:
        """Assume, Reserve, Permit: SUCCESS or WAIT with what Permit plugins wait for; any other status is a refusal,
        and Reserve has been undone, unless it is Permit's.
        """
        cycle, profile = attempt.cycle, attempt.profile
        waits: dict[str, float] = {}
        began = self.clock()
        status = transaction.place(cycle, profile, row)
        if profile.reserve_plugins:
            self._took("Reserve", profile, status, began)
        if status.ok and profile.permit_plugins:
            began = self.clock()
            status, waits = profile.run_permit(cycle, attempt.pod, row)
            self._took("Permit", profile, status, began)
        return status, waits

    def _take(self, attempt: Attempt, queued: QueuedPod[Pod], row: int, started: float) -> AssumedPod | NotPlaced:
        """Assume, Reserve, Permit; any refusal takes everything back."""
        nominated = self.queue.nominator.node_of(attempt.pod.uid)
        with Transaction(self.cluster, self.queue.nominator) as transaction:
            status, waits = self.place(transaction, attempt, row)
            if stays(status):
                transaction.commit()
        if not stays(status):
            return refused_by(status)
        return self.assumed(attempt, queued, row, nominated, waits, started)

    def assumed(
        self,
        attempt: Attempt,
        queued: QueuedPod[Pod],
        row: int,
        nominated: str,
        waits: dict[str, float],
        started: float,
    ) -> AssumedPod:
        """The pod stays on the row. `nominated`: where it had been nominated to."""
        pod, node = attempt.pod, self.cluster.table.names[row]
        if nominated and nominated != node:
            self._leave(pod, nominated)
        self.queue.placed(queued)
        if waits:
            # From here on plugins may let it go, also while others are placed before its binding cycle begins.
            self.waiting.add(pod, waits)
        feasible = attempt.verdicts.feasible
        return AssumedPod(
            attempt.cycle, attempt.profile, queued, row, node, waits, started, feasible, nominated == node
        )

    def _leave(self, pod: Pod, nominated: str) -> None:
        """A pod goes to another node than it was nominated to."""
        gone = leaving(pod, nominated)
        self.queue.move_all(ASSIGNED_POD_DELETE, gone, None, max_priority=pod.priority, exclude_uid=pod.uid)

    async def _post_filter(
        self, attempt: Attempt, consultation: ExtenderConsultation | None, pause: Pause | None
    ) -> PostFilterResult:
        """Runs the PostFilter plugins, which may make room; extenders may object to what they offer."""
        profile = attempt.profile
        if profile.post_filters:
            self.metrics.preemption_attempts.value += 1
        began = self.clock()
        if consultation is not None:
            outcome = await consultation.post_filter(attempt, pause)
        elif pause is not None:
            outcome = await with_pauses(profile.post_filter(attempt.cycle, attempt.verdicts.codes), pause)
        else:
            outcome = attempt.post_filter()
        self._took("PostFilter", profile, outcome.status, began)
        return outcome

    def _no_node(self, attempt: Attempt, outcome: PostFilterResult, *, shared: bool) -> NotPlaced:
        """`shared`: the refusal holds for equivalent pods as well."""
        profile, status = attempt.profile, outcome.status
        rejecting, pending = rejecting_plugins(attempt.verdicts, profile.handle.reasons)
        plugins = rejecting | outcome.refused_by
        message = clipped(attempt.message(outcome), MAX_MESSAGE)
        refusal = None
        # Equivalent pods must not use the room that is being made for this pod.
        if shared and not status.ok and not outcome.nominated_node:
            refusal = Refusal(message if attempt.pod.name not in status.message else None, plugins, pending)
        failed = FailedAttempt(UNSCHEDULABLE, message, plugins, pending, outcome.nominated_node, refusal)
        return NotPlaced(failed, outcome)

    def _took(self, point: str, profile: Profile, status: Status, began: float) -> None:
        self.metrics.extension_point(point, profile.name, status.code.text).observe(self.clock() - began)

    def give_back(
        self, queued: QueuedPod[Pod], profile: Profile, started: float, not_placed: NotPlaced, rest: float = 0.0
    ) -> None:
        """What the PostFilter plugins decided is started; the pod goes back to the queue with the reason, where it
        rests for some seconds.
        """
        failed, outcome = not_placed
        if outcome is not None and outcome.actuate is not None:
            outcome.actuate()
        result = "error" if failed.reason == SCHEDULER_ERROR else "unschedulable"
        self.metrics.attempt(result, profile.name, self.clock() - started)
        self.failures.handle(queued, failed, rest)
