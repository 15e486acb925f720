"""The pending pods of our profiles as the API server last showed them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState


class PendingPods:
    """The newest version of every pod that has no node and belongs to one of our profiles.

    `by_uid` is for reading. The index by name is built when it is first asked for: few clusters need it.
    """

    __slots__ = ("_by_name", "_cluster", "_in_queue", "by_uid")

    def __init__(self, cluster: ClusterState, in_queue: Callable[[str], Pod | None] = lambda key: None) -> None:
        """`in_queue`: the pod `namespace/name`, if it is in the queue."""
        self._cluster = cluster
        self._in_queue = in_queue
        self.by_uid: dict[str, Pod] = {}
        self._by_name: dict[str, set[str]] | None = None
        """name -> uids, of pods of all namespaces."""

    def put(self, pod: Pod) -> None:
        """This version of a pod is the newest."""
        before = self.by_uid.get(pod.uid)
        self.by_uid[pod.uid] = pod
        if self._by_name is not None and (before is None or before.name != pod.name):
            if before is not None:
                self._unname(before)
            self._by_name.setdefault(pod.name, set()).add(pod.uid)

    def take(self, uid: str) -> Pod | None:
        """The pod is gone or has a node; returns it if it was pending."""
        pod = self.by_uid.pop(uid, None)
        if pod is not None:
            self._unname(pod)
        return pod

    def _unname(self, pod: Pod) -> None:
        if self._by_name is not None:
            uids = self._by_name[pod.name]
            uids.discard(pod.uid)
            if not uids:
                del self._by_name[pod.name]

    def newest(self, pod: Pod) -> Pod | None:
        """The newest version of the pod; None if it is gone or, according to the API server, has a node."""
        return self.by_uid.get(pod.uid)

    def of_uid(self, uid: str) -> Pod | None:
        """See `framework.handle.Pending`."""
        return self.by_uid.get(uid)

    def named(self, namespace: str, name: str) -> Pod | None:
        """See `framework.handle.Pending`."""
        return self._in_queue(f"{namespace}/{name}")

    def of_name(self, name: str) -> Sequence[Pod]:
        """See `framework.handle.Pending`."""
        if self._by_name is None:
            self._by_name = {}
            for pod in self.by_uid.values():
                self._by_name.setdefault(pod.name, set()).add(pod.uid)
        return [self.by_uid[uid] for uid in sorted(self._by_name.get(name, ()))]

    def is_pending(self, pod: Pod) -> bool:
        """Whether the pod still exists and has no node, not even an assumed one."""
        return pod.uid in self.by_uid and pod.uid not in self._cluster.assigned
