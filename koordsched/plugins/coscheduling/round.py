"""One attempt to place a group of gangs (upstream's GangSchedulingContext, coscheduling spec 3.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koordsched.cluster.pod import Pod
from koordsched.framework.jobs import Job
from koordsched.plugins.coscheduling import messages
from koordsched.plugins.coscheduling.gang import GangGroup


class Round(Job):
    """The pending pods of a group, the first of which comes from the queue.

    `attempted`: uids of those whose turn has come. `failed_message`: why the group is rejected, "" while it is not;
    `preemption_message`: what job preemption said about it. `rejection_message`: why placed members lose their place,
    if that is not the reason why the group is rejected. `planned`: uid -> the node that a member must go to.
    """

    def __init__(self, group: GangGroup, first: Pod, others: Sequence[Pod]) -> None:
        self.group = group
        self.name = group.id
        self.first = first
        self.others = others
        self.attempted = {first.uid}
        self.trigger: Pod | None = None
        self.failed_message = ""
        self.preemption_message = ""
        self.rejection_message = ""
        self.planned: Mapping[str, str] = {}
        self._turn = 0

    @property
    def waiting(self) -> int:
        """How many members have a place."""
        return sum(len(gang.waiting) for gang in self.group.gangs.values())

    def next(self) -> Pod | None:
        """See Job."""
        if self._turn == len(self.others):
            return None
        pod = self.others[self._turn]
        self._turn += 1
        self.attempted.add(pod.uid)
        return pod

    def untried(self) -> Sequence[Pod]:
        """See Job."""
        return self.others[self._turn :]

    def pending(self) -> list[Pod]:
        """The members without a place, in order, the one that has none included."""
        return [pod for pod in (self.first, *self.others) if not self._is_waiting(pod)]

    def _is_waiting(self, pod: Pod) -> bool:
        return any(pod.uid in gang.waiting for gang in self.group.gangs.values())

    def fail(self, pod: Pod, message: str) -> None:
        """See Job. Only the first reason counts."""
        if not self.failed_message:
            self.trigger = pod
            self.failed_message = messages.rejected(self.group, pod, message, self.waiting)

    def incomplete(self) -> str:
        """See Job."""
        return messages.ALL_ATTEMPTED

    def rejection(self) -> str:
        """See Job."""
        return self.rejection_message or self.failed_message
