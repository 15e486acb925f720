"""What may help a pod that (anti-)affinity kept out (core spec 3.4)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Any

from koordsched.api.selectors import SelectorError
from koordsched.cluster.events import NODE, POD, ActionType, ClusterEvent
from koordsched.cluster.pod import Pod
from koordsched.plugins.interpodaffinity.existing import ExistingTerms, TermKind
from koordsched.plugins.interpodaffinity.incoming import IncomingTerms
from koordsched.plugins.shared.matching.labelkeys import needed, offered
from koordsched.queue.groupindex import KeyedGroups
from koordsched.queue.hints import GroupBy, HintRegistration, QueueingHint

_ADDED = ""
"""Beside the keys of labels: a node was added."""


class AffinityHints:
    """The hints of one plugin instance."""

    def __init__(self, plugin: str, terms_of: Callable[[Pod], IncomingTerms | None], existing: ExistingTerms) -> None:
        self._plugin = plugin
        self._terms_of = terms_of
        self._existing = existing

    def registrations(self) -> Sequence[HintRegistration[Pod]]:
        """For the plugin's `events_to_register`."""
        # Others' terms look at the pod's labels.
        equivalents: GroupBy[Pod] = GroupBy(lambda pod: (pod.namespace, pod.labels))
        pod_changes = ActionType.ADD | ActionType.DELETE | ActionType.UPDATE_POD_LABEL
        node_changes = ActionType.ADD | ActionType.UPDATE_NODE_LABEL
        return [
            HintRegistration(
                self._plugin,
                ClusterEvent(POD, pod_changes),
                self._after_pod_change,
                equivalents,
                index=KeyedGroups(self._pods_needed, self._pods_offered),
            ),
            HintRegistration(
                self._plugin,
                ClusterEvent(NODE, node_changes),
                self._after_node_change,
                equivalents,
                index=KeyedGroups(self._keys_needed, self._keys_offered),
            ),
        ]

    def _pods_needed(self, pod: Pod) -> Iterator[list[Collection[Hashable]]] | None:
        """Labels of pods that the pod's own terms are about."""
        try:
            terms = self._terms_of(pod)
        except SelectorError:
            return None
        if terms is None:
            return iter(())
        return (
            [[(attracts, key) for key in keys] for keys in needed(query.requirements)]
            for attracts, query in terms.required_queries()
        )

    def _pods_offered(self, old: Any, new: Any) -> list[set[Hashable]] | None:
        if new is None and self._existing.repels(old):
            return None
        # Only what is no more can have been disliked.
        offers = ((True, old), (True, new), (False, old))
        return [{(attracts, key) for attracts, pod in offers if pod is not None for key in offered(pod.labels.labels)}]

    def _keys_needed(self, pod: Pod) -> list[Sequence[Collection[Hashable]]] | None:
        """Topology keys of the pod's own terms; any node that is added helps it unless it has to be with others."""
        try:
            terms = self._terms_of(pod)
        except SelectorError:
            return None
        apart, together = (terms.anti_affinity, terms.keys) if terms is not None else ({}, {})
        keys = [*apart, *together, *([_ADDED] if apart or not together else [])]
        return [[[key]] for key in keys]

    def _keys_offered(self, old: Any, new: Any) -> list[set[Hashable]] | None:
        """Those that a new node has, or whose value changed. None if terms of pods there may have kept others out."""
        labels = new.metadata.labels
        if old is None:
            return [{_ADDED, *labels}]
        before = old.metadata.labels
        changed = {key for key in (*before, *labels) if before.get(key) != labels.get(key)}
        return None if self._existing.repels_by(changed) else [changed]

    def _after_pod_change(self, pod: Pod, old: Any, new: Any) -> QueueingHint:
        changed = new if new is not None else old
        if changed.uid == pod.uid:
            return QueueingHint.QUEUE
        if not (changed.node or changed.nominated_node):
            return QueueingHint.SKIP
        terms = self._terms_of(pod)
        if new is None:
            disliked = terms is not None and terms.dislikes(old)
            return _queue_if(disliked or self._existing.objects_to(old, pod) or _may_be_first(terms, pod, old))
        if terms is None:
            return QueueingHint.SKIP
        if old is None:
            return _queue_if(terms.attracts(new))
        attracted = terms.attracts(new) and not terms.attracts(old)
        relieved = old.labels is not new.labels and any(
            term.times(old) and not term.times(new) for apart in terms.anti_affinity.values() for term in apart
        )
        lost = not terms.attracts(new) and _may_be_first(terms, pod, old)
        return _queue_if(attracted or relieved or lost)

    def _after_node_change(self, pod: Pod, old: Any, new: Any) -> QueueingHint:
        terms = self._terms_of(pod)
        labels = new.metadata.labels
        apart = terms.anti_affinity if terms is not None else {}
        together = terms.keys if terms is not None else {}
        if old is None:
            # Without terms of its own the pod is kept out by those of others, which may not reach the new node.
            return _queue_if(bool(apart) or not together or any(key in together for key in labels))
        before = old.metadata.labels
        attracted = any(key in together and before.get(key) != value for key, value in labels.items())
        # The node may also carry a pod that keeps this one out of its domain, which it has left now.
        kept_out = self._existing.matching(pod)[TermKind.REQUIRED_ANTI]
        relieved = any((key in apart or key in kept_out) and labels.get(key) != value for key, value in before.items())
        # Or the last pods that attracted this one, which now are in no domain that counts.
        lost = any(key in together and key not in labels for key in before)
        may_be_first = lost and terms is not None and terms.attracts(pod)
        return _queue_if(attracted or relieved or may_be_first)


def _may_be_first(terms: IncomingTerms | None, pod: Pod, gone: Pod) -> bool:
    """Whether the pod may start a group of its own now, should this have been the last pod that attracted it.

    Upstream misses this until the pod has been unschedulable for too long.
    """
    return terms is not None and terms.attracts(gone) and terms.attracts(pod)


def _queue_if(helps: bool) -> QueueingHint:
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP
