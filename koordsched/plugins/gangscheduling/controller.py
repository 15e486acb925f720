"""Writes the condition PodGroupScheduled of PodGroups: whether the last attempt found a place for enough pods.

A group that was scheduled once stays so, whatever happens to pods that come later.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import msgspec

from koordsched.framework.controller import ControllerHandle
from koordsched.framework.handle import WriteFailed
from koordsched.framework.jobs import Ending
from koordsched.plugins.gangscheduling.plugin import GangScheduling
from koordsched.plugins.shared.moments import moment_text
from koordsched.plugins.shared.podgroups import POD_GROUP_SCHEDULED, POD_GROUPS, Condition, PodGroup
from koordsched.plugins.shared.workqueue import WorkQueue

_log = logging.getLogger(__name__)

TRUE, FALSE = "True", "False"

_REASONS = {Ending.SCHEDULED: "Scheduled", Ending.ERROR: "SchedulerError"}


class Outcome(NamedTuple):
    """What a condition is to say. `uid`: of the PodGroup that it is about."""

    uid: str
    status: str
    reason: str
    message: str


def outcome_of(group: PodGroup, ending: Ending, message: str) -> Outcome:
    """What the end of an attempt comes to."""
    status = TRUE if ending is Ending.SCHEDULED else FALSE
    return Outcome(group.metadata.uid, status, _REASONS.get(ending, "Unschedulable"), message)


def changed_conditions(group: PodGroup, outcome: Outcome, now: str) -> tuple[Condition, ...] | None:
    """All conditions as they are to be; None if nothing is to be written. `now`: the time, as text."""
    before = group.condition(POD_GROUP_SCHEDULED)
    if before is not None and before.status == TRUE and outcome.status != TRUE:
        return None
    same_status = before is not None and before.status == outcome.status
    after = Condition(
        type=POD_GROUP_SCHEDULED,
        status=outcome.status,
        observed_generation=group.metadata.generation,
        last_transition_time=before.last_transition_time if before is not None and same_status else now,
        reason=outcome.reason,
        message=outcome.message,
    )
    if after == before:
        return None
    others = group.status.conditions
    if before is None:
        return (*others, after)
    return tuple(after if each is before else each for each in others)


class PodGroupConditions:
    """By group, the newest outcome that is not written yet.

    A status is written on the version that it was derived from; if there is a newer one, the API server refuses, and it
    is derived again.
    """

    def __init__(self, plugin: GangScheduling, args: object, handle: ControllerHandle) -> None:
        self._cache = plugin.cache
        self._writes = handle.writes
        self._wall = handle.clock.wall
        self._outcomes: dict[str, Outcome] = {}
        self._queue: WorkQueue | None = None
        """None while this scheduler does not lead."""
        if self._cache is not None:
            self._cache.on_ending(self._ended)

    async def run(self) -> None:
        """Works until cancelled."""
        self._queue = queue = WorkQueue()
        try:
            for group_id in self._outcomes:
                queue.add(group_id)
            self._notice_scheduled()
            while True:
                await self._work(queue, await queue.take())
        finally:
            queue.close()
            self._queue = None

    def _notice_scheduled(self) -> None:
        """Groups whose pods were bound before what was to be written of it could be."""
        for group in self._cache.groups.as_of_now() if self._cache is not None else ():
            members = self._cache.members.get(group.id) if self._cache is not None else None
            if members is not None and members.placed and len(members.placed) >= group.min_count:
                self._ended(group.id, Ending.SCHEDULED, "")

    def _ended(self, group_id: str, ending: Ending, message: str) -> None:
        group = self._cache.group(group_id) if self._cache is not None else None
        if group is None:
            return
        outcome, known = outcome_of(group, ending, message), self._outcomes.get(group_id)
        if known is not None and known.uid == outcome.uid and known.status == TRUE:
            return
        self._outcomes[group_id] = outcome
        if self._queue is not None:
            self._queue.add(group_id)

    async def _work(self, queue: WorkQueue, group_id: str) -> None:
        outcome = self._outcomes.get(group_id)
        group = self._cache.group(group_id) if self._cache is not None else None
        if outcome is None or group is None or group.metadata.uid != outcome.uid:
            self._outcomes.pop(group_id, None)
            queue.done(group_id)
            return
        try:
            await self._write(group, outcome)
        except WriteFailed as error:
            _log.info("the status of PodGroup %s is not written: %s", group_id, error)
            queue.failed(group_id)
            return
        if self._outcomes.get(group_id) is outcome:
            del self._outcomes[group_id]
        queue.done(group_id)

    async def _write(self, group: PodGroup, outcome: Outcome) -> None:
        conditions = changed_conditions(group, outcome, moment_text(self._wall()))
        if conditions is None:
            return
        patch: dict[str, Any] = {
            "metadata": {"resourceVersion": group.metadata.resource_version},
            "status": {"conditions": [{"message": "", **msgspec.to_builtins(each)} for each in conditions]},
        }
        await self._writes.merge(POD_GROUPS, group.metadata, patch, subresource="status")
