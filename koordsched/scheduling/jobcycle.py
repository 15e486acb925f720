"""The scheduling cycle of a job: all of its pods in one transaction, or none (`framework.jobs`).

The first member comes from the queue; the others stay where they wait until all are placed. If one has no place, it
waits for the events that may help it, and so does one member of each other shape that was placed: every event that may
help the job finds one of them. The others only show why.

Between members the loop gets a turn whenever the job has had it for `PAUSE_AFTER`. Changes of the cluster wait
meanwhile, as they do while extenders are asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from koordsched.cluster.pod import Pod
from koordsched.engine.attempt import Attempt
from koordsched.engine.transaction import Transaction
from koordsched.extender.wire import MAX_MESSAGE, clipped
from koordsched.framework.diagnosis import one_node_error
from koordsched.framework.jobs import Job, JobScheduling
from koordsched.framework.profile import Profile
from koordsched.framework.status import Code, Status
from koordsched.queue.item import QueuedPod
from koordsched.scheduling.failure import UNSCHEDULABLE, FailedAttempt
from koordsched.scheduling.placement import AssumedPod, NotPlaced, refused_by, stays

if TYPE_CHECKING:
    from koordsched.extender.consultation import ExtenderConsultation
    from koordsched.scheduling.cycle import SchedulingCycle

_log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_AFTER = 0.02
"""Seconds for which a job has the loop, at most; then watches and writes get their turn."""

_NO_PODS: Sequence[Pod] = ()

_LOOK_AFTER = 16
"""Members between two looks at the clock."""


@dataclass(slots=True, eq=False, repr=False)
class _Member:
    """A member that was placed. `nominated`: the node it had been nominated to; `started`: seconds of the clock."""

    attempt: Attempt
    row: int
    nominated: str
    waits: dict[str, float]
    started: float


@dataclass(slots=True, eq=False, repr=False)
class _Returning:
    """A member that goes back to the queue, to wait for events on behalf of all."""

    queued: QueuedPod[Pod]
    profile: Profile
    started: float
    not_placed: NotPlaced


class _Texts(NamedTuple):
    """What members read that had a place, and those that were not tried."""

    placed: str
    untried: str


class JobAttempt:
    """One attempt to place a job, whose first member was taken from the queue."""

    def __init__(self, cycle: SchedulingCycle, queued: QueuedPod[Pod], plugin: JobScheduling, job: Job) -> None:
        self._cycle = cycle
        self._queued = queued
        self._plugin = plugin
        self._job = job
        self._members: list[_Member] = []
        self._consultation: ExtenderConsultation | None = None
        self._held = False
        self._began = cycle.clock()
        self._now = asyncio.get_running_loop().time
        self._turn_began = self._now()

    async def run(self) -> Sequence[AssumedPod]:
        """The members, all assumed; none if the job failed, which has been handled.

        Members that stay, or return, are in flight when changes are let in: none is missed.
        """
        job = self._job
        try:
            complete, failed = await self._place_all()
        except asyncio.CancelledError:
            self._end((), ())
            self._abandon()
            raise
        except Exception as error:
            # What the job itself raised.
            complete, failed = False, (job.first, self._cycle.broken(job.first, error))
        if complete:
            assumed = self._stay()
            self._end([each.pod for each in assumed], ())
            await self._let_in()
            if all(each.queued is not self._queued for each in assumed):
                self._cycle.failures.put_back(self._queued, self._plugin.name)
            return assumed
        if failed is None:
            self._ask(job.fall_short, None)
        elif failed[1].evicts({member.attempt.pod.uid for member in self._members}):
            # No room is made by evicting those that room is made for.
            kept = failed[1].failed
            failed = (failed[0], NotPlaced(replace(kept, nominated="" if kept.nominated else kept.nominated)))
        texts = _Texts(self._message_of_placed(), self._message_of_untried())
        returning = self._returning(failed, texts)
        self._end((), [each.queued.pod for each in returning])
        await self._let_in()
        self._give_back(returning, failed[1] if failed is not None else None, texts)
        return ()

    def _end(self, placed: Sequence[Pod], resting: Sequence[Pod]) -> None:
        self._ask(partial(self._plugin.end_job, self._job, placed, resting), None)

    def _ask(self, question: Callable[[], T], otherwise: T) -> T:
        """What the plugin says; a bug of it must not stop the scheduler."""
        try:
            return question()
        except Exception:
            _log.exception("the job %s of %s failed", self._job.name, self._plugin.name)
            return otherwise

    # --- placing -------------------------------------------------------------------------------------

    async def _place_all(self) -> tuple[bool, tuple[Pod, NotPlaced] | None]:
        """Whether there are enough members, and the one that has no place, if it is that."""
        cycle, job = self._cycle, self._job
        with Transaction(cycle.cluster, cycle.queue.nominator) as transaction:
            while (member := job.next()) is not None:
                pod = self._candidate(member)
                if pod is None:
                    continue
                outcome = await self._place(transaction, pod)
                if isinstance(outcome, NotPlaced):
                    return False, (pod, outcome)
                self._members.append(outcome)
                if self._plugin.name not in outcome.waits:
                    transaction.commit()
                    return True, None
                await self._breathe()
        return False, None

    def _candidate(self, member: Pod) -> Pod | None:
        """The newest version of a member; None if it may not be tried now: other plugins keep it out of the queue, or
        another pod has its name.
        """
        if member.uid == self._job.first.uid:
            return self._job.first
        return self._cycle.queue.candidate(member, self._plugin.name)

    async def _place(self, transaction: Transaction, pod: Pod) -> _Member | NotPlaced:
        cycle = self._cycle
        if self._members or pod.uid != self._job.first.uid:
            cycle.recorder.member(pod)
        started = cycle.clock()
        if cycle.unreadable is not None and (hidden := cycle.unreadable(pod)) is not None:
            self._ask(partial(self._job.fail, pod, hidden.message), None)
            return NotPlaced(hidden)
        consultation = self._consult(pod)
        attempt = cycle.begin(cycle.profiles[pod.shape.scheduler_name], pod)
        attempt.cycle.may_be_suspended = consultation is not None
        nominated = cycle.queue.nominator.node_of(pod.uid)
        before = transaction.checkpoint()
        outcome: NotPlaced
        try:
            row = await cycle.decide(attempt, started, consultation, shared=False)
            if isinstance(row, NotPlaced):
                outcome = row
            else:
                status, waits = cycle.place(transaction, attempt, row)
                if stays(status):
                    return _Member(attempt, row, nominated, waits, started)
                outcome = refused_by(status)
            transaction.rollback(before)
        except Exception as error:
            transaction.rollback(before)
            outcome = cycle.given_up(attempt, error)
        self._ask(partial(self._job.fail, pod, outcome.failed.message), None)
        return outcome

    def _consult(self, pod: Pod) -> ExtenderConsultation | None:
        found = self._cycle.consult(pod) if self._cycle.consult is not None else None
        if found is not None:
            self._consultation = found
        return found

    async def _breathe(self) -> None:
        """Lets others have the loop, if this job has had it for long."""
        if len(self._members) % _LOOK_AFTER:
            return
        recorder = self._cycle.recorder
        if recorder.ask(lambda: self._now() - self._turn_began >= PAUSE_AFTER):
            self._cycle.inbox.hold()
            self._held = True
            await recorder.let_in(partial(asyncio.sleep, 0))
            self._turn_began = self._now()

    async def _let_in(self) -> None:
        """The job is decided: the changes that waited are applied."""
        if self._consultation is not None:
            await self._consultation.end()
        elif self._held:
            await self._cycle.recorder.let_in(self._cycle.inbox.release)

    def _abandon(self) -> None:
        if self._consultation is not None:
            self._consultation.abandon()
        else:
            self._cycle.inbox.release_now()

    # --- all of it -----------------------------------------------------------------------------------

    def _stay(self) -> list[AssumedPod]:
        assumed = []
        for member in self._members:
            queued = self._take_up(member.attempt.pod)
            assert queued is not None, "pods leave the queue by changes, which wait"
            waits = {name: seconds for name, seconds in member.waits.items() if name != self._plugin.name}
            assumed.append(
                self._cycle.assumed(member.attempt, queued, member.row, member.nominated, waits, member.started)
            )
        return assumed

    def _take_up(self, pod: Pod) -> QueuedPod[Pod] | None:
        return self._queued if pod.uid == self._job.first.uid else self._cycle.queue.pop_pod(pod)

    # --- or none of it -------------------------------------------------------------------------------

    def _untried(self) -> Sequence[Pod]:
        return self._ask(self._job.untried, _NO_PODS)

    def _message_of_untried(self) -> str:
        """What members read that were not tried: what an attempt at the first of them says."""
        untried = self._untried()
        if not untried:
            return ""
        attempt = Attempt(self._cycle.profiles[untried[0].shape.scheduler_name], self._cycle.cluster, untried[0])
        if not attempt.has_nodes:
            return attempt.message()
        try:
            attempt.filter()
            text = attempt.message(attempt.post_filter())
        except Exception as error:
            text = self._cycle.broken(untried[0], error).failed.message
        return clipped(text, MAX_MESSAGE)

    def _returning(self, failed: tuple[Pod, NotPlaced] | None, texts: _Texts) -> list[_Returning]:
        """The member that had no place, and one of each other shape among those that had; and the first, which comes
        from the queue.
        """
        returning: dict[str, _Returning] = {}
        shapes = set()
        if failed is not None:
            pod, not_placed = failed
            shapes.add(pod.shape)
            self._return(returning, pod, not_placed)
        first = self._job.first.uid
        for member in self._members:
            pod = member.attempt.pod
            plugins = {self._plugin.name}
            if pod.shape not in shapes:
                # Other room for this one may leave the room that another member needs.
                plugins.update(plugin.name for plugin in member.attempt.profile.chains.filters)
                shapes.add(pod.shape)
            elif pod.uid != first:
                continue
            self._return(returning, pod, NotPlaced(FailedAttempt(UNSCHEDULABLE, texts.placed, frozenset(plugins))))
        if first not in returning:
            waits = FailedAttempt(UNSCHEDULABLE, texts.untried or texts.placed, frozenset((self._plugin.name,)))
            self._return(returning, self._job.first, NotPlaced(waits))
        return list(returning.values())

    def _return(self, returning: dict[str, _Returning], pod: Pod, not_placed: NotPlaced) -> None:
        queued = self._take_up(pod)
        if queued is not None:
            profile = self._cycle.profiles[pod.shape.scheduler_name]
            returning[pod.uid] = _Returning(queued, profile, self._began, not_placed)

    def _message_of_placed(self) -> str:
        text = self._ask(self._job.rejection, "")
        return one_node_error(Status(Code.UNSCHEDULABLE, (clipped(text, MAX_MESSAGE),)))

    def _give_back(self, returning: Sequence[_Returning], cause: NotPlaced | None, texts: _Texts) -> None:
        """All members show why; some wait for events."""
        cycle = self._cycle
        outcome = cause.outcome if cause is not None else None
        nominations = outcome.nominations if outcome is not None else {}
        told = set()
        for each in returning:
            pod, not_placed = each.queued.pod, each.not_placed
            told.add(pod.uid)
            if pod.uid in nominations:
                failed = replace(not_placed.failed, nominated=nominations[pod.uid])
                not_placed = not_placed._replace(failed=failed)
            cycle.give_back(each.queued, each.profile, each.started, not_placed)
        for member in self._members:
            pod = member.attempt.pod
            if pod.uid not in told:
                cycle.failures.tell(pod, UNSCHEDULABLE, texts.placed, nominations.get(pod.uid), self._plugin.name)
        untried = self._untried() if nominations else self._ask(partial(self._job.show, texts.untried), _NO_PODS)
        for pod in untried:
            if pod.uid not in told:
                cycle.failures.tell(pod, UNSCHEDULABLE, texts.untried, nominations.get(pod.uid), self._plugin.name)
