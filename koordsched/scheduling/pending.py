"""The pending pods of our profiles as the API server last showed them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState


class PendingPods:
    """uid -> newest version of every pod that has no node and belongs to one of our profiles."""

    __slots__ = ("_cluster", "_in_queue", "by_uid")

    def __init__(self, cluster: ClusterState, in_queue: Callable[[str], Pod | None] = lambda key: None) -> None:
        """`in_queue`: the pod `namespace/name`, if it is in the queue."""
        self._cluster = cluster
        self._in_queue = in_queue
        self.by_uid: dict[str, Pod] = {}

    def newest(self, pod: Pod) -> Pod | None:
        """The newest version of the pod; None if it is gone or, according to the API server, has a node."""
        return self.by_uid.get(pod.uid)

    def of_uid(self, uid: str) -> Pod | None:
        """See `framework.handle.Pending`."""
        return self.by_uid.get(uid)

    def named(self, namespace: str, name: str) -> Pod | None:
        """See `framework.handle.Pending`."""
        return self._in_queue(f"{namespace}/{name}")

    def __iter__(self) -> Iterator[Pod]:
        return iter(list(self.by_uid.values()))

    def is_pending(self, pod: Pod) -> bool:
        """Whether the pod still exists and has no node, not even an assumed one."""
        return pod.uid in self.by_uid and pod.uid not in self._cluster.assigned
