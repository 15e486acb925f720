"""The pending pods of our profiles as the API server last showed them."""

from __future__ import annotations

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState


class PendingPods:
    """uid -> newest version of every pod that has no node and belongs to one of our profiles."""

    __slots__ = ("_cluster", "by_uid")

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self.by_uid: dict[str, Pod] = {}

    def newest(self, pod: Pod) -> Pod | None:
        """The newest version of the pod; None if it is gone or, according to the API server, has a node."""
        return self.by_uid.get(pod.uid)

    def is_pending(self, pod: Pod) -> bool:
        """Whether the pod still exists and has no node, not even an assumed one."""
        return pod.uid in self.by_uid and pod.uid not in self._cluster.assigned
