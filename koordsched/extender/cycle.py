"""The scheduling cycle with extenders: the same steps, as a coroutine that is cut at each call (core spec 3.6, 3.9).

While a call is under way changes of the cluster wait in the inbox, so that all steps read one state; no other pod is
taken, as in upstream's serial cycle, while bindings, leases and everything else go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random

import numpy as np

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.extender.client import ExtenderError, HttpExtender
from koordsched.extender.extenders import Extenders
from koordsched.extender.transientreasons import TransientReasons
from koordsched.extender.wire import clipped
from koordsched.framework.diagnosis import NO_NODES, fit_error, rejecting_plugins
from koordsched.framework.filtering import Verdicts
from koordsched.framework.interface import CycleState, PostFilterResult
from koordsched.framework.permit import WaitingPods
from koordsched.framework.preemption import PreemptionOffer
from koordsched.framework.profile import Profile
from koordsched.framework.scoring import pick, totals_of
from koordsched.framework.status import Code, Status
from koordsched.observability.metrics import Metrics
from koordsched.queue.item import QueuedPod
from koordsched.queue.nominator import NOOP, override
from koordsched.queue.queue import SchedulingQueue
from koordsched.scheduling.cycle import AssumedPod, SchedulingCycle
from koordsched.scheduling.decisions import Decisions
from koordsched.scheduling.failure import FailureHandler
from koordsched.scheduling.inbox import Inbox
from koordsched.scheduling.recording import NOT_RECORDING, Recorder
from koordsched.scheduling.reporter import Reporter

_log = logging.getLogger(__name__)

MAX_MESSAGE = 32_768
"""Characters of a message that goes into a pod's status (the limit of metav1.Condition)."""

Failure = Callable[[], None]
"""Sees to a failed attempt; called when the changes that waited have been applied, and the pod is still in flight."""


