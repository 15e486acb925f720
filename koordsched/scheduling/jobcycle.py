"""The scheduling cycle of a job: all of its pods in one transaction, or none (`framework.jobs`).

The first member comes from the queue; the others stay where they wait until all are placed. If one has no place, it
waits for the events that may help it, and so does one member of each other shape that was placed: every event that may
help the job finds one of them. The others only show why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from koordsched.cluster.pod import Pod
from koordsched.engine.attempt import Attempt
from koordsched.engine.transaction import Transaction
from koordsched.extender.wire import MAX_MESSAGE, clipped
from koordsched.framework.diagnosis import one_node_error
from koordsched.framework.jobs import Job, JobScheduling
from koordsched.framework.profile import Profile
from koordsched.framework.status import Code, Status
from koordsched.framework.turns import with_pauses
from koordsched.queue.item import QueuedPod
from koordsched.scheduling.failure import UNSCHEDULABLE, FailedAttempt
from koordsched.scheduling.memberplacing import MemberPlacing
from koordsched.scheduling.placement import AssumedPod, NotPlaced

if TYPE_CHECKING:
    from koordsched.scheduling.cycle import SchedulingCycle

_NO_PODS: Sequence[Pod] = ()

_TAKEN_UP_AT_ONCE = 16
"""Members taken from the queue between two steps of an attempt, which takes no longer than placing one or two."""


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


class JobAttempt(MemberPlacing):
    """One attempt to place a job, whose first member was taken from the queue."""

    def __init__(self, cycle: SchedulingCycle, queued: QueuedPod[Pod], plugin: JobScheduling, job: Job) -> None:
        super().__init__(cycle, queued, plugin)
        self._job = job
        self._assumed_members: list[AssumedPod] = []
        self._left_out: list[Pod] = []
        """Members that other plugins keep out of the queue, or that rest."""
        self._some_rest = False

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
            assumed = self._assumed_members
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
        await self._give_back(returning, failed[1] if failed is not None else None, texts)
        self._cycle.queue.ask_again(self._left_out, self._profile_of(job.first).job_plugin_names)
        return ()

    def _end(self, placed: Sequence[Pod], resting: Sequence[Pod]) -> None:
        self._ask(partial(self._plugin.end_job, self._job, placed, resting), None)

    # --- placing -------------------------------------------------------------------------------------

    async def _place_all(self) -> tuple[bool, tuple[Pod, NotPlaced] | None]:
        """Whether there are enough members, and the one that has no place, if it is that."""
        cycle, job = self._cycle, self._job
        self._makes_no_room = job.makes_no_room()
        self._some_rest = cycle.recorder.ask(self._has_resting_members)
        with Transaction(cycle.cluster, cycle.queue.nominator) as transaction:
            while (member := job.next()) is not None:
                pod = self._candidate(member)
                if pod is None:
                    self._left_out.append(member)
                    continue
                outcome = await self._place(transaction, pod)
                if isinstance(outcome, NotPlaced):
                    self._ask(partial(job.fail, pod, outcome.failed.message), None)
                    await with_pauses(transaction.roll_back(), self._pause)
                    return False, (pod, outcome)
                self._members.append(outcome)
                if not outcome.waits_for_job:
                    await self._stay()
                    transaction.commit()
                    return True, None
                await self._breathe()
            await with_pauses(transaction.roll_back(), self._pause)
        return False, None

    def _has_resting_members(self) -> bool:
        """Whether members are not to be tried with this first one, as each of their attempts may end in an error again.

        They rest as long as that takes, and then are tried first. If the first has rested so itself, none does.
        """
        return not self._queued.consecutive_errors and any(map(self._cycle.queue.met_error, self._job.untried()))

    def _candidate(self, member: Pod) -> Pod | None:
        """The newest version of a member; None if it may not be tried now: other plugins keep it out of the queue, it
        rests, or another pod has its name. Plugins may refuse also the first since it came to the queue.
        """
        if member.uid != self._job.first.uid:
            if self._some_rest and self._cycle.recorder.ask(partial(self._cycle.queue.met_error, member)):
                return None
            return self._waiting(member)
        names = self._profile_of(member).job_plugin_names
        return self._job.first if not self._cycle.queue.is_refused(self._queued, names) else None

    # --- all of it -----------------------------------------------------------------------------------

    async def _stay(self) -> None:
        """Takes the members up, still inside the transaction: explanations wait for its end."""
        for number, member in enumerate(self._members, start=1):
            queued = self._take_up(member.attempt.pod)
            assert queued is not None, "pods leave the queue by changes, which wait"
            self._assumed_members.append(self._assumed(member, queued))
            if not number % _TAKEN_UP_AT_ONCE:
                await self._pause()

    def _take_up(self, pod: Pod) -> QueuedPod[Pod] | None:
        self._no_longer_kept_out(pod)
        return self._queued if pod.uid == self._job.first.uid else self._cycle.queue.pop_pod(pod)

    def _no_longer_kept_out(self, pod: Pod) -> None:
        """It was tried, or would have been: what kept it out of the queue is over."""
        if self._cycle.notices is not None:
            self._cycle.notices.end(pod, self._plugin.name)

    def _tell(self, pod: Pod, message: str, nominations: Mapping[str, str]) -> None:
        self._no_longer_kept_out(pod)
        self._cycle.failures.tell(pod, UNSCHEDULABLE, message, nominations.get(pod.uid), self._plugin.name)

    # --- or none of it -------------------------------------------------------------------------------

    def _untried(self) -> Sequence[Pod]:
        return self._ask(self._job.untried, _NO_PODS)

    def _message_of_untried(self) -> str:
        """What members read that were not tried: what an attempt at the first of them says."""
        untried = self._untried()
        if not untried:
            return ""
        attempt = Attempt(self._profile_of(untried[0]), self._cycle.cluster, untried[0])
        attempt.cycle.makes_no_room = self._makes_no_room
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
            returning[pod.uid] = _Returning(queued, self._profile_of(pod), self._began, not_placed)

    def _message_of_placed(self) -> str:
        text = self._ask(self._job.rejection, "")
        return one_node_error(Status(Code.UNSCHEDULABLE, (clipped(text, MAX_MESSAGE),)))

    async def _give_back(self, returning: Sequence[_Returning], cause: NotPlaced | None, texts: _Texts) -> None:
        """All members show why; some wait for events."""
        cycle = self._cycle
        outcome = cause.outcome if cause is not None else None
        nominations = dict(outcome.nominations) if outcome is not None else {}
        if outcome is None or not outcome.status.ok:
            promised = cycle.queue.nominator.is_promised
            renounced = self._ask(self._job.renounced, _NO_PODS)
            nominations = {pod.uid: "" for pod in renounced if promised(pod.uid)} | nominations
        told = set()
        for each in returning:
            pod, not_placed = each.queued.pod, each.not_placed
            told.add(pod.uid)
            if pod.uid in nominations and not_placed.failed.nominated is None:
                failed = replace(not_placed.failed, nominated=nominations[pod.uid])
                not_placed = not_placed._replace(failed=failed)
            cycle.give_back(each.queued, each.profile, each.started, not_placed)
        untried = self._untried() if nominations else self._ask(partial(self._job.show, texts.untried), _NO_PODS)
        for number, member in enumerate(self._members, start=1):
            pod = member.attempt.pod
            if pod.uid not in told:
                self._tell(pod, texts.placed, nominations)
                await self._share(number)
        for number, pod in enumerate(untried, start=1):
            if pod.uid not in told:
                self._tell(pod, texts.untried, nominations)
                await self._share(number)
        for pod in self._left_out:
            if nominations.get(pod.uid) == "":
                cycle.failures.renounce(pod)
