"""One attempt to place the pods of a group."""

from __future__ import annotations

from collections.abc import Sequence

from koordsched.cluster.pod import Pod
from koordsched.framework.jobs import Ending, GroupJob, GroupPreemption
from koordsched.plugins.gangscheduling import messages
from koordsched.plugins.gangscheduling.cache import PodGroupCache
from koordsched.plugins.gangscheduling.preemption import RoomsForGroups


class Round(GroupJob):
    """The pods of a group that have no node."""

    def __init__(
        self, cache: PodGroupCache, group_id: str, first: Pod, members: Sequence[Pod], rooms: RoomsForGroups
    ) -> None:
        self._cache = cache
        self._rooms = rooms
        self.name = group_id
        self.first = first
        self.members = members

    def refusal(self, members: Sequence[Pod]) -> str:
        """All have to be of one scheduler."""
        first = members[0].shape.scheduler_name
        other = next((pod for pod in members if pod.shape.scheduler_name != first), None)
        return messages.several_schedulers(other.shape.scheduler_name, first) if other is not None else ""

    def unschedulable(self) -> tuple[str, str]:
        """See GroupJob."""
        return messages.UNSCHEDULABLE, messages.UNSCHEDULABLE_MEMBER

    def waiting_on_preemption(self) -> str:
        """See GroupJob."""
        return messages.WAITING_ON_PREEMPTION

    def erroneous(self, error: str) -> str:
        """See GroupJob."""
        return messages.other_failed(error)

    def makes_no_room(self) -> str:
        """See GroupJob."""
        group = self._cache.group(self.name)
        return messages.NO_GROUP if group is None else self._rooms.not_for_members(group)

    def preemption(self) -> GroupPreemption | None:
        """See GroupJob."""
        group = self._cache.group(self.name)
        return self._rooms.of(group, self.first) if group is not None else None

    def ended(self, ending: Ending, message: str) -> None:
        """See GroupJob."""
        self._cache.ended(self.name, ending, message)
