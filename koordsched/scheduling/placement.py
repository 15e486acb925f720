"""What comes of an attempt: a pod that is assumed on a node, or the reason why it is not."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import NamedTuple

from koordsched.cluster.pod import Pod
from koordsched.framework.diagnosis import one_node_error
from koordsched.framework.interface import CycleState, PostFilterResult
from koordsched.framework.profile import Profile
from koordsched.framework.status import Code, Status
from koordsched.queue.item import QueuedPod
from koordsched.scheduling.failure import SCHEDULER_ERROR, UNSCHEDULABLE, FailedAttempt


@dataclass(slots=True, eq=False, repr=False)
class AssumedPod:
    """A pod that was placed and assumed, on its way to be bound. `waits`: Permit plugins -> seconds.

    `nominated_here`: the pod had been nominated to the node, perhaps by a write that its status does not show yet.
    """

    cycle: CycleState
    profile: Profile
    queued: QueuedPod[Pod]
    row: int
    node: str
    waits: dict[str, float]
    started: float
    feasible: int
    nominated_here: bool = False

    @property
    def pod(self) -> Pod:
        """The assumed pod."""
        return self.cycle.pod


class NotPlaced(NamedTuple):
    """An attempt that found no node. `outcome`: what the PostFilter plugins decided, to be started."""

    failed: FailedAttempt
    outcome: PostFilterResult | None = None

    def evicts(self, uids: Container[str]) -> bool:
        """Whether one of these pods would have to go."""
        return self.outcome is not None and any(victim.uid in uids for victim in self.outcome.victims)


def stays(status: Status) -> bool:
    """Whether a pod stays where it was placed, by what Reserve and Permit say."""
    return status.ok or status.code is Code.WAIT


def refused_by(status: Status) -> NotPlaced:
    """A Reserve or Permit plugin refused the pod on the node that was chosen."""
    if not status.code.rejects:
        return erroneous(status.message)
    return NotPlaced(FailedAttempt(UNSCHEDULABLE, one_node_error(status), frozenset((status.plugin,)), nominated=""))


def erroneous(message: str) -> NotPlaced:
    """The attempt ended in an error."""
    return NotPlaced(FailedAttempt(SCHEDULER_ERROR, message, nominated=""))
