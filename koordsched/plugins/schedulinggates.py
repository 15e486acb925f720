"""SchedulingGates: a pod stays out of the queue as long as it has gates (default-plugins spec 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from koordsched.cluster.events import POD, ActionType, ClusterEvent
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Handle
from koordsched.framework.interface import PreEnqueue
from koordsched.framework.status import SUCCESS, Code, Status
from koordsched.queue.hints import HintRegistration, QueueingHint, Scope


class SchedulingGates(PreEnqueue):
    """Gates pods with a non-empty spec.schedulingGates."""

    name = "SchedulingGates"

    def __init__(self, args: None, handle: Handle) -> None:
        """Takes no arguments."""

    def pre_enqueue(self, pod: Pod) -> Status:
        """UNRESOLVABLE while there are gates."""
        gates = pod.wire.spec.scheduling_gates if pod.wire is not None else ()
        if not gates:
            return SUCCESS
        names = " ".join(gate.name for gate in gates)
        return Status(Code.UNRESOLVABLE, (f"waiting for scheduling gates: [{names}]",))

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """The pod's own last gate going away."""
        return [
            HintRegistration(
                self.name,
                ClusterEvent(POD, ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED),
                _after_pod_change,
                Scope.OWN_POD,
            )
        ]


def _after_pod_change(pod: Pod, old: Any, new: Any) -> QueueingHint:
    return QueueingHint.QUEUE if new is not None and new.uid == pod.uid else QueueingHint.SKIP
