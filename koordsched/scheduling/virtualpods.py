"""Virtual pods among the pods of the scheduler: their writers by uid, and their way into queue and cluster state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from koordsched.cluster.pod import Pod
from koordsched.framework.virtualpods import VirtualPodWriter

if TYPE_CHECKING:
    from koordsched.scheduling.handlers import PodHandler

_DELETED_KEPT = 4096
"""Writers of deleted pods that are kept: what is still under way for them must not become a write of a Pod object."""


class VirtualPodWriters:
    """The writers of virtual pods, by uid. `in` says whether a pod is virtual and not deleted."""

    __slots__ = ("_deleted", "_writers")

    def __init__(self) -> None:
        self._writers: dict[str, VirtualPodWriter] = {}
        self._deleted: dict[str, VirtualPodWriter] = {}

    def __contains__(self, uid: object) -> bool:
        return uid in self._writers

    def get(self, uid: str) -> VirtualPodWriter | None:
        """The writer of a virtual pod, also of one deleted lately; None for other pods."""
        return self._writers.get(uid) or self._deleted.get(uid)

    def add(self, uid: str, writer: VirtualPodWriter) -> None:
        """The pod is virtual."""
        self._deleted.pop(uid, None)
        self._writers[uid] = writer

    def remove(self, uid: str) -> None:
        """The pod was deleted."""
        self._deleted[uid] = self._writers.pop(uid)
        if len(self._deleted) > _DELETED_KEPT:
            del self._deleted[next(iter(self._deleted))]


class VirtualPodHandler:
    """`koordsched.framework.virtualpods.VirtualPods`."""

    def __init__(self, writers: VirtualPodWriters, pods: PodHandler) -> None:
        self._writers = writers
        self._pods = pods

    def upsert(self, pod: Pod, writer: VirtualPodWriter) -> None:
        """The pod appeared or changed."""
        self._writers.add(pod.uid, writer)
        self._pods.take(pod)

    def delete(self, uid: str) -> None:
        """The pod is gone."""
        if uid in self._writers:
            self._pods.forget(uid)
            self._writers.remove(uid)
