"""The scheduling cycle of a pod group: all of its pods in one transaction, of which those stay that have a place, if
there are enough (`framework.jobs.GroupJob`).

All members leave the queue at the beginning, wherever they wait, those apart that a plugin keeps out; those without a
node in the end return through back-off. A member for which others have to be evicted counts as placed while the rest is
tried; if one is among those that would make the group complete, all wait for the evictions. Victims are evicted in that
case only. Where room is made for groups as a whole (`GroupPreemption`), no pods are evicted for single members: a group
without a place is tried again with all less important pods gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from koordsched.cluster.pod import Pod
from koordsched.engine.transaction import Transaction
from koordsched.extender.wire import MAX_MESSAGE, clipped
from koordsched.framework.interface import PostFilterResult
from koordsched.framework.jobs import Ending, GroupJob, GroupPreemption, JobScheduling
from koordsched.framework.placements import Placement, highest, none_fits, totals
from koordsched.framework.status import Status
from koordsched.framework.turns import with_pauses
from koordsched.queue.item import QueuedPod
from koordsched.scheduling.failure import SCHEDULER_ERROR, UNSCHEDULABLE, FailedAttempt
from koordsched.scheduling.memberplacing import Member, MemberPlacing
from koordsched.scheduling.placement import AssumedPod, NotPlaced, erroneous

if TYPE_CHECKING:
    from koordsched.scheduling.cycle import SchedulingCycle


class GroupAttempt(MemberPlacing):
    """One attempt to place a group, whose first member was taken from the queue."""

    def __init__(self, cycle: SchedulingCycle, queued: QueuedPod[Pod], plugin: JobScheduling, job: GroupJob) -> None:
        super().__init__(cycle, queued, plugin)
        self._job = job
        self._outcomes: dict[str, Member | NotPlaced] = {}
        self._refused_by = ""
        """Why no member was tried."""
        self._room: PostFilterResult | None = None
        """The evictions for the group as a whole."""

    async def run(self) -> Sequence[AssumedPod]:
        """The members that were assumed; none if the group has no place, which has been handled."""
        taken = self._take_up_all()
        refusal = self._ask(partial(self._job.refusal, [queued.pod for queued in taken]), "")
        if refusal:
            for queued in taken:
                self._give_back(queued, erroneous(refusal))
            self._end([])
            return ()
        try:
            ending, message = await self._place_all(taken)
        except asyncio.CancelledError:
            self._end([])
            self._abandon()
            raise
        except Exception as error:
            # What the job itself raised.
            self._outcomes = {}
            ending, message = Ending.ERROR, self._cycle.broken(self._queued.pod, error).failed.message
        self._cycle.metrics.podgroup_scheduling_algorithm_duration.labels().observe(self._cycle.clock() - self._began)
        assumed = self._stay(taken) if ending is Ending.SCHEDULED else []
        self._ask(partial(self._job.ended, ending, message), None)
        self._end(assumed)
        await self._let_in()
        staying = {each.pod.uid for each in assumed}
        for queued in taken:
            if queued.pod.uid not in staying:
                self._give_back(queued, self._why_not(queued.pod, ending, message))
        self._count(ending)
        return assumed

    def _end(self, assumed: Sequence[AssumedPod]) -> None:
        self._ask(partial(self._plugin.end_job, self._job, [each.pod for each in assumed], ()), None)

    def _count(self, ending: Ending) -> None:
        labels = (ending.value, self._queued.profile)
        self._cycle.metrics.podgroup_schedule_attempts.labels(*labels).value += 1
        took = self._cycle.clock() - self._began
        self._cycle.metrics.podgroup_scheduling_attempt_duration.labels(*labels).observe(took)

    # --- the members -----------------------------------------------------------------------------------

    def _take_up_all(self) -> list[QueuedPod[Pod]]:
        """The members that are in the queue, in the order in which they are tried."""
        taken, ask = [self._queued], self._cycle.recorder.ask
        for pod in sorted(self._job.members, key=lambda member: member.uid):
            if pod.uid == self._queued.pod.uid or ask(partial(self._is_kept_out, pod)):
                continue
            queued = self._cycle.queue.pop_pod(pod)
            if queued is None or not self._cycle.is_wanted(queued.pod):
                continue
            for plugin in self._profile_of(queued.pod).job_plugins:
                self._ask(partial(plugin.taken_up, queued.pod), None)
            taken.append(queued)
        return self._in_order(taken)

    def _in_order(self, taken: Sequence[QueuedPod[Pod]]) -> list[QueuedPod[Pod]]:
        """By priority, then by when they were first tried, which no object says: a journal keeps the order."""
        places = {queued.pod.uid: place for place, queued in enumerate(sorted(taken, key=_order))}
        ask = self._cycle.recorder.ask
        asked = sorted(taken, key=lambda queued: queued.pod.uid)
        return sorted(asked, key=lambda queued: ask(lambda: places[queued.pod.uid]))

    def _is_kept_out(self, pod: Pod) -> bool:
        return self._waiting(pod) is None

    async def _place_all(self, taken: Sequence[QueuedPod[Pod]]) -> tuple[Ending, str]:
        """How the attempt ended, and what the group reads. If that is SCHEDULED, the members stay where they are."""
        cycle = self._cycle
        self._makes_no_room = self._job.makes_no_room()
        placements = self._profile_of(self._queued.pod).placements(self._job)
        if isinstance(placements, Status):
            ending = Ending.UNSCHEDULABLE if placements.code.rejects else Ending.ERROR
            self._refused_by = placements.message if ending is Ending.UNSCHEDULABLE else ""
            return ending, placements.message
        with Transaction(cycle.cluster, cycle.queue.nominator) as transaction:
            before = transaction.checkpoint()
            if placements is None:
                ended = await self._try_all(transaction, taken)
            else:
                ended = await self._try_placements(transaction, taken, placements)
            if ended[0] is Ending.UNSCHEDULABLE and (preemption := self._job.preemption()) is not None:
                await with_pauses(transaction.roll_back(before), self._pause)
                ended = await self._make_room_for_all(transaction, taken, preemption, ended[1])
            if ended[0] is Ending.SCHEDULED:
                transaction.commit()
            else:
                await with_pauses(transaction.roll_back(), self._pause)
        return ended

    async def _make_room_for_all(
        self,
        transaction: Transaction,
        taken: Sequence[QueuedPod[Pod]],
        preemption: GroupPreemption,
        message: str,
    ) -> tuple[Ending, str]:
        """Tries all members with all potential victims gone. `message`: why they have no place with them there."""
        profile, before = self._profile_of(self._queued.pod), transaction.checkpoint()
        members, enabled = [queued.pod for queued in taken], profile.makes_room_for_groups
        victims = await with_pauses(preemption.victims(members, enabled=enabled), self._pause)
        if isinstance(victims, str):
            return Ending.UNSCHEDULABLE, f"{message}, {victims}"
        found = self._members, self._outcomes
        await with_pauses(transaction.evict_all(victims), self._pause)
        self._victims_are_gone = True
        ending, why = await self._try_all(transaction, taken)
        if ending is Ending.ERROR:
            return ending, why
        places = [(member.attempt.pod, member.row) for member in self._members]
        await with_pauses(transaction.roll_back(before), self._pause)
        await with_pauses(preemption.settle(), self._pause)
        self._members, self._outcomes = found
        if ending is not Ending.SCHEDULED:
            return Ending.UNSCHEDULABLE, message
        self._room = await with_pauses(preemption.choose(places), self._pause)
        return Ending.WAITING_ON_PREEMPTION, self._job.waiting_on_preemption()

    async def _try_all(self, transaction: Transaction, taken: Sequence[QueuedPod[Pod]]) -> tuple[Ending, str]:
        """Tries all members."""
        job = self._job
        self._members, self._outcomes = [], {}
        complete = preempts = False
        for queued in taken:
            pod = queued.pod
            outcome = self._outcomes[pod.uid] = await self._place(transaction, pod, makes_room=True)
            if isinstance(outcome, Member):
                self._members.append(outcome)
                preempts |= outcome.preempts is not None
                complete |= not outcome.waits_for_job
            elif outcome.failed.reason == SCHEDULER_ERROR:
                return Ending.ERROR, job.erroneous(outcome.failed.message)
            await self._breathe()
        if not complete:
            return Ending.UNSCHEDULABLE, job.unschedulable()[0]
        if preempts:
            return Ending.WAITING_ON_PREEMPTION, job.waiting_on_preemption()
        return Ending.SCHEDULED, ""

    async def _try_placements(
        self, transaction: Transaction, taken: Sequence[QueuedPod[Pod]], placements: Sequence[Placement]
    ) -> tuple[Ending, str]:
        """Tries all members on each placement, and again on the best."""
        profile, before = self._profile_of(self._queued.pod), transaction.checkpoint()
        fitting: list[Placement] = []
        scores: list[list[int]] = []
        first: tuple[str, list[Member], dict[str, Member | NotPlaced]] | None = None
        for placement in placements:
            self._candidates = placement.rows
            ending, message = await self._try_all(transaction, taken)
            if ending is Ending.ERROR:
                return ending, message
            first = first or (message, self._members, self._outcomes)
            if ending is not Ending.UNSCHEDULABLE:
                fitting.append(placement)
                scorers = profile.placement_scorers
                scores.append([plugin.score_placement(self._job, placement.rows) for plugin, _ in scorers])
            await with_pauses(transaction.roll_back(before), self._pause)
        if fitting:
            best = self._one_of(highest(totals(profile.placement_scorers, scores)))
            self._candidates = fitting[best].rows
            return await self._try_all(transaction, taken)
        assert first is not None, "there is a placement"
        message, self._members, self._outcomes = first
        return Ending.UNSCHEDULABLE, none_fits(len(placements), message)

    def _one_of(self, best: Sequence[int]) -> int:
        if len(best) == 1:
            return best[0]
        return self._cycle.recorder.ask(lambda: self._cycle.rng.choice(best))

    # --- the outcome -----------------------------------------------------------------------------------

    def _stay(self, taken: Sequence[QueuedPod[Pod]]) -> list[AssumedPod]:
        queues = {queued.pod.uid: queued for queued in taken}
        return [self._assumed(member, queues[member.attempt.pod.uid]) for member in self._members]

    def _why_not(self, pod: Pod, ending: Ending, message: str) -> NotPlaced:
        """What a member reads that does not stay."""
        not_placed = self._why_no_place(pod, ending, message)
        if self._room is None or ending is not Ending.WAITING_ON_PREEMPTION:
            return not_placed
        failed = replace(not_placed.failed, nominated=self._room.nominations.get(pod.uid, ""))
        # The evictions are for all: they are started with one of them.
        return NotPlaced(failed, self._room if pod.uid == self._queued.pod.uid else None)

    def _why_no_place(self, pod: Pod, ending: Ending, message: str) -> NotPlaced:
        outcome = self._outcomes.get(pod.uid)
        if isinstance(outcome, NotPlaced) and (ending is not Ending.ERROR or outcome.failed.reason == SCHEDULER_ERROR):
            return outcome
        if self._refused_by:
            return self._refused(self._refused_by, "")
        if ending is Ending.ERROR or not isinstance(outcome, Member):
            return erroneous(message)
        if ending is not Ending.WAITING_ON_PREEMPTION:
            return self._refused(self._job.unschedulable()[1], "")
        if outcome.preempts is not None:
            return outcome.preempts
        return self._refused(message, self._cycle.cluster.table.names[outcome.row])

    def _refused(self, message: str, nominated: str) -> NotPlaced:
        text = clipped(message, MAX_MESSAGE)
        return NotPlaced(FailedAttempt(UNSCHEDULABLE, text, frozenset((self._plugin.name,)), nominated=nominated))

    def _give_back(self, queued: QueuedPod[Pod], not_placed: NotPlaced) -> None:
        failed = replace(not_placed.failed, through_backoff=True)
        self._cycle.give_back(queued, self._profile_of(queued.pod), self._began, not_placed._replace(failed=failed))


def _order(queued: QueuedPod[Pod]) -> tuple[int, float, int]:
    first = queued.initial_attempt_timestamp
    return -queued.pod.priority, first if first is not None else inf, queued.sequence
