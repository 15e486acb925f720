"""What users read about their pods, nodes and other objects: events and pod status, written when there is room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordsched.api import core
from koordsched.api.meta import ObjectMeta
from koordsched.cluster.kinds import Kind
from koordsched.cluster.pod import Pod
from koordsched.framework import handle
from koordsched.framework.handle import NORMAL, WARNING, OnBehalf
from koordsched.observability.eventrecorder import EventRecorder, object_reference, pod_reference
from koordsched.observability.eventwire import ObjectReference
from koordsched.scheduling.podstatus import PodStatusWriter
from koordsched.scheduling.virtualpods import VirtualPodWriters


class Reporter(handle.EventRecorder):
    """Events, and the status of pods. Never blocks, best effort.

    This one drops everything: decisions that are repeated or only evaluated are shown to no users.
    """

    def scheduled(self, pod: Pod, node: str) -> None:
        """The pod was bound."""

    def failed(self, pod: Pod, note: str) -> None:
        """An attempt to schedule it failed."""

    def condition(self, pod: Pod, reason: str, message: str, nominated_node: str | None) -> None:
        """PodScheduled is False for this reason; nominated_node is written too unless it is None."""

    def nominate(self, pod: Pod, node: str) -> None:
        """Writes status.nominatedNodeName alone; "" clears it."""

    def waiting(self, pod: Pod, reason: str, message: str) -> None:
        """The pod waits without having been refused; with an empty reason it does not any more."""

    async def withdraw(self, pod: Pod) -> None:
        """The pod is about to be bound: its status as a pending pod is not written any more, nor on its way."""

    def gone(self, uid: str) -> None:
        """The pod is gone or has a node: its status as a pending pod is not written any more."""

    def shows_no_more(self, uid: str) -> None:
        """The API server went back in time: the pod may not show what was written of it."""

    def preempted(
        self, victim: Pod, preemptor: Pod, node: str, *, deleted: bool, behalf: OnBehalf | None = None
    ) -> None:
        """The victim had to make room for the preemptor, or for the whole that this is a part of."""

    def invalid_pod(self, pod: core.Pod, message: str) -> None:
        """The pod cannot be decoded and is not scheduled."""


class UserReporter(Reporter):
    """Records events in the name of the pod's profile; those on other objects in that of the first.

    What concerns virtual pods goes to their writers.
    """

    def __init__(
        self, recorders: Mapping[str, EventRecorder], status: PodStatusWriter, virtual: VirtualPodWriters
    ) -> None:
        self._recorders = recorders
        self._status = status
        self._virtual = virtual
        self._first = next(iter(recorders.values()))

    def _of(self, pod: Pod) -> EventRecorder:
        return self._recorders.get(pod.shape.scheduler_name, self._first)

    def event(
        self,
        kind: Kind[Any],
        meta: ObjectMeta,
        event_type: str,
        reason: str,
        message: str,
        *,
        action: str = "Scheduling",
        once: bool = False,
    ) -> None:
        """An event on any object."""
        # A series goes over many versions of the object.
        regarding = object_reference(kind, meta, meta.resource_version if once else "")
        self._first.record(regarding, event_type, reason, action, message, once=once)

    def pod_event(self, pod: Pod, event_type: str, reason: str, message: str, *, action: str = "Scheduling") -> None:
        """An event on a pod."""
        if (writer := self._virtual.get(pod.uid)) is not None:
            writer.event(pod, event_type, reason, message, action)
            return
        self._of(pod).record(pod_reference(pod), event_type, reason, action, message)

    def scheduled(self, pod: Pod, node: str) -> None:
        if (writer := self._virtual.get(pod.uid)) is not None:
            writer.event(pod, NORMAL, "Scheduled", f"Successfully assigned {pod.key} to {node}", "Binding")
            return
        self._status.forget(pod.uid)
        self._of(pod).scheduled(pod, node)

    def failed(self, pod: Pod, note: str) -> None:
        self.pod_event(pod, WARNING, "FailedScheduling", note)

    def condition(self, pod: Pod, reason: str, message: str, nominated_node: str | None) -> None:
        if (writer := self._virtual.get(pod.uid)) is not None:
            writer.condition(pod, reason, message, nominated_node)
            return
        self._status.condition(pod, reason, message, nominated_node)

    def nominate(self, pod: Pod, node: str) -> None:
        """Writes status.nominatedNodeName alone."""
        if (writer := self._virtual.get(pod.uid)) is not None:
            writer.condition(pod, "", "", node)
            return
        self._status.nominate(pod, node)

    def waiting(self, pod: Pod, reason: str, message: str) -> None:
        """The condition of a pod that waits without having been refused; virtual pods have none."""
        if pod.uid not in self._virtual:
            self._status.waiting(pod, reason, message)

    async def withdraw(self, pod: Pod) -> None:
        if pod.uid not in self._virtual:
            await self._status.withdraw(pod.uid)

    def gone(self, uid: str) -> None:
        """The pod is gone or has a node."""
        self._status.forget(uid)

    def shows_no_more(self, uid: str) -> None:
        """The pod may not show what was written of it."""
        self._status.lose(uid)

    def preempted(
        self, victim: Pod, preemptor: Pod, node: str, *, deleted: bool, behalf: OnBehalf | None = None
    ) -> None:
        if (writer := self._virtual.get(victim.uid)) is not None:
            note = f"Preempted by pod {preemptor.uid} on node {node}"
            writer.event(victim, NORMAL, "Preempted", note, "Preempting")
            return
        self._of(preemptor).preempted(victim, preemptor, node, deleted=deleted, behalf=behalf)

    def invalid_pod(self, pod: core.Pod, message: str) -> None:
        meta = pod.metadata
        reference = ObjectReference("v1", "Pod", meta.namespace, meta.name, meta.uid, meta.resource_version)
        recorder = self._recorders.get(pod.spec.scheduler_name, self._first)
        recorder.record(reference, WARNING, "FailedScheduling", "Scheduling", f"pod cannot be scheduled: {message}")
