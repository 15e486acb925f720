"""What wakes a pod for which a node has no room, with all that its devices would take there."""

from __future__ import annotations

from typing import Any

from koordsched.cluster.events import POD, ActionType, ClusterEvent
from koordsched.cluster.pod import Pod
from koordsched.queue.hints import HintRegistration, QueueingHint, Scope


def room_made(plugin: str) -> HintRegistration[Pod]:
    """For DynamicResources to register, with its other hints, while the feature gate is on."""
    event = ClusterEvent(POD, ActionType.DELETE | ActionType.UPDATE_POD_SCALE_DOWN)
    return HintRegistration(plugin, event, _after_room_was_made, Scope.SHAPE)


def _after_room_was_made(pod: Pod, old: Any, new: Any) -> QueueingHint:
    """Queues the pod when another one leaves a node, or needs less there: which room its devices need is not known."""
    there = new if new is not None else old
    return QueueingHint.QUEUE if there.node or there.nominated_node else QueueingHint.SKIP
