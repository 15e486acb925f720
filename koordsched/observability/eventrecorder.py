"""Events about pods, with upstream's texts; recorded at once and written when there is room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from koordsched.api.meta import ObjectMeta
from koordsched.cluster.kinds import Kind
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import NORMAL, WARNING, OnBehalf
from koordsched.observability.eventwire import EventKey, ObjectReference, cut_note

if TYPE_CHECKING:
    from koordsched.observability.events import EventBroadcaster


class EventRecorder:
    """Records the events of one profile."""

    __slots__ = ("_broadcaster", "_controller", "_instance")

    def __init__(self, broadcaster: EventBroadcaster, controller: str, instance: str) -> None:
        self._broadcaster = broadcaster
        self._controller = controller
        self._instance = instance

    def record(
        self,
        regarding: ObjectReference,
        type_: str,
        reason: str,
        action: str,
        note: str,
        related: ObjectReference | None = None,
        *,
        once: bool = False,
    ) -> None:
        """Any event; `type_` is NORMAL or WARNING. The note is cut and made printable.

        `once`: an event of its own, whatever was said before; otherwise one that repeats all but the note becomes part
        of a series, which keeps its first note.
        """
        key = EventKey(type_, reason, action, self._controller, regarding, related)
        self._broadcaster.record(key, self._instance, cut_note(note), once=once)

    def scheduled(self, pod: Pod, node: str) -> None:
        """The pod was bound."""
        key = EventKey(NORMAL, "Scheduled", "Binding", self._controller, pod_reference(pod), None)
        note = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
        self._broadcaster.record(key, self._instance, cut_note(note), once=True)

    def failed_scheduling(self, pod: Pod, message: str) -> None:
        """An attempt failed, for the reason that users are to see."""
        self.record(pod_reference(pod), WARNING, "FailedScheduling", "Scheduling", message)

    def preempted(
        self, victim: Pod, preemptor: Pod, node: str, *, deleted: bool = True, behalf: OnBehalf | None = None
    ) -> None:
        """The victim had to make room. Not `deleted`: it was waiting or being bound, and goes back to the queue.

        `behalf`: the object for which room is made as a whole, wherever in the cluster.
        """
        where = "" if deleted else " (in kube-scheduler memory)."
        by, related = f"pod {preemptor.uid} on node {node}", pod_reference(preemptor)
        if behalf is not None:
            related = object_reference(behalf.kind, behalf.meta, behalf.meta.resource_version)
            by = f"{related.kind.lower()} {related.uid} on node cluster"
        self.record(
            pod_reference(victim),
            NORMAL,
            "Preempted",
            "Preempting",
            f"Preempted by {by}{where}",
            related=related,
        )


def object_reference(kind: Kind[Any], meta: ObjectMeta, version: str) -> ObjectReference:
    """A reference to an object. `version`: its resource version, "" for all."""
    api_version = kind.api.removeprefix("apis/").removeprefix("api/")
    return ObjectReference(api_version, kind.type.__name__, meta.namespace, meta.name, meta.uid, version)


def pod_reference(pod: Pod) -> ObjectReference:
    """A reference to this version of the pod."""
    return ObjectReference("v1", "Pod", pod.namespace, pod.name, pod.uid, pod.resource_version)