class ExtendedCycle(SchedulingCycle):
    """Places pods; those that an extender is interested in with its help."""

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
        *,
        extenders: Extenders,
        inbox: Inbox,
        recorder: Recorder = NOT_RECORDING,
    ) -> None:
        super().__init__(
            cluster, queue, profiles, failures, reporter, metrics, decisions, waiting, clock, rng, recorder
        )
        self._extenders = extenders
        self._inbox = inbox
        # One table of reasons serves all profiles.
        self._said = TransientReasons(next(iter(profiles.values())).handle.reasons)

    async def schedule_with_extenders(self, queued: QueuedPod[Pod]) -> AssumedPod | None:
        """Finds a node and assumes the pod there; None if that failed, which has been seen to."""
        pod = queued.pod
        interested = self._extenders.interested_in(pod)
        if not interested:
            return self.schedule_one(queued)
        if not self._is_wanted(pod):
            return None
        profile = self._profiles[pod.shape.scheduler_name]
        started = self._clock()
        cycle = CycleState(pod)
        outcome: AssumedPod | Failure | None
        self._inbox.hold()
        try:
            outcome = await self._attempt(cycle, profile, queued, started, interested)
        except ExtenderError as error:
            outcome = partial(self._fail, queued, profile, started, clipped(str(error), MAX_MESSAGE))
        except asyncio.CancelledError:
            self._inbox.release_now()
            raise
        except Exception as error:
            outcome = partial(self._give_up, cycle, profile, queued, started, error)
        finally:
            self._said.clear()
        await self._recorder.let_in(self._inbox.release)
        if outcome is None or isinstance(outcome, AssumedPod):
            return outcome
        outcome()
        return None

    async def _attempt(
        self,
        cycle: CycleState,
        profile: Profile,
        queued: QueuedPod[Pod],
        started: float,
        interested: Sequence[HttpExtender],
    ) -> AssumedPod | Failure | None:
        table = self._cluster.table
        if not table.count:
            return partial(self._reject, queued, profile, started, NO_NODES)
        verdicts = await self._filter(cycle, profile, started, interested)
        error = self._error_in(verdicts, profile)
        if error is not None:
            return partial(self._fail, queued, profile, started, error.message)
        if not verdicts.feasible:
            return await self._no_node_left(cycle, profile, queued, verdicts, started, interested)
        row = await self._choose(cycle, profile, verdicts, started, interested)
        return self._take(cycle, profile, queued, row, started, verdicts.feasible)

    # --- filter ------------------------------------------------------------------------------------

    async def _filter(
        self, cycle: CycleState, profile: Profile, started: float, interested: Sequence[HttpExtender]
    ) -> Verdicts:
        """The plugins' verdicts, then the extenders'; on the nominated node alone first. Raises ExtenderError."""
        verdicts = self._plugins_filter(cycle, profile, started, try_nominated=True)
        nominated = cycle.pod.nominated_node
        if not nominated or not self._is_alone(verdicts, nominated):
            return await self._ask_filters(cycle, profile, verdicts, interested)
        try:
            asked = await self._ask_filters(cycle, profile, verdicts, interested)
            if asked.feasible:
                return asked
        except ExtenderError as error:
            _log.warning("evaluation of %s on nominated node %s failed: %s", cycle.pod.key, nominated, error)
        verdicts = self._plugins_filter(cycle, profile, self._clock(), try_nominated=False)
        return await self._ask_filters(cycle, profile, verdicts, interested)

    def _plugins_filter(self, cycle: CycleState, profile: Profile, started: float, *, try_nominated: bool) -> Verdicts:
        verdicts = profile.filtering.filter(cycle, try_nominated=try_nominated)
        self._metrics.extension_point("Filter", profile.name).observe(self._clock() - started)
        self._evaluated[profile.name].filtered(verdicts.plan, verdicts.pre_filtered)
        return verdicts

    def _is_alone(self, verdicts: Verdicts, node: str) -> bool:
        return verdicts.feasible == 1 and self._cluster.table.names[int(verdicts.rows[0])] == node

    async def _ask_filters(
        self, cycle: CycleState, profile: Profile, verdicts: Verdicts, interested: Sequence[HttpExtender]
    ) -> Verdicts:
        if not verdicts.feasible or self._error_in(verdicts, profile) is not None:
            return verdicts
        table = self._cluster.table
        rows = verdicts.rows
        left, refusals = await self._extenders.filter(cycle.pod, table, rows.tolist(), interested)
        if len(left) == len(rows):
            return verdicts
        codes = verdicts.codes.copy()
        refused = np.setdiff1d(rows, np.array(left, dtype=np.intp))
        refusals.write(codes, refused, profile.handle.reasons, self._said)
        return Verdicts(codes, verdicts.plan, verdicts.pre_filtered, None, len(left))

    # --- score -------------------------------------------------------------------------------------

    async def _choose(
        self,
        cycle: CycleState,
        profile: Profile,
        verdicts: Verdicts,
        started: float,
        interested: Sequence[HttpExtender],
    ) -> int:
        """The row with the highest total of plugins and extenders. Raises InvalidScore or PreScoreFailed."""
        table, rows = self._cluster.table, verdicts.rows
        total: int | None = None
        added = None
        row = int(rows[0])
        if verdicts.feasible > 1:
            began = self._clock()
            totals = totals_of(cycle, table, verdicts)
            self._metrics.extension_point("Score", profile.name).observe(self._clock() - began)
            self._evaluated[profile.name].scored(verdicts.plan)
            added = await self._extenders.prioritize(cycle.pod, table, rows.tolist(), interested)
            if added is not None:
                totals = totals + added
            at = pick(totals, self._rng)
            row, total = int(rows[at]), totals.item(at)
        row = self._recorder.chosen(cycle, table, verdicts, row, total, added)
        now = self._clock()
        self._metrics.scheduling_algorithm_duration.observe(now - started)
        self._decisions.record(cycle, table, verdicts, row, total, now, profile.chains, added)
        return row

    # --- no node -----------------------------------------------------------------------------------

    async def _no_node_left(
        self,
        cycle: CycleState,
        profile: Profile,
        queued: QueuedPod[Pod],
        verdicts: Verdicts,
        started: float,
        interested: Sequence[HttpExtender],
    ) -> Failure:
        reasons = profile.handle.reasons
        if profile.post_filters:
            self._metrics.preemption_attempts.value += 1
        outcome = await self._post_filters(cycle, profile, verdicts, interested)
        profile.run_after_post_filter(cycle, verdicts.codes, outcome)
        text = "" if outcome.status.ok else outcome.status.message
        plugins, pending = rejecting_plugins(verdicts, reasons)
        message = clipped(fit_error(self._cluster.table.count, verdicts, reasons, text), MAX_MESSAGE)
        nominating = NOOP if outcome.nominated_node is None else override(outcome.nominated_node)

        def finish() -> None:
            if outcome.actuate is not None:
                outcome.actuate()
            self._reject(queued, profile, started, message, plugins | outcome.refused_by, pending, nominating)

        return finish

    async def _post_filters(
        self, cycle: CycleState, profile: Profile, verdicts: Verdicts, interested: Sequence[HttpExtender]
    ) -> PostFilterResult:
        """As `Profile.run_post_filter`, with the extenders asked about what preemption offers."""
        texts: list[str] = []
        refused_by: frozenset[str] = frozenset()
        nominated: str | None = None if profile.post_filters else ""
        for plugin in profile.post_filters:
            result = plugin.post_filter(cycle, cycle.pod, verdicts.codes)
            if isinstance(result, PreemptionOffer):
                result = await self._agreed(cycle, result, interested)
            if result.status.code is not Code.UNSCHEDULABLE:
                return result
            if result.nominated_node is not None:
                nominated = result.nominated_node
            texts.extend(result.status.reasons)
            refused_by |= result.refused_by
        return PostFilterResult(Status(Code.UNSCHEDULABLE, tuple(texts)), nominated, refused_by=refused_by)

    async def _agreed(
        self, cycle: CycleState, offer: PreemptionOffer, interested: Sequence[HttpExtender]
    ) -> PostFilterResult:
        if not any(extender.preempts for extender in interested):
            return offer
        cluster = self._cluster
        try:
            left = await self._extenders.preempt(
                cycle.pod,
                cluster.table,
                offer.candidates(),
                lambda node: cluster.pods_on(cluster.table.row_of[node]),
                interested,
            )
        except ExtenderError as error:
            return PostFilterResult(Status(Code.ERROR, (str(error),)))
        return offer.choose(left)
