"""One member of a job after the other, each by the steps of the scheduling cycle, in one transaction for all.

Between members, and between the steps of searches for room, the loop gets a turn whenever the job has had it for
`PAUSE_AFTER`. Changes of the cluster wait meanwhile, as they do while extenders are asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.engine.attempt import Attempt
from koordsched.engine.transaction import Transaction
from koordsched.framework.interface import PreEnqueue
from koordsched.framework.jobs import JobScheduling
from koordsched.framework.profile import Profile
from koordsched.framework.status import Code, Status
from koordsched.queue.item import QueuedPod
from koordsched.scheduling.placement import AssumedPod, NotPlaced, refused_by, stays

if TYPE_CHECKING:
    from koordsched.extender.consultation import ExtenderConsultation
    from koordsched.scheduling.cycle import SchedulingCycle

_log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_AFTER = 0.02
"""Seconds for which a job has the loop, at most; then watches and writes get their turn."""

_LOOK_AFTER = 16
"""Members between two looks at the clock."""

_STEPS_BETWEEN = 4
"""Steps of a search between two looks, each of which takes about as long as a member, or longer."""


@dataclass(slots=True, eq=False, repr=False)
class Member:
    """A member that was placed. `nominated`: the node it had been nominated to; `started`: seconds of the clock.

    `preempts`: it has its place only once others are evicted, as this says.
    """

    attempt: Attempt
    row: int
    nominated: str
    waits: dict[str, float]
    started: float
    preempts: NotPlaced | None = None

    @property
    def waits_for_job(self) -> bool:
        """Whether a plugin that places jobs wants more members."""
        return not self.attempt.profile.job_plugin_names.isdisjoint(self.waits)


class MemberPlacing:
    """One attempt to place a job, whose first member was taken from the queue."""

    def __init__(self, cycle: SchedulingCycle, queued: QueuedPod[Pod], plugin: JobScheduling) -> None:
        self._cycle = cycle
        self._queued = queued
        self._plugin = plugin
        self._members: list[Member] = []
        self._tried = 0
        self._steps = 0
        self._candidates: RowArray | None = None
        self._makes_no_room = ""
        self._job_members: set[str] = set()
        self._victims_are_gone = False
        """Whether the attempt is a hypothesis, for which no room is made."""
        self._consultation: ExtenderConsultation | None = None
        self._held = False
        self._began = cycle.clock()
        self._now = asyncio.get_running_loop().time
        self._turn_began = self._now()

    def _profile_of(self, pod: Pod) -> Profile:
        return self._cycle.profiles[pod.shape.scheduler_name]

    def _ask(self, question: Callable[[], T], otherwise: T) -> T:
        """What the plugin says; a bug of it must not stop the scheduler."""
        try:
            return question()
        except Exception:
            _log.exception("a job of %s failed", self._plugin.name)
            return otherwise

    def _waiting(self, member: Pod) -> Pod | None:
        """The newest version of a member that is in the queue; None if another plugin keeps it out, or if another pod
        has its name. A plugin that places jobs, and has the member WAIT, does not: one is in the queue for all.
        """
        profile = self._cycle.profiles.get(member.shape.scheduler_name)
        if profile is None:
            return None
        pod = self._cycle.queue.candidate(member, profile.job_plugin_names)
        if pod is None:
            return None
        for plugin in profile.job_plugins:
            if plugin.name != self._plugin.name and isinstance(plugin, PreEnqueue):
                status = plugin.pre_enqueue(pod)
                if not status.ok and status.code is not Code.WAIT:
                    return None
        return pod

    async def _place(self, transaction: Transaction, pod: Pod, *, makes_room: bool = False) -> Member | NotPlaced:
        """`makes_room`: if others have to be evicted for the pod, it is placed as if they were."""
        cycle = self._cycle
        if self._tried or pod.uid != self._queued.pod.uid:
            cycle.recorder.member(pod)
        self._tried += 1
        started = cycle.clock()
        if cycle.unreadable is not None and (hidden := cycle.unreadable(pod)) is not None:
            return NotPlaced(hidden)
        consultation = self._consult(pod)
        attempt = cycle.begin(self._profile_of(pod), pod)
        attempt.cycle.may_be_suspended = consultation is not None
        attempt.cycle.candidates, attempt.cycle.makes_no_room = self._candidates, self._makes_no_room
        self._job_members.add(pod.uid)
        attempt.cycle.job_members = self._job_members
        nominated = cycle.queue.nominator.node_of(pod.uid)
        before = transaction.checkpoint()
        preempts: NotPlaced | None = None
        try:
            decided = await cycle.decide(
                attempt,
                started,
                consultation,
                shared=False,
                makes_room=not self._victims_are_gone,
                pause=self._pause,
            )
            if isinstance(decided, NotPlaced):
                room = self._make_room(transaction, decided) if makes_room else None
                if room is None:
                    return decided
                row, preempts = room, decided
            else:
                row = decided
            status, waits = cycle.place(transaction, attempt, row)
            if stays(status):
                return Member(attempt, row, nominated, waits, started, preempts)
            transaction.rollback(before)
            return refused_by(status)
        except Exception as error:
            transaction.rollback(before)
            return cycle.given_up(attempt, error)

    def _make_room(self, transaction: Transaction, not_placed: NotPlaced) -> int | None:
        """Takes the victims of a preemption away, for the time being; the row for the pod, None if there is none."""
        outcome = not_placed.outcome
        row = self._cycle.cluster.table.row_of.get(outcome.nominated_node or "") if outcome is not None else None
        if outcome is None or row is None:
            return None
        for victim in outcome.victims:
            if victim.row >= 0:
                transaction.evict(victim)
        return row

    def _consult(self, pod: Pod) -> ExtenderConsultation | None:
        found = self._cycle.consult(pod) if self._cycle.consult is not None else None
        if found is not None:
            self._consultation = found
        return found

    async def _breathe(self) -> None:
        """Lets others have the loop, if this job has had it for long."""
        if not self._tried % _LOOK_AFTER:
            await self._look()

    async def _pause(self) -> None:
        """The same between two steps of a search (`framework.turns`)."""
        self._steps += 1
        if not self._steps % _STEPS_BETWEEN:
            await self._look()

    async def _share(self, done: int) -> None:
        """The same after the attempt, `done` members through what follows from it: changes need not wait any more."""
        recorder = self._cycle.recorder
        if not done % _LOOK_AFTER and recorder.ask(self._had_its_turn):
            await recorder.let_in(partial(asyncio.sleep, 0))
            self._turn_began = self._now()

    def _had_its_turn(self) -> bool:
        return self._now() - self._turn_began >= PAUSE_AFTER

    async def _look(self) -> None:
        recorder = self._cycle.recorder
        if recorder.ask(self._had_its_turn):
            self._cycle.inbox.hold()
            self._held = True
            with self._cycle.cluster.paused():
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

    def _assumed(self, member: Member, queued: QueuedPod[Pod]) -> AssumedPod:
        """A member that stays."""
        attempt = member.attempt
        waits = self._remaining_waits(member)
        return self._cycle.assumed(attempt, queued, member.row, member.nominated, waits, member.started)

    def _remaining_waits(self, member: Member) -> dict[str, float]:
        """What a member that stays still waits for: other plugins that place jobs are asked again, now that all members
        are placed.
        """
        attempt, waits = member.attempt, dict(member.waits)
        for plugin in attempt.profile.job_plugins:
            if waits.pop(plugin.name, None) is not None and plugin is not self._plugin:
                permit = partial(plugin.permit, attempt.cycle, attempt.pod, member.row)
                status, seconds = self._ask(permit, (Status(Code.WAIT), member.waits[plugin.name]))
                if status.code is Code.WAIT:
                    waits[plugin.name] = seconds
        return waits
