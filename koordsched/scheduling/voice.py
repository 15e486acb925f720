"""What users hear about their pods and nodes: events and pod status, written when there is room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from koordsched.api import core
from koordsched.api.meta import ObjectMeta
from koordsched.cluster.kinds import Kind
from koordsched.cluster.pod import Pod
from koordsched.framework import controller
from koordsched.observability.eventrecorder import NORMAL, WARNING, EventRecorder, pod_reference
from koordsched.observability.eventwire import ObjectReference
from koordsched.scheduling import eviction, failure, handlers, overcommitment, waitnotices
from koordsched.scheduling.podstatus import PodStatusWriter


class Speaker(
    failure.Voice,
    handlers.Complaints,
    eviction.EvictionVoice,
    waitnotices.Tell,
    overcommitment.NodeVoice,
    controller.Voice,
    Protocol,
):
    """Says everything that there is to say to users."""


class UserVoice:
    """Speaks through the event recorder of the pod's profile."""

    def __init__(self, recorders: Mapping[str, EventRecorder], status: PodStatusWriter) -> None:
        self._recorders = recorders
        self._status = status
        self._any = next(iter(recorders.values()))

    def _of(self, pod: Pod) -> EventRecorder:
        return self._recorders.get(pod.shape.scheduler_name, self._any)

    def scheduled(self, pod: Pod, node: str) -> None:
        """The pod was bound."""
        self._status.forget(pod.uid)
        self._of(pod).scheduled(pod, node)

    def failed(self, pod: Pod, note: str) -> None:
        """An attempt to schedule it failed."""
        self._of(pod).failed_scheduling(pod, note)

    def condition(self, pod: Pod, reason: str, message: str, nominated_node: str | None) -> None:
        """PodScheduled is False for this reason; nominated_node is written too unless it is None."""
        self._status.condition(pod, reason, message, nominated_node)

    def nominate(self, pod: Pod, node: str) -> None:
        """Writes status.nominatedNodeName alone."""
        self._status.nominate(pod, node)

    def waiting(self, pod: Pod, reason: str, message: str) -> None:
        """The pod waits without having been refused; with an empty reason it does not any more."""
        self._status.waiting(pod, reason, message)

    def gone(self, uid: str) -> None:
        """The pod is gone or has a node: nothing more to be said of its being pending."""
        self._status.forget(uid)

    def preempted(self, victim: Pod, preemptor: Pod, node: str, *, deleted: bool) -> None:
        """The victim had to make room for the preemptor."""
        self._of(preemptor).preempted(victim, preemptor, node, deleted=deleted)

    # --- what controllers have to say -----------------------------------------------------------------

    def warn(self, kind: Kind[Any], meta: ObjectMeta, reason: str, text: str, *, repeats: bool = False) -> None:
        """Something about an object is not as it should be. `repeats`: this may be said over and over."""
        reference = ObjectReference(kind.api_version, kind.name, meta.namespace, meta.name, meta.uid)
        self._any.record(reference, WARNING, reason, "Checking", text, once=not repeats)

    def tell_pod(self, pod: Pod, reason: str, text: str) -> None:
        """Something was done to a pod."""
        self._of(pod).record(pod_reference(pod), NORMAL, reason, "Evicting", text)

    def overcommitted(self, node: core.Node, message: str) -> None:
        """The requests of the pods on the node exceed what it has. One that comes and goes makes a series of events."""
        meta = node.metadata
        reference = ObjectReference("v1", "Node", "", meta.name, meta.uid)
        self._any.record(reference, WARNING, "OverCommitted", "Accounting", message)

    # --- complaints about what cannot be understood ------------------------------------------------

    def pod(self, pod: core.Pod, message: str) -> None:
        """The pod cannot be understood, hence not scheduled."""
        meta = pod.metadata
        reference = ObjectReference("v1", "Pod", meta.namespace, meta.name, meta.uid, meta.resource_version)
        recorder = self._recorders.get(pod.spec.scheduler_name, self._any)
        recorder.record(reference, WARNING, "FailedScheduling", "Scheduling", f"pod cannot be scheduled: {message}")

    def node(self, node: core.Node, message: str) -> None:
        """Something of the node cannot be understood and counts as zero."""
        meta = node.metadata
        reference = ObjectReference("v1", "Node", "", meta.name, meta.uid, meta.resource_version)
        self._any.record(reference, WARNING, "InvalidNodeStatus", "Scheduling", f"counted as zero: {message}")
