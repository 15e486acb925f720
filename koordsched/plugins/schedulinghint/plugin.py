"""The plugin: PreFilter and queueing hints (loadaware spec D).

A hint belongs to one pod, not to its shape: replicas with different hints share all that is cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from koordsched.cluster.events import NODE, POD, ActionType, ClusterEvent
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Handle
from koordsched.framework.interface import BeforePreFilter, CycleState, PreFilter, PreFilterResult
from koordsched.framework.status import SUCCESS, Code, Status
from koordsched.plugins.schedulinghint.args import SchedulingHintArgs
from koordsched.plugins.shared.schedulinghint import ANNOTATIONS, HintError, annotation_of, hint_of
from koordsched.queue.hints import GroupBy, HintRegistration, QueueingHint, Scope


class SchedulingHint(BeforePreFilter, PreFilter):
    """Restricts a pod to nodes that its annotation names, or has some tried first; tells plugins what it says."""

    name = "SchedulingHint"

    def __init__(self, args: SchedulingHintArgs | None, handle: Handle) -> None:
        """The arguments must be valid."""
        self._most = (args or SchedulingHintArgs()).max_hint_nodes
        handle.cluster.read_annotations.update(ANNOTATIONS)

    def before_pre_filter(self, cycle: CycleState, pod: Pod) -> Status:
        """ERROR if the annotation cannot be read."""
        try:
            hint = hint_of(pod)
        except HintError as error:
            return Status(Code.ERROR, (str(error),))
        if hint is not None:
            cycle.state[self.name] = frozenset(name or "" for name in hint.node_names or ())
            cycle.preferred_nodes = [name or "" for name in (hint.preferred_node_names or ())[: self._most]]
            cycle.hints = hint.extensions or {}
        return SUCCESS

    def pre_filter(self, cycle: CycleState, pod: Pod) -> PreFilterResult | Status:
        """The nodes that the pod is restricted to, if it is."""
        names = cycle.state.get(self.name)
        return PreFilterResult(names) if names else SUCCESS

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """Nodes of the hint that appear, and another hint."""
        return [
            HintRegistration(self.name, ClusterEvent(NODE, ActionType.ADD), _after_node_added, GroupBy(annotation_of)),
            HintRegistration(self.name, ClusterEvent(POD, ActionType.UPDATE), _after_own_change, Scope.OWN_POD),
        ]


def _after_node_added(pod: Pod, old: Any, new: Any) -> QueueingHint:
    hint = hint_of(pod)
    names = hint.node_names if hint is not None else None
    return QueueingHint.QUEUE if not names or new.metadata.name in names else QueueingHint.SKIP


def _after_own_change(pod: Pod, old: Any, new: Any) -> QueueingHint:
    return QueueingHint.QUEUE if annotation_of(old) != annotation_of(new) else QueueingHint.SKIP
