"""The scheduling cycle: one pod, from the head of the queue to a node, or to the reason why not.

The whole cycle reads from top to bottom in `schedule_one` (core spec 3.6). What it reads is one consistent state: it
runs in one piece, or, while HTTP extenders are asked, the changes of the cluster wait. What has to wait for the API
server happens in the binding cycle.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from koordsched.cluster.events import ASSIGNED_POD_DELETE
from koordsched.cluster.pod import Pod
from koordsched.cluster.podevents import leaving
from koordsched.cluster.state import ClusterState
from koordsched.engine.attempt import Attempt
from koordsched.engine.transaction import Transaction
from koordsched.extender.client import ExtenderError
from koordsched.extender.wire import MAX_MESSAGE, clipped
from koordsched.framework.diagnosis import one_node_error, rejecting_plugins
from koordsched.framework.filtering import Verdicts
from koordsched.framework.interface import CycleState, PostFilterResult
from koordsched.framework.permit import WaitingPods
from koordsched.framework.profile import Profile
from koordsched.framework.scoring import Choice, ScoringFailed, best_of
from koordsched.framework.status import Code, Status
from koordsched.observability.metrics import Metrics
from koordsched.queue.equivalence import Refusal
from koordsched.queue.item import QueuedPod
from koordsched.queue.queue import SchedulingQueue
from koordsched.scheduling.decisions import Decisions
from koordsched.scheduling.evaluationcounts import EvaluationCounts
from koordsched.scheduling.failure import SCHEDULER_ERROR, UNSCHEDULABLE, FailedAttempt, FailureHandler
from koordsched.scheduling.pluginsampling import PluginSampling
from koordsched.scheduling.recording import NOT_RECORDING, Recorder
from koordsched.scheduling.reporter import Reporter

if TYPE_CHECKING:
    from koordsched.extender.consultation import ExtenderConsultation

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, repr=False)
class AssumedPod:
    """A pod that was placed and assumed, on its way to be bound. `waits`: Permit plugins -> seconds.

    `nominated_here`: the pod had been nominated to the node, perhaps by a write that its status does not show yet.
    """

    cycle: CycleState
    profile: Profile
    queued: QueuedPod[Pod]
    row: int
    node: str
    waits: dict[str, float]
    started: float
    feasible: int
    nominated_here: bool = False

    @property
    def pod(self) -> Pod:
        """The assumed pod."""
        return self.cycle.pod


Consult = Callable[[Pod], "ExtenderConsultation | None"]
"""Begins a consultation about a pod; None if no extender is interested in it."""

Failure = Callable[[], None]
"""Handles a failed attempt; called when the changes that waited have been applied, and the pod is still in flight."""


@dataclass(eq=False, repr=False)
class SchedulingCycle:
    """Places pods one after the other. `consult`: None without extenders.

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

    def __post_init__(self) -> None:
        self._sampling = PluginSampling(self.metrics, self.clock)
        self._evaluated = {
            name: EvaluationCounts(self.metrics, name, profile.chains) for name, profile in self.profiles.items()
        }

    async def schedule_one(self, queued: QueuedPod[Pod]) -> AssumedPod | None:
        """Finds a node and assumes the pod there; None if that failed, which has been handled.

        Nothing is awaited but extenders: without them it runs in one piece.
        """
        pod = queued.pod
        if not self._is_wanted(pod):
            return None
        profile = self.profiles[pod.shape.scheduler_name]
        started = self.clock()
        consultation = self.consult(pod) if self.consult is not None else None
        if consultation is not None:
            return await self._with_extenders(queued, profile, started, consultation)
        known = self.queue.refusal_of_equivalent(queued)
        if known is not None and known.message is not None:
            # What an equivalent pod was refused with a moment ago is the answer here, too.
            failed = FailedAttempt(UNSCHEDULABLE, known.message, known.plugins, known.pending, refusal=known)
            self._reject(queued, profile, started, failed)
            return None
        attempt = Attempt(profile, self.cluster, pod)
        self._sampling.begin(attempt.cycle)
        try:
            outcome = await self._attempt(attempt, queued, started, None)
        except Exception as error:
            self._give_up(attempt, queued, started, error)
            return None
        if isinstance(outcome, AssumedPod):
            return outcome
        outcome()
        return None

    async def _with_extenders(
        self, queued: QueuedPod[Pod], profile: Profile, started: float, consultation: ExtenderConsultation
    ) -> AssumedPod | None:
        attempt = Attempt(profile, self.cluster, queued.pod)
        attempt.cycle.may_be_suspended = True
        outcome: AssumedPod | Failure
        try:
            outcome = await self._attempt(attempt, queued, started, consultation)
        except asyncio.CancelledError:
            consultation.abandon()
            raise
        except Exception as error:
            outcome = partial(self._give_up, attempt, queued, started, error)
        await consultation.end()
        if isinstance(outcome, AssumedPod):
            return outcome
        outcome()
        return None

    def _is_wanted(self, pod: Pod) -> bool:
        """Whether the pod still has to be scheduled; if not, that has been handled."""
        if pod.deleting:
            self.reporter.failed(pod, f"skip schedule deleting pod: {pod.title}")
        elif pod.uid not in self.cluster.assigned:
            return True
        self.queue.done(pod.uid)
        return False

    def _give_up(self, attempt: Attempt, queued: QueuedPod[Pod], started: float, error: Exception) -> None:
        """An exception ended the attempt. A bug of a plugin fails one attempt; it must not stop the scheduler."""
        profile, pod = attempt.profile, attempt.pod
        if isinstance(error, (ScoringFailed, ExtenderError)):
            self._fail(queued, profile, started, clipped(str(error), MAX_MESSAGE))
            return
        _log.error("scheduling %s failed", pod.title, exc_info=error)
        if pod.uid in self.cluster.assumed:
            profile.run_unreserve(attempt.cycle, pod, pod.row)
            self.cluster.forget(pod)
        self._fail(queued, profile, started, f"internal error: {type(error).__name__}: {error}")

    async def _attempt(
        self, attempt: Attempt, queued: QueuedPod[Pod], started: float, consultation: ExtenderConsultation | None
    ) -> AssumedPod | Failure:
        profile = attempt.profile
        if not attempt.has_nodes:
            failed = FailedAttempt(UNSCHEDULABLE, attempt.message(), nominated="")
            return partial(self._reject, queued, profile, started, failed)
        verdicts = self._filter(attempt, started)
        if consultation is not None:
            again = partial(self._filter, attempt, None, all_nodes=True)
            verdicts = await consultation.filter(attempt, again)
        found = self.clock()
        error = attempt.error()
        if error is not None:
            return partial(self._fail, queued, profile, started, error.message)
        if not verdicts.feasible:
            outcome = await self._post_filter(attempt, consultation)
            return self._no_node(attempt, queued, started, outcome, shared=consultation is None)
        choice = await self._choose(attempt, consultation)
        table = self.cluster.table
        row = choice.row = self.recorder.chosen(table, choice)
        scored = self.clock()
        if choice.total is not None:
            self.metrics.extension_point("Score", profile.name).observe(scored - found)
            self._evaluated[profile.name].scored(choice)
        self.metrics.scheduling_algorithm_duration.observe(scored - started)
        self.decisions.record(attempt.pod, table, choice, scored, profile.chains)
        return self._take(attempt, queued, row, started)

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

    def _take(self, attempt: Attempt, queued: QueuedPod[Pod], row: int, started: float) -> AssumedPod | Failure:
        """Assume, Reserve, Permit; any refusal takes everything back."""
        cycle, profile, pod = attempt.cycle, attempt.profile, attempt.pod
        node = self.cluster.table.names[row]
        nominated = self.queue.nominator.node_of(pod.uid)
        waits: dict[str, float] = {}
        with Transaction(self.cluster, self.queue.nominator) as transaction:
            began = self.clock()
            status = transaction.place(cycle, profile, row)
            if profile.reserve_plugins:
                self._took("Reserve", profile, status, began)
            if status.ok and profile.permit_plugins:
                began = self.clock()
                status, waits = profile.run_permit(cycle, pod, row)
                self._took("Permit", profile, status, began)
            if status.ok or status.code is Code.WAIT:
                transaction.commit()
        if status.ok or status.code is Code.WAIT:
            if nominated and nominated != node:
                self._leave(pod, nominated)
            self.queue.placed(queued)
            if waits:
                # From here on plugins may let it go, also while others are placed before its binding cycle begins.
                self.waiting.add(pod, waits)
            feasible = attempt.verdicts.feasible
            return AssumedPod(cycle, profile, queued, row, node, waits, started, feasible, nominated == node)
        if status.code.rejects:
            failed = FailedAttempt(UNSCHEDULABLE, one_node_error(status), frozenset((status.plugin,)), nominated="")
            return partial(self._reject, queued, profile, started, failed)
        return partial(self._fail, queued, profile, started, status.message)

    def _leave(self, pod: Pod, nominated: str) -> None:
        """A pod goes to another node than it was nominated to."""
        gone = leaving(pod, nominated, self.cluster.table.row_of.get(nominated, -1))
        self.queue.move_all(ASSIGNED_POD_DELETE, gone, None, max_priority=pod.priority, exclude_uid=pod.uid)

    async def _post_filter(self, attempt: Attempt, consultation: ExtenderConsultation | None) -> PostFilterResult:
        """Runs the PostFilter plugins, which may make room; extenders may object to what they offer."""
        profile = attempt.profile
        if profile.post_filters:
            self.metrics.preemption_attempts.value += 1
        began = self.clock()
        if consultation is None:
            outcome = attempt.post_filter()
        else:
            outcome = await consultation.post_filter(attempt)
        self._took("PostFilter", profile, outcome.status, began)
        return outcome

    def _no_node(
        self, attempt: Attempt, queued: QueuedPod[Pod], started: float, outcome: PostFilterResult, *, shared: bool
    ) -> Failure:
        """What the PostFilter plugins decided is started; the pod goes back to the queue with the reason.

        `shared`: the refusal holds for equivalent pods as well.
        """
        profile, status = attempt.profile, outcome.status
        rejecting, pending = rejecting_plugins(attempt.verdicts, profile.handle.reasons)
        plugins = rejecting | outcome.refused_by
        message = clipped(attempt.message(outcome), MAX_MESSAGE)
        refusal = None
        # Equivalent pods must not use the room that is being made for this pod.
        if shared and not status.ok and not outcome.nominated_node:
            refusal = Refusal(message if queued.pod.name not in status.message else None, plugins, pending)
        failed = FailedAttempt(UNSCHEDULABLE, message, plugins, pending, outcome.nominated_node, refusal)

        def finish() -> None:
            if outcome.actuate is not None:
                outcome.actuate()
            self._reject(queued, profile, started, failed)

        return finish

    def _took(self, point: str, profile: Profile, status: Status, began: float) -> None:
        self.metrics.extension_point(point, profile.name, status.code.text).observe(self.clock() - began)

    def _reject(self, queued: QueuedPod[Pod], profile: Profile, started: float, failed: FailedAttempt) -> None:
        self.metrics.attempt("unschedulable", profile.name, self.clock() - started)
        self.failures.handle(queued, failed)

    def _fail(self, queued: QueuedPod[Pod], profile: Profile, started: float, message: str) -> None:
        self.metrics.attempt("error", profile.name, self.clock() - started)
        self.failures.handle(queued, FailedAttempt(SCHEDULER_ERROR, message, nominated=""))
