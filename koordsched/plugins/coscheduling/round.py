"""One attempt to place a group of gangs (upstream's GangSchedulingContext, coscheduling spec 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from koordsched.cluster.pod import Pod
from koordsched.framework.jobs import Job
from koordsched.plugins.coscheduling import messages
from koordsched.plugins.coscheduling.gang import GangGroup
from koordsched.plugins.coscheduling.topology.offers import Counted


class Round(Job):
    """The pending pods of a group.

    `attempted`: uids of those whose turn has come. `failed_message`: why the group is rejected, "" while it is not, and
    `trigger`: the member that had no place; `preempts`: pods are evicted for that one.
    `preempted_by`: the member for which job preemption was tried, and `preemption_message` what it said.
    `rejection_message`: why placed members lose their place, if that is not the reason why the group is rejected.
    `plan_asked`: the first member has been asked if all have to be planned; `planned`: uid -> the node that a member
    must go to; `refused_plan`: how many members each node takes, if there is no plan. `woken`: something happened
    meanwhile for which the group would be tried. `decided`: at its end, that it was no explanation.
    """

    def __init__(
        self,
        group: GangGroup,
        first: Pod,
        members: Sequence[Pod],
        waits_for_victims: Callable[[Pod], bool],
        now: float,
    ) -> None:
        """`members`: in the order in which they are placed; `first`, which is in the queue for all, is one of them.
        `waits_for_victims`: whether pods are leaving the node that a member is promised. `now`: monotonic seconds.
        """
        self.group = group
        self.name = group.id
        self.first = first
        self.members = members
        self._waits_for_victims = waits_for_victims
        self.attempted: set[str] = set()
        self.trigger: Pod | None = None
        self.preempts = False
        self.failed_message = ""
        self.preempted_by: Pod | None = None
        self.preemption_message = ""
        self.rejection_message = ""
        self.plan_asked = False
        self.planned: Mapping[str, str] = {}
        self.refused_plan: Counted | None = None
        self.decided = False
        self.woken = False
        self._began = now

    def placed(self) -> list[Pod]:
        """The members that have a place."""
        return [pod for gang in self.group.gangs.values() for pod in gang.waiting.values()]

    def next(self) -> Pod | None:
        """See Job."""
        if len(self.attempted) == len(self.members):
            return None
        pod = self.members[len(self.attempted)]
        self.attempted.add(pod.uid)
        return pod

    def renounced(self) -> Sequence[Pod]:
        """See Job. All of them, or none while one still waits for its room: they need their places together."""
        return () if any(map(self._waits_for_victims, self.members)) else self.members

    def untried(self) -> Sequence[Pod]:
        """See Job."""
        return self.members[len(self.attempted) :]

    def show(self, message: str) -> Sequence[Pod]:
        """See Job."""
        said = (len(self.attempted), message)
        if self.group.told == said:
            return ()
        self.group.told = said
        return self.untried()

    def makes_no_room(self) -> str:
        """See Job."""
        return messages.evicted_in_vain(self.group) if self._began < self.group.quiet_until else ""

    def pending(self) -> list[Pod]:
        """The members without a place, in order, the one that has none included."""
        placed = {pod.uid for pod in self.placed()}
        return [pod for pod in self.members if pod.uid not in placed]

    def fail(self, pod: Pod, message: str) -> None:
        """See Job. Only the first reason counts."""
        if not self.failed_message:
            self.trigger = pod
            self.failed_message = messages.rejected(self.group, pod, message, len(self.placed()))

    def fall_short(self) -> None:
        """See Job."""
        self.rejection_message = messages.ALL_ATTEMPTED

    def rejection(self) -> str:
        """See Job. Where members wait for the end of the round (NonStrict), that is what rejects them."""
        if self.rejection_message:
            return self.rejection_message
        trigger = self.trigger.uid if self.trigger is not None else ""
        options = (gang.options for gang in self.group.gangs.values() if trigger in gang.children)
        strict = all(each is None or each.strict for each in options)
        return self.failed_message if strict else messages.ALL_ATTEMPTED
