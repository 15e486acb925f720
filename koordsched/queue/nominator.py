"""Nominations: pods that wait for a node because their victims there still have to terminate.

A nomination is kept here before it reaches the API server, so that the next scheduling cycles already respect it.
Other pods may only use what the nominated pods of at least their own priority leave (core spec 3.6 step 6).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, KeysView, Sequence
from dataclasses import dataclass
from typing import Generic

from sortedcontainers import SortedDict

from koordsched.queue.item import P

_CHANGES_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Nomination(Generic[P]):
    """A pod nominated to a node; `sequence` is its place among those of equal priority."""

    node: str
    sequence: int
    pod: P


class Nominator(Generic[P]):
    """Node name -> pods nominated to it.

    `version` grows with every change, so readers can keep what they derived. `is_pending` says whether a pod still
    exists and has no node, according to the cluster state: nominations of others are refused.
    """

    def __init__(self, is_pending: Callable[[P], bool]) -> None:
        self._is_pending = is_pending
        self._by_node: dict[str, list[tuple[int, int, P]]] = {}
        self._node_of: dict[str, tuple[str, int, int]] = {}
        # Pods that were nominated here, and not because their status says so.
        self._nominated_here: set[str] = set()
        # Negated priority -> node -> number of pods of that priority nominated to it.
        self._nodes_by_priority: SortedDict = SortedDict()
        self._sequence = 0
        # Node -> version of the latest change, as long as there are nominations to it.
        self._stamps: dict[str, int] = {}
        # The node of each change after version `_first_change`.
        self._changed: list[str] = []
        self._first_change = 0
        self.version = 0

    def add(self, pod: P, node: str | None = None) -> None:
        """Nominates a pod, no more to where it was before: to `node`, "" for none, None for what its status says."""
        self.withdraw(pod.uid)
        decided_here = node is not None
        if node is None:
            node = pod.nominated_node
        else:
            self._nominated_here.discard(pod.uid)
        if not node or not self._is_pending(pod):
            return
        if decided_here:
            self._nominated_here.add(pod.uid)
        self._sequence += 1
        self.reinstate(Nomination(node, self._sequence, pod))

    def reinstate(self, nomination: Nomination[P]) -> None:
        """Puts a nomination in the place that its sequence number gives it."""
        node, sequence, pod = nomination.node, nomination.sequence, nomination.pod
        priority = -pod.priority
        self._node_of[pod.uid] = (node, priority, sequence)
        insort(self._by_node.setdefault(node, []), (priority, sequence, pod))
        nodes = self._nodes_by_priority.setdefault(priority, {})
        nodes[node] = nodes.get(node, 0) + 1
        self._note(node)

    def update(self, old: P, new: P) -> None:
        """The pod changed.

        If it carries no nomination before and after, the change says nothing about one that is on its way to the
        API server: that is kept.
        """
        kept = self._node_of.get(new.uid)
        if kept and not new.nominated_node and not old.nominated_node:
            self.add(new, kept[0])
        elif kept or new.nominated_node:
            self.add(new)

    def delete(self, uid: str) -> None:
        """Forget the nomination: the pod was assumed or deleted. Unknown pods are ignored."""
        self._nominated_here.discard(uid)
        self.withdraw(uid)

    def withdraw(self, uid: str) -> Nomination[P] | None:
        """The same; returns the nomination, which may be reinstated, None if there was none."""
        found = self._node_of.pop(uid, None)
        if found is None:
            return None
        node, priority, sequence = found
        pods = self._by_node[node]
        withdrawn = next(pod for _, number, pod in pods if number == sequence)
        pods[:] = [entry for entry in pods if entry[1] != sequence]
        self._note(node)
        if not pods:
            del self._by_node[node], self._stamps[node]
        nodes = self._nodes_by_priority[priority]
        nodes[node] -= 1
        if not nodes[node]:
            del nodes[node]
            if not nodes:
                del self._nodes_by_priority[priority]
        return Nomination(node, sequence, withdrawn)

    def _note(self, node: str) -> None:
        """The nominations to this node change."""
        self.version += 1
        self._stamps[node] = self.version
        self._changed.append(node)
        if len(self._changed) > 2 * _CHANGES_KEPT:
            del self._changed[:_CHANGES_KEPT]
            self._first_change += _CHANGES_KEPT

    def changed_since(self, version: int) -> Sequence[str] | None:
        """The nodes whose nominations changed after a version; None if that was too many changes ago."""
        start = version - self._first_change
        return self._changed[start:] if start >= 0 else None

    def nominated_on(self, node: str, priority: int | None = None) -> Sequence[P]:
        """The pods nominated to a node, highest priority first; those of at least `priority`, if given."""
        entries = self._by_node.get(node)
        if entries is None:
            return ()
        if priority is None:
            return [pod for _, _, pod in entries]
        return [pod for negated, _, pod in entries if -negated >= priority]

    def node_of(self, uid: str) -> str:
        """The node a pod is nominated to, "" if none."""
        found = self._node_of.get(uid)
        return found[0] if found else ""

    def is_promised(self, uid: str) -> bool:
        """Whether the pod is nominated, or its status is going to say so.

        An older status that comes late takes away what was decided here a moment ago, until the newest one comes.
        """
        return uid in self._node_of or uid in self._nominated_here

    @property
    def unseen(self) -> list[str]:
        """The uids of the promised pods that are not nominated now, sorted."""
        return sorted(self._nominated_here.difference(self._node_of))

    def restore_unseen(self, uid: str) -> None:
        """The pod is one of these."""
        self._nominated_here.add(uid)

    def stamp_of(self, node: str) -> int:
        """The version in which the nominations to a node last changed; there are some."""
        return self._stamps[node]

    def nodes_with_nominated(self) -> KeysView[str]:
        """The nodes that pods are nominated to."""
        return self._by_node.keys()

    def nodes_nominated_at_least(self, priority: int) -> list[str]:
        """The nodes that a pod of this or a higher priority is nominated to. O(answer)."""
        found: dict[str, None] = {}
        for negated in self._nodes_by_priority.irange(maximum=-priority):
            found.update(dict.fromkeys(self._nodes_by_priority[negated]))
        return list(found)

    def __len__(self) -> int:
        return len(self._node_of)
