"""The plugin at the extension points: which pods are a group, and when enough of them have a place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from koordsched.cluster.events import POD, ActionType, ClusterEvent
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Handle
from koordsched.framework.interface import CycleState, PreEnqueue
from koordsched.framework.jobs import GroupJob, Job, JobScheduling
from koordsched.framework.status import SUCCESS, Code, Status
from koordsched.plugins.gangscheduling import messages
from koordsched.plugins.gangscheduling.cache import PodGroupCache
from koordsched.plugins.gangscheduling.preemption import RoomsForGroups
from koordsched.plugins.gangscheduling.round import Round
from koordsched.plugins.shared.podgroups import POD_GROUPS, PodGroup
from koordsched.queue.hints import ByKey, HintRegistration

GATES = frozenset(("GenericWorkload", "GangScheduling"))

LONGEST_WAIT = 5 * 60.0
"""Seconds for which a pod waits on Permit for others of its group."""

_POD_ADD = ClusterEvent(POD, ActionType.ADD)
_POD_DELETE = ClusterEvent(POD, ActionType.DELETE)
_POD_GROUP_ADD = ClusterEvent(POD_GROUPS.event or POD, ActionType.ADD)


class GangScheduling(PreEnqueue, JobScheduling):
    """Source: kube-scheduler 1.36, plugin GangScheduling and pod group cycle; coscheduling spec, Appendix A.

    All pods of a group are placed in one attempt (`framework.jobs`). Without its feature gates it does nothing.
    """

    name = "GangScheduling"
    group_jobs: ClassVar[bool] = True

    def __init__(self, args: None, handle: Handle) -> None:
        self._waiting = handle.waiting
        self.cache = PodGroupCache.shared(handle) if handle.features >= GATES else None
        self._rooms = RoomsForGroups(handle, self.cache) if self.cache is not None else None

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """Pods and PodGroups that appear, for the pods of the same group; pods that go, for those waiting for room."""
        if self.cache is None or self._rooms is None:
            return ()
        same_group = ByKey(self._group_of_pod, self._group_of_event)
        found = [HintRegistration(self.name, event, None, same_group) for event in (_POD_ADD, _POD_GROUP_ADD)]
        return [*found, HintRegistration(self.name, _POD_DELETE)] if self._rooms.as_a_whole else found

    def _group_of_pod(self, pod: Pod) -> tuple[str, ...]:
        group_id = self.cache.id_of(pod) if self.cache is not None else ""
        return (group_id,) if group_id else ()

    def _group_of_event(self, old: Any, new: Any) -> tuple[str, ...]:
        if isinstance(new, PodGroup):
            return (new.id,)
        return self._group_of_pod(new) if isinstance(new, Pod) else ()

    # --- the queue -----------------------------------------------------------------------------------

    def pre_enqueue(self, pod: Pod) -> Status:
        """The group has to exist, and as many pods as it needs; and no pods are just being evicted for it."""
        if self.cache is None or self._rooms is None or not (name := self.cache.name_of(pod)):
            return SUCCESS
        group = self.cache.groups.get(pod.namespace, name)
        text = messages.missing(name) if group is None else self.cache.why_not(group)
        if not text and self._rooms.as_a_whole and group is not None and self._rooms.is_being_made(group.id):
            text = messages.EVICTING
        return Status(Code.UNRESOLVABLE, (text,)) if text else SUCCESS

    # --- a group as a job ----------------------------------------------------------------------------

    def taken_up(self, pod: Pod) -> None:
        """See JobScheduling."""

    def begin_job(self, pod: Pod) -> GroupJob | None:
        """See JobScheduling."""
        if self.cache is None or self._rooms is None or not (group_id := self.cache.id_of(pod)):
            return None
        known = self.cache.members.get(group_id)
        members = [each for each in known.pending() if not each.deleting] if known is not None else []
        members.sort(key=lambda each: -each.priority)
        return Round(self.cache, group_id, pod, members, self._rooms)

    def end_job(self, job: Job | GroupJob, placed: Iterable[Pod], resting: Iterable[Pod]) -> None:
        """See JobScheduling."""

    def permit(self, cycle: CycleState, pod: Pod, row: int) -> tuple[Status, float]:
        """WAIT until enough pods of the group have a place; then those that wait are allowed, too."""
        if self.cache is None or not (name := self.cache.name_of(pod)):
            return SUCCESS, 0.0
        group = self.cache.groups.get(pod.namespace, name)
        if group is None:
            return Status(Code.UNRESOLVABLE, (messages.missing(name),)), 0.0
        members = self.cache.members[group.id]
        if len(members.placed) < group.min_count:
            members.held.add(pod.uid)
            return Status(Code.WAIT, (messages.WAITING,)), LONGEST_WAIT
        for uid in members.held:
            if (waiting := self._waiting.get(uid)) is not None:
                waiting.allow(self.name)
        members.held.clear()
        return SUCCESS, 0.0
