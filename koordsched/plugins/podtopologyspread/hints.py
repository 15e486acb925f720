"""What may help a pod that hard constraints kept out (core spec 3.4)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Any

from koordsched.api.core import Node
from koordsched.api.selectors import SelectorError
from koordsched.cluster.events import NODE, POD, ActionType, ClusterEvent
from koordsched.cluster.pod import Pod
from koordsched.plugins.podtopologyspread.constraints import Constraint, Spread
from koordsched.plugins.shared.matching.labelkeys import needed, offered
from koordsched.plugins.shared.podcounts.labelselectors import Requirements
from koordsched.queue.groupindex import KeyedGroups
from koordsched.queue.hints import GroupBy, HintRegistration, QueueingHint

_ANY = ""
"""Beside the keys of labels: there is a pod."""


class SpreadHints:
    """The hints of one plugin instance. What they answer depends on the pod's constraints, so on its labels too."""

    def __init__(self, plugin: str, spread_of: Callable[[Pod], Spread]) -> None:
        self._plugin = plugin
        self._spread_of = spread_of

    def registrations(self) -> Sequence[HintRegistration[Pod]]:
        """For the plugin's `events_to_register`."""
        same_constraints: GroupBy[Pod] = GroupBy(_same_constraints)
        pod_changes = (
            ActionType.ADD | ActionType.DELETE | ActionType.UPDATE_POD_LABEL | ActionType.UPDATE_POD_TOLERATION
        )
        node_changes = ActionType.ADD | ActionType.DELETE | ActionType.UPDATE_NODE_LABEL | ActionType.UPDATE_NODE_TAINT
        return [
            HintRegistration(
                self._plugin,
                ClusterEvent(POD, pod_changes),
                self._after_pod_change,
                same_constraints,
                index=KeyedGroups(self._pods_needed, _pods_offered),
            ),
            HintRegistration(self._plugin, ClusterEvent(NODE, node_changes), self._after_node_change, same_constraints),
        ]

    def _pods_needed(self, pod: Pod) -> Iterator[list[Collection[Hashable]]] | None:
        """Labels of pods that the pod's hard constraints count."""
        try:
            hard = self._spread_of(pod).hard
        except SelectorError:
            return None
        return (_within(pod.namespace, c.query.requirements) for c in hard if c.query is not None)

    def _after_pod_change(self, pod: Pod, old: Any, new: Any) -> QueueingHint:
        changed = new if new is not None else old
        itself = changed.uid == pod.uid
        if changed.namespace != pod.namespace or not (itself or changed.node or changed.nominated_node):
            return QueueingHint.SKIP
        spread = self._spread_of(pod)
        if old is None or new is None:
            return _queue_if(spread.hard_selects(changed))
        hard = spread.hard
        if itself and old.shape.spec.tolerations != new.shape.spec.tolerations and any(c.honors_taints for c in hard):
            return QueueingHint.QUEUE
        if old.labels is new.labels:
            return QueueingHint.SKIP
        return _queue_if(any(c.selects(old.labels.labels) != c.selects(new.labels.labels) for c in hard))

    def _after_node_change(self, pod: Pod, old: Any, new: Any) -> QueueingHint:
        hard = self._spread_of(pod).hard
        had_keys, has_keys = _has_keys(hard, old), _has_keys(hard, new)
        if had_keys != has_keys:
            return QueueingHint.QUEUE
        if not has_keys or old is None or new is None:
            return QueueingHint.SKIP
        moved = any(old.metadata.labels.get(c.key) != new.metadata.labels.get(c.key) for c in hard)
        # A domain that begins or ceases to count changes what the others are compared with. Upstream misses this until
        # the pod has been unschedulable for too long.
        counts = any(nodes.selects(old) != nodes.selects(new) for nodes in {c.eligible for c in hard})
        return _queue_if(moved or counts or old.spec.taints != new.spec.taints)


def _within(namespace: str, requirements: Requirements) -> list[Collection[Hashable]]:
    conditions = needed(requirements) or [[_ANY]]
    return [[(namespace, key) for key in keys] for keys in conditions]


def _pods_offered(old: Any, new: Any) -> list[set[Hashable]]:
    pods = [pod for pod in (old, new) if pod is not None]
    return [{(pod.namespace, key) for pod in pods for key in (_ANY, *offered(pod.labels.labels))}]


def _same_constraints(pod: Pod) -> tuple[object, ...]:
    owner = pod.owner
    return (pod.namespace, pod.labels, owner and (owner.kind, owner.name))


def _has_keys(hard: Sequence[Constraint], node: Node | None) -> bool:
    """Whether there is a node, and it has all topology keys."""
    return node is not None and all(constraint.key in node.metadata.labels for constraint in hard)


def _queue_if(helps: bool) -> QueueingHint:
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP
