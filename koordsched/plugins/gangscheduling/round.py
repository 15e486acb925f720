"""One attempt to place the pods of a group."""

from __future__ import annotations

from collections.abc import Sequence

from koordsched.cluster.pod import Pod
from koordsched.framework.jobs import Ending, GroupJob
from koordsched.plugins.gangscheduling import messages
from koordsched.plugins.gangscheduling.cache import PodGroupCache


class Round(GroupJob):
    """The pods of a group that have no node."""

    def __init__(self, cache: PodGroupCache, group_id: str, first: Pod, members: Sequence[Pod]) -> None:
        self._cache = cache
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

    def ended(self, ending: Ending, message: str) -> None:
        """See GroupJob."""
        self._cache.ended(self.name, ending, message)
