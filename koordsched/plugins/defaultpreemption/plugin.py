"""The plugin: preemption on any node, for any pod."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from koordsched.cluster.events import POD, ActionType, ClusterEvent
from koordsched.cluster.pod import Pod
from koordsched.cluster.podevents import place_left
from koordsched.config.plugin_args import DefaultPreemptionArgs
from koordsched.framework.handle import Handle
from koordsched.framework.interface import CycleState, PostFilter, PostFilterResult, PreEnqueue
from koordsched.framework.status import SUCCESS, Code, Codes, Status
from koordsched.plugins.shared.preemption.evaluator import Evaluator
from koordsched.queue.hints import HintRegistration, OtherNodeHint, QueueingHint, Scope

GROUP_GATES = frozenset(("GenericWorkload", "GangScheduling", "WorkloadAwarePreemption"))
"""With these, room for pods of a PodGroup is made for the group as a whole."""

WAITING = "waiting for the preemption for this pod to be finished"


class DefaultPreemption(PreEnqueue, PostFilter):
    """Source: upstream `plugins/defaultpreemption`; core spec 3.8."""

    name = "DefaultPreemption"
    allows_for_groups = True

    def __init__(self, args: DefaultPreemptionArgs, handle: Handle) -> None:
        self._handle = handle
        self._evaluator = Evaluator(self.name, args, handle)
        self._rooms_for_groups = handle.features >= GROUP_GATES

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """A pod that may have been the one for whose end a preemptor waits before it looks for others.

        Upstream leaves that to the plugins that rejected the preemptor, which may not mind that pod any more.
        """
        return [
            HintRegistration(
                self.name,
                ClusterEvent(POD, ActionType.DELETE),
                _after_pod_left,
                Scope.SHAPE,
                OtherNodeHint(place_left, lambda pod, old, new: QueueingHint.SKIP),
            )
        ]

    def pre_enqueue(self, pod: Pod) -> Status:
        """A preemptor stays out of the queue until its victims have been told to go."""
        if self._rooms_for_groups and _is_member(pod):
            return SUCCESS  # all pods of the group wait, which GangScheduling sees to
        if self._handle.evictions.running_for(pod.uid):
            return Status(Code.UNRESOLVABLE, (WAITING,))
        return SUCCESS

    def post_filter(self, cycle: CycleState, pod: Pod, codes: Codes) -> PostFilterResult:
        """Looks for the node where making room costs least. Virtual pods preempt through their own plugins alone."""
        if cycle.makes_no_room:
            return PostFilterResult(Status(Code.UNSCHEDULABLE, (f"preemption: {cycle.makes_no_room}",)))
        if pod.virtual:
            return PostFilterResult(Status(Code.UNSCHEDULABLE))
        return self._evaluator.post_filter(cycle, pod, codes)


def _is_member(pod: Pod) -> bool:
    return pod.wire is not None and pod.wire.spec.scheduling_group is not None


def _after_pod_left(pod: Pod, old: Any, new: Any) -> QueueingHint:
    was_less_important = old is not None and old.priority < pod.priority
    return QueueingHint.QUEUE if was_less_important else QueueingHint.SKIP
