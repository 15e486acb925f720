"""The scheduling cycle: one pod, from the head of the queue to a node, or to the reason why not.

The whole cycle tells itself from top to bottom in `schedule_one` (core spec 3.6). It is synchronous: what it
reads is one consistent state. What has to wait for the API server happens in the binding cycle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from random import Random

from koordsched.cluster.pod import Pod
from koordsched.cluster.podevents import ASSIGNED_DELETE, leaving
from koordsched.cluster.state import ClusterState
from koordsched.framework.diagnosis import NO_NODES, first_error, fit_error, one_node_error, rejecting_plugins
from koordsched.framework.filtering import Verdicts
from koordsched.framework.interface import CycleState, PostFilterResult
from koordsched.framework.permit import WaitingPods
from koordsched.framework.profile import Profile
from koordsched.framework.scoring import InvalidScore, PreScoreFailed, decide
from koordsched.framework.status import Code, Status
from koordsched.observability.metrics import Metrics
from koordsched.queue.equivalence import Refusal
from koordsched.queue.item import NO_PLUGINS, QueuedPod
from koordsched.queue.nominator import NOOP, NominatingInfo, override
from koordsched.queue.queue import SchedulingQueue
from koordsched.scheduling.decisions import Decisions
from koordsched.scheduling.evaluationcounts import EvaluationCounts
from koordsched.scheduling.failure import SCHEDULER_ERROR, UNSCHEDULABLE, FailureHandler
from koordsched.scheduling.pluginsampling import PluginSampling
from koordsched.scheduling.recording import NOT_RECORDING, Recorder
from koordsched.scheduling.reporter import Reporter

_log = logging.getLogger(__name__)

NO_PROMISE = override("")
"""A node that was promised to the pod is not any more: so after every failure that preemption has no word in."""


class AssumedPod:
    """A pod that was placed and assumed, on its way to be bound. `waits`: Permit plugins -> seconds.

    `promised`: the node had been promised to it, perhaps by a word that its status does not tell of yet.
    """

    __slots__ = ("cycle", "feasible", "node", "profile", "promised", "queued", "row", "started", "waits")

    def __init__(
        self,
        cycle: CycleState,
        profile: Profile,
        queued: QueuedPod[Pod],
        row: int,
        node: str,
        waits: dict[str, float],
        started: float,
        feasible: int,
        promised: bool = False,
    ) -> None:
        self.cycle = cycle
        self.profile = profile
        self.queued = queued
        self.row = row
        self.node = node
        self.waits = waits
        self.started = started
        self.feasible = feasible
        self.promised = promised

    @property
    def pod(self) -> Pod:
        """The assumed pod."""
        return self.cycle.pod


class SchedulingCycle:
    """Places pods one after the other."""

    def __init__(
        self,
        cluster: ClusterState,
        queue: SchedulingQueue[Pod],
        profiles: Mapping[str, Profile],
        failures: FailureHandler,
        reporter: Reporter,
        metrics: Metrics,
        decisions: Decisions,
        waiting: WaitingPods,
        clock: Callable[[], float],
        rng: Random,
        recorder: Recorder = NOT_RECORDING,
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._profiles = profiles
        self._failures = failures
        self._reporter = reporter
        self._metrics = metrics
        self._decisions = decisions
        self._waiting = waiting
        self._sampling = PluginSampling(metrics, clock)
        self._evaluated = {name: EvaluationCounts(metrics, name, profile.chains) for name, profile in profiles.items()}
        self._clock = clock
        self._rng = rng
        self._recorder = recorder

    def schedule_one(self, queued: QueuedPod[Pod]) -> AssumedPod | None:
        """Finds a node and assumes the pod there; None if that failed, which has been seen to."""
        pod = queued.pod
        if not self._is_wanted(pod):
            return None
        profile = self._profiles[pod.shape.scheduler_name]
        started = self._clock()
        known = self._queue.refusal_of_equivalent(queued)
        if known is not None and known.message is not None:
            # What an equivalent pod was told a moment ago is the answer here, too.
            self._reject(queued, profile, started, known.message, known.plugins, known.pending, NOOP, refusal=known)
            return None
        cycle = CycleState(pod)
        try:
            return self._place(cycle, profile, queued, started)
        except Exception as error:
            self._give_up(cycle, profile, queued, started, error)
        return None

    def _is_wanted(self, pod: Pod) -> bool:
        """Whether the pod still has to be scheduled; if not, that has been seen to."""
        if pod.deleting:
            self._reporter.failed(pod, f"skip schedule deleting pod: {pod.key}")
        elif pod.uid not in self._cluster.assigned:
            return True
        self._queue.done(pod.uid)
        return False

    def _give_up(
        self, cycle: CycleState, profile: Profile, queued: QueuedPod[Pod], started: float, error: Exception
    ) -> None:
        """An exception ended the cycle. A defect of a plugin costs one pod an attempt, not everybody the scheduler."""
        if isinstance(error, (InvalidScore, PreScoreFailed)):
            self._fail(queued, profile, started, str(error))
            return
        pod = cycle.pod
        _log.error("scheduling %s failed", pod.key, exc_info=error)
        if pod.uid in self._cluster.assumed:
            profile.run_unreserve(cycle, pod, pod.row)
            self._cluster.forget(pod)
        self._fail(queued, profile, started, f"internal error: {type(error).__name__}: {error}")

    def _place(self, cycle: CycleState, profile: Profile, queued: QueuedPod[Pod], started: float) -> AssumedPod | None:
        table = self._cluster.table
        if not table.count:
            self._reject(queued, profile, started, NO_NODES)
            return None
        verdicts = profile.filtering.filter(cycle)
        found = self._clock()
        self._metrics.extension_point("Filter", profile.name).observe(found - started)
        self._evaluated[profile.name].filtered(verdicts.plan, verdicts.pre_filtered)
        error = self._error_in(verdicts, profile)
        if error is not None:
            self._fail(queued, profile, started, error.message)
            return None
        if not verdicts.feasible:
            self._no_node(cycle, profile, queued, verdicts, started)
            return None
        row, total = decide(cycle, table, verdicts, self._rng)
        row = self._recorder.chosen(cycle, table, verdicts, row, total)
        scored = self._clock()
        if total is not None:
            self._metrics.extension_point("Score", profile.name).observe(scored - found)
            self._evaluated[profile.name].scored(verdicts.plan)
        self._metrics.scheduling_algorithm_duration.observe(scored - started)
        self._decisions.record(cycle, table, verdicts, row, total, scored, profile.chains)
        self._sampling.placed(cycle, table, verdicts, row, total is not None)
        return self._take(cycle, profile, queued, row, started, verdicts.feasible)

    @staticmethod
    def _error_in(verdicts: Verdicts, profile: Profile) -> Status | None:
        return first_error(verdicts, profile.handle.reasons)

    def _take(
        self, cycle: CycleState, profile: Profile, queued: QueuedPod[Pod], row: int, started: float, feasible: int
    ) -> AssumedPod | None:
        """Assume, Reserve, Permit; any refusal takes everything back."""
        pod = cycle.pod
        node = self._cluster.table.names[row]
        self._cluster.assume(pod, row)
        promised = self._queue.nominator.node_of(pod.uid)
        self._queue.nominator.delete(pod.uid)
        if promised and promised != node:
            self._leave(pod, promised)
        began = self._clock()
        status = profile.run_reserve(cycle, pod, row)
        if profile.reserve_plugins:
            self._took("Reserve", profile, status, began)
        waits: dict[str, float] = {}
        if status.ok and profile.permit_plugins:
            began = self._clock()
            status, waits = profile.run_permit(cycle, pod, row)
            self._took("Permit", profile, status, began)
        if status.ok or status.code is Code.WAIT:
            self._queue.placed(queued)
            if waits:
                # From here on plugins may let it go, also while others are placed before its binding cycle begins.
                self._waiting.add(pod, waits)
            return AssumedPod(cycle, profile, queued, row, node, waits, started, feasible, promised == node)
        profile.run_unreserve(cycle, pod, row)
        self._cluster.forget(pod)
        if status.code.rejects:
            self._reject(queued, profile, started, one_node_error(status), frozenset((status.plugin,)))
        else:
            self._fail(queued, profile, started, status.message)
        return None

    def _leave(self, pod: Pod, promised: str) -> None:
        """A pod goes elsewhere than to the node that was promised to it."""
        gone = leaving(pod, promised, self._cluster.table.row_of.get(promised, -1))
        self._queue.move_all(ASSIGNED_DELETE, gone, None, max_priority=pod.priority, exclude_uid=pod.uid)

    def _no_node(
        self, cycle: CycleState, profile: Profile, queued: QueuedPod[Pod], verdicts: Verdicts, started: float
    ) -> None:
        """PostFilter plugins may make room; then the pod goes back to the queue with the reason."""
        outcome = self._post_filter(cycle, profile, verdicts)
        status = outcome.status
        nominating = NOOP if outcome.nominated_node is None else override(outcome.nominated_node)
        text = "" if status.ok else status.message
        reasons = profile.handle.reasons
        rejecting, pending = rejecting_plugins(verdicts, reasons)
        plugins = rejecting | outcome.refused_by
        message = fit_error(self._cluster.table.count, verdicts, reasons, text)
        # Room that is being made for this pod leaves its equivalent pods to look for their own.
        holds = not status.ok and not nominating.node
        words = message if queued.pod.name not in text else None
        refusal = Refusal(words, plugins, pending) if holds else None
        self._reject(queued, profile, started, message, plugins, pending, nominating, refusal)

    def _post_filter(self, cycle: CycleState, profile: Profile, verdicts: Verdicts) -> PostFilterResult:
        """Runs the PostFilter plugins, and sets going what they decided."""
        if profile.post_filters:
            self._metrics.preemption_attempts.value += 1
        began = self._clock()
        outcome = profile.run_post_filter(cycle, verdicts.codes)
        self._took("PostFilter", profile, outcome.status, began)
        if outcome.actuate is not None:
            outcome.actuate()
        return outcome

    def _took(self, point: str, profile: Profile, status: Status, began: float) -> None:
        self._metrics.extension_point(point, profile.name, status.code.text).observe(self._clock() - began)

    def _reject(
        self,
        queued: QueuedPod[Pod],
        profile: Profile,
        started: float,
        message: str,
        plugins: frozenset[str] = NO_PLUGINS,
        pending: frozenset[str] = NO_PLUGINS,
        nominating: NominatingInfo = NO_PROMISE,
        refusal: Refusal | None = None,
    ) -> None:
        self._metrics.attempt("unschedulable", profile.name, self._clock() - started)
        self._failures.handle(
            queued,
            message,
            reason=UNSCHEDULABLE,
            plugins=plugins,
            pending_plugins=pending,
            nominating=nominating,
            refusal=refusal,
        )

    def _fail(self, queued: QueuedPod[Pod], profile: Profile, started: float, message: str) -> None:
        self._metrics.attempt("error", profile.name, self._clock() - started)
        self._failures.handle(queued, message, reason=SCHEDULER_ERROR, nominating=NO_PROMISE)
