"""activeQ with round-robin between namespaces: pods of equal priority, one of each namespace in turn.

Higher priorities still go first, and within a namespace the QueueSort plugin decides. So a namespace that floods the
queue delays a pod of another one by one attempt instead of by all of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from operator import attrgetter
from typing import Generic

from sortedcontainers import SortedDict, SortedKeyList

from koordsched.queue.active import SortKey
from koordsched.queue.item import P, Place, QueuedPod


class FairActiveQueue(Generic[P]):
    """Pods by priority, namespace and sort key. Every operation is O(log n), spread over the operations before it."""

    __slots__ = ("_count", "_rounds", "_sort_key")

    def __init__(self, sort_key: SortKey) -> None:
        self._sort_key = sort_key
        self._count = 0
        # Negated priority -> namespace -> its pods. The namespaces are in the order of their turns; one without pods
        # keeps its place, so that a pod does not lose its turn when it is taken out and put back in a new version.
        self._rounds: SortedDict = SortedDict()

    def add(self, queued: QueuedPod[P]) -> None:
        """Put a pod in its place; a namespace that had no pods comes after all that have."""
        queued.order = self._sort_key(queued)
        queued.place = Place.ACTIVE
        self._pods(queued.pod).add(queued)
        self._count += 1

    def add_all(self, batch: Sequence[QueuedPod[P]]) -> None:
        """Put many pods in their places, cheaper than one by one when they are a large part of the queue."""
        together: dict[tuple[int, str], list[QueuedPod[P]]] = {}
        for queued in batch:
            queued.order = self._sort_key(queued)
            queued.place = Place.ACTIVE
            together.setdefault((queued.pod.priority, queued.pod.namespace), []).append(queued)
        for pods in together.values():
            self._pods(pods[0].pod).update(pods)
        self._count += len(batch)

    def pop(self) -> QueuedPod[P] | None:
        """Remove and return the pod whose turn it is; None if there is none."""
        while self._rounds:
            negated, turns = self._rounds.peekitem(0)
            while turns:
                namespace, pods = next(iter(turns.items()))
                if not pods:
                    del turns[namespace]
                    continue
                turns.move_to_end(namespace)
                self._count -= 1
                head: QueuedPod[P] = pods.pop(0)
                return head
            del self._rounds[negated]
        return None

    def remove(self, queued: QueuedPod[P]) -> None:
        """Take a pod out."""
        self._pods(queued.pod).remove(queued)
        self._count -= 1

    def _pods(self, pod: P) -> SortedKeyList:
        turns: OrderedDict[str, SortedKeyList] | None = self._rounds.get(-pod.priority)
        if turns is None:
            turns = self._rounds[-pod.priority] = OrderedDict()
        pods = turns.get(pod.namespace)
        if pods is None:
            pods = turns[pod.namespace] = SortedKeyList(key=attrgetter("order"))
        return pods

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[QueuedPod[P]]:
        """In the order in which they would be popped."""
        for turns in self._rounds.values():
            for taken in zip_longest(*turns.values()):
                yield from (queued for queued in taken if queued is not None)
