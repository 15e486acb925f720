"""activeQ: the pods to be tried next, in the order of the QueueSort plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Generic

from sortedcontainers import SortedKeyList

from koordsched.queue.item import P, Place, QueuedPod

#: The QueueSort plugin: the smallest key is popped first. PrioritySort is (-priority, timestamp, sequence).
SortKey = Callable[[QueuedPod[Any]], tuple[Any, ...]]


class ActiveQueue(Generic[P]):
    """Pods ordered by their sort key, which is taken once, on entry."""

    __slots__ = ("_pods", "_sort_key")

    def __init__(self, sort_key: SortKey) -> None:
        self._sort_key = sort_key
        self._pods: SortedKeyList = SortedKeyList(key=attrgetter("order"))

    def add(self, queued: QueuedPod[P]) -> None:
        """Put a pod in its place. O(log n)."""
        queued.order = self._sort_key(queued)
        queued.place = Place.ACTIVE
        self._pods.add(queued)

    def add_all(self, batch: Sequence[QueuedPod[P]]) -> None:
        """Put many pods in their places, cheaper than one by one when they are a large part of the queue."""
        sort_key = self._sort_key
        for queued in batch:
            queued.order = sort_key(queued)
            queued.place = Place.ACTIVE
        self._pods.update(batch)

    def pop(self) -> QueuedPod[P] | None:
        """Remove and return the head; None if there is none."""
        try:
            head: QueuedPod[P] = self._pods.pop(0)
        except IndexError:
            return None
        return head

    def remove(self, queued: QueuedPod[P]) -> None:
        """Take a pod out. O(log n)."""
        self._pods.remove(queued)

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[QueuedPod[P]]:
        return iter(self._pods)
