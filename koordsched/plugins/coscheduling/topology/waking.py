"""What may give a place to a gang that had none in the tree, besides room: another tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from koordsched.cluster.events import NODE, ActionType, ClusterEvent
from koordsched.cluster.pod import Pod
from koordsched.plugins.coscheduling.topology.kinds import NETWORK_TOPOLOGY
from koordsched.queue.hints import GroupBy, HintRegistration, QueueingHint


def registrations(plugin: str, gathers: Callable[[Pod], bool], alike: GroupBy[Pod]) -> Sequence[HintRegistration[Pod]]:
    """`gathers`: whether the gang of a pod asks to be gathered, which pods that are `alike` agree in."""

    def after_topology_changed(pod: Pod, old: Any, new: Any) -> QueueingHint:
        same = old is not None and new is not None and old.spec == new.spec
        return QueueingHint.QUEUE if gathers(pod) and not same else QueueingHint.SKIP

    def after_node_labelled(pod: Pod, old: Any, new: Any) -> QueueingHint:
        return QueueingHint.QUEUE if gathers(pod) else QueueingHint.SKIP

    labelled = ClusterEvent(NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)
    return [
        HintRegistration(plugin, ClusterEvent(NETWORK_TOPOLOGY, ActionType.ALL), after_topology_changed, alike),
        HintRegistration(plugin, labelled, after_node_labelled, alike),
    ]
