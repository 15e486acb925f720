"""Gangs of which some members were bound and others were not, because the scheduler ended in between.

The pods say so: those that were bound together carry their number, fewer are there, and the members that are missing
have waited since before. (A member that was deleted later comes again as a younger pod.) The scheduler goes on to place
the missing ones. If after the waiting time of the gang fewer than its minimum are bound, a Strict gang gives its room
back: the members that are bound are evicted, and the whole gang is tried again. A NonStrict gang keeps them, and its
PodGroup says so.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from koordsched.api import core
from koordsched.cluster.facts import PodFact
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.controller import ControllerHandle
from koordsched.framework.handle import WARNING, WriteFailed
from koordsched.plugins.coscheduling.cache import GangCache
from koordsched.plugins.coscheduling.gang import Gang
from koordsched.plugins.coscheduling.kinds import BIND_GANG_MEMBER_COUNT, POD_GROUPS
from koordsched.plugins.shared.moments import moment, moment_text

_log = logging.getLogger(__name__)

INTERVAL = 10.0
"""Seconds between looks."""

REASON = "GangIncomplete"


class BoundTogether(NamedTuple):
    """With how many pods a pod was bound, itself included, and when: seconds since the epoch."""

    members: int
    at: float


def bound_together(cluster: ClusterState) -> PodFact[BoundTogether]:
    """The fact, for `ClusterState.shared`; only pods that were bound with others have it."""
    return cluster.pod_facts.declare_status_of("bound-together", _read, _shown)


def _read(wire: core.Pod) -> BoundTogether | None:
    text = wire.metadata.annotations.get(BIND_GANG_MEMBER_COUNT, "")
    scheduled = wire.status.condition("PodScheduled") if text else None
    at = moment(scheduled.last_transition_time) if scheduled is not None and scheduled.status == "True" else None
    return BoundTogether(int(text), at) if at is not None and text.isascii() and text.isdigit() else None


def _shown(value: BoundTogether) -> dict[str, object]:
    return {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": moment_text(value.at)}]}


def interrupted(gang: Gang, fact: PodFact[BoundTogether]) -> tuple[float, list[Pod]] | None:
    """When members of the gang were bound last, and those that were; None if its binding was not interrupted."""
    if gang.options is None or not 0 < len(gang.bound) < gang.options.min:
        return None
    there = [(pod, value) for pod in gang.bound.values() if (value := fact.of(pod)) is not None]
    if not there or len(there) >= max(value.members for _, value in there):
        return None
    first = min(value.at for _, value in there)
    created = [moment(pod.created) for pod in gang.pending.values()]
    missing = sum(time is not None and time <= first for time in created)
    if len(gang.bound) + missing < gang.options.min:
        return None
    return max(value.at for _, value in there), [pod for pod, _ in there]


class InterruptedGangs:
    """Looks for such gangs while this replica leads."""

    def __init__(self, cache: GangCache, handle: ControllerHandle) -> None:
        self._cache = cache
        self._fact = handle.cluster.shared(bound_together)
        self._pod_groups = handle.cluster.objects.of(POD_GROUPS)
        self._writes = handle.writes
        self._reporter = handle.reporter
        self._wall = handle.clock.wall
        self._reported: set[tuple[str, float]] = set()

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(INTERVAL)

    async def look(self) -> None:
        """Gives back the room of the gangs whose waiting time is over."""
        now = self._wall()
        reported = set()
        for gang in list(self._cache.gangs.values()):
            found = interrupted(gang, self._fact)
            if found is None or gang.options is None:
                continue
            since, bound = found
            if now < since + gang.options.waiting_time:
                continue
            reported.add((gang.id, since))
            if (gang.id, since) not in self._reported:
                self._report(gang, since, bound)
            if gang.options.strict:
                await self._evict(gang, bound)
        self._reported = reported

    def _report(self, gang: Gang, since: float, bound: list[Pod]) -> None:
        assert gang.options is not None, "it is defined"
        what = "they are evicted, and all are tried again" if gang.options.strict else "they stay"
        text = (
            f"{len(gang.bound)} of at least {gang.options.min} members are bound since {moment_text(since)}, "
            f"and there is no place for the others: {what}"
        )
        _log.warning("gang %s: %s", gang.id, text)
        namespace, _, name = gang.id.partition("/")
        pod_group = self._pod_groups.get(namespace, name)
        if pod_group is not None:
            self._reporter.event(POD_GROUPS, pod_group.metadata, WARNING, REASON, text, action="Checking", once=True)
        for pod in bound:
            self._reporter.pod_event(pod, WARNING, REASON, text, action="Checking")

    async def _evict(self, gang: Gang, bound: list[Pod]) -> None:
        for pod in bound:
            if pod.deleting:
                continue
            try:
                await self._writes.evict(pod)
            except WriteFailed as error:
                # Tried again at the next look.
                _log.warning("pod %s of gang %s is not evicted: %s", pod.key, gang.id, error)
