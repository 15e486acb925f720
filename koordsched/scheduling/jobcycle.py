"""The scheduling cycle of a job: all of its pods in one transaction, or none (`framework.jobs`).

The first member comes from the queue; the others stay where they wait until all are placed. If one has no place, it
waits for the events that may help it, and so does one member of each other shape that was placed: every event that may
help the job finds one of them. The others only show why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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
from koordsched.scheduling.memberplacing import MemberPlacing
from koordsched.scheduling.placement import AssumedPod, NotPlaced

if TYPE_CHECKING:
    from koordsched.scheduling.cycle import SchedulingCycle


@dataclass(slots=True, eq=False, repr=False)
class _Returning:
    """A member that goes back to the queue, to wait for events on behalf of all."""

    queued: QueuedPod[Pod]
    profile: Profile
    started: float
    not_placed: NotPlaced


class JobAttempt(MemberPlacing):
    """One attempt to place a job, whose first member was taken from the queue."""

    def __init__(self, cycle: SchedulingCycle, queued: QueuedPod[Pod], plugin: JobScheduling, job: Job) -> None:
        super().__init__(cycle, queued, plugin)
        self._job = job

    async def run(self) -> Sequence[AssumedPod]:
        """The members, all assumed; none if the job failed, which has been handled.

        Members that stay, or return, are in flight when changes are let in: none is missed.
        """
        job, plugin = self._job, self._plugin
        try:
            complete, failed = await self._place_all()
        except asyncio.CancelledError:
            self._abandon()
            raise
        if complete:
            assumed = self._stay()
            await self._let_in()
            plugin.end_job(job, [each.pod for each in assumed], ())
            return assumed
        if failed is None:
            job.fall_short()
        untried = self._message_of_untried()
        returning = self._returning(failed, untried)
        await self._let_in()
        self._give_back(returning, failed[1] if failed is not None else None, untried)
        plugin.end_job(job, (), [each.queued.pod for each in returning])
        return ()

    # --- placing -------------------------------------------------------------------------------------

    async def _place_all(self) -> tuple[bool, tuple[Pod, NotPlaced] | None]:
        """Whether there are enough members, and the one that has no place, if it is that."""
        cycle, job = self._cycle, self._job
        with Transaction(cycle.cluster, cycle.queue.nominator) as transaction:
            while (pod := job.next()) is not None:
                outcome = await self._place(transaction, pod)
                if isinstance(outcome, NotPlaced):
                    job.fail(pod, outcome.failed.message)
                    return False, (pod, outcome)
                self._members.append(outcome)
                if not outcome.waits_for_job:
                    transaction.commit()
                    return True, None
                await self._breathe()
        return False, None

    # --- all of it -----------------------------------------------------------------------------------

    def _stay(self) -> list[AssumedPod]:
        assumed = []
        for member in self._members:
            queued = self._take_up(member.attempt.pod)
            assert queued is not None, "pods leave the queue by changes, which wait"
            assumed.append(self._assumed(member, queued))
        return assumed

    def _take_up(self, pod: Pod) -> QueuedPod[Pod] | None:
        return self._queued if pod is self._job.first else self._cycle.queue.pop_pod(pod)

    # --- or none of it -------------------------------------------------------------------------------

    def _message_of_untried(self) -> str:
        """What members read that were not tried: what an attempt at the first of them says."""
        untried = self._job.untried()
        if not untried:
            return ""
        attempt = Attempt(self._profile_of(untried[0]), self._cycle.cluster, untried[0])
        if not attempt.has_nodes:
            return attempt.message()
        attempt.filter()
        return clipped(attempt.message(attempt.post_filter()), MAX_MESSAGE)

    def _returning(self, failed: tuple[Pod, NotPlaced] | None, untried: str) -> list[_Returning]:
        """The member that had no place, and one of each other shape among those that had; and the first, which comes
        from the queue.
        """
        returning: dict[str, _Returning] = {}
        shapes = set()
        if failed is not None:
            pod, not_placed = failed
            shapes.add(pod.shape)
            if not_placed.evicts({member.attempt.pod.uid for member in self._members}):
                not_placed = not_placed._replace(outcome=None)
            self._return(returning, pod, not_placed)
        message = self._message_of_placed()
        for member in self._members:
            pod = member.attempt.pod
            plugins = {self._plugin.name}
            if pod.shape not in shapes:
                # Other room for this one may leave the room that another member needs.
                plugins.update(plugin.name for plugin in member.attempt.profile.chains.filters)
                shapes.add(pod.shape)
            elif pod is not self._job.first:
                continue
            self._return(returning, pod, NotPlaced(FailedAttempt(UNSCHEDULABLE, message, frozenset(plugins))))
        if self._job.first.uid not in returning:
            waits = FailedAttempt(UNSCHEDULABLE, untried, frozenset((self._plugin.name,)))
            self._return(returning, self._job.first, NotPlaced(waits))
        return list(returning.values())

    def _return(self, returning: dict[str, _Returning], pod: Pod, not_placed: NotPlaced) -> None:
        queued = self._take_up(pod)
        if queued is not None:
            returning[pod.uid] = _Returning(queued, self._profile_of(pod), self._began, not_placed)

    def _message_of_placed(self) -> str:
        return one_node_error(Status(Code.UNSCHEDULABLE, (clipped(self._job.rejection(), MAX_MESSAGE),)))

    def _give_back(self, returning: Sequence[_Returning], cause: NotPlaced | None, untried: str) -> None:
        """All members show why; some wait for events."""
        cycle, job = self._cycle, self._job
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
        message = self._message_of_placed()
        for member in self._members:
            pod = member.attempt.pod
            if pod.uid not in told:
                cycle.failures.tell(pod, UNSCHEDULABLE, message, nominations.get(pod.uid), self._plugin.name)
        for pod in job.show(untried) if not nominations else job.untried():
            if pod.uid not in told:
                cycle.failures.tell(pod, UNSCHEDULABLE, untried, nominations.get(pod.uid), self._plugin.name)
