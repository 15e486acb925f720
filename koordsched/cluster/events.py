"""Cluster events: what happened to which kind of object, and which plugins wait for it.

A plugin registers the events that may make a pod it rejected schedulable; the watch handlers turn every change into
`ClusterEvent`s; the scheduling queue matches the two. Names and labels are those of kube-scheduler
(`kube-scheduler/framework/types.go`), because they appear as metric labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import Final, NewType

EventResource = NewType("EventResource", str)
"""A kind of object: one of the constants below, or `<plural>.<version>.<group>` for anything else."""

POD: Final = EventResource("Pod")
#: Incoming events only: a pod bound to a node, or one that is not. Plugins register `POD`, which matches both.
ASSIGNED_POD: Final = EventResource("AssignedPod")
UNSCHEDULABLE_POD: Final = EventResource("UnschedulablePod")
NODE: Final = EventResource("Node")
PERSISTENT_VOLUME: Final = EventResource("PersistentVolume")
PERSISTENT_VOLUME_CLAIM: Final = EventResource("PersistentVolumeClaim")
CSI_NODE: Final = EventResource("storage.k8s.io/CSINode")
CSI_DRIVER: Final = EventResource("storage.k8s.io/CSIDriver")
CSI_STORAGE_CAPACITY: Final = EventResource("storage.k8s.io/CSIStorageCapacity")
VOLUME_ATTACHMENT: Final = EventResource("storage.k8s.io/VolumeAttachment")
STORAGE_CLASS: Final = EventResource("storage.k8s.io/StorageClass")
RESOURCE_CLAIM: Final = EventResource("resource.k8s.io/ResourceClaim")
RESOURCE_SLICE: Final = EventResource("resource.k8s.io/ResourceSlice")
DEVICE_CLASS: Final = EventResource("resource.k8s.io/DeviceClass")
WILDCARD: Final = EventResource("*")

#: What a plugin that names no events of its own is registered for; custom resources are not among them.
STANDARD_RESOURCES: Final = (
    POD,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    CSI_NODE,
    CSI_DRIVER,
    CSI_STORAGE_CAPACITY,
    VOLUME_ATTACHMENT,
    STORAGE_CLASS,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    DEVICE_CLASS,
)


class ActionType(IntFlag):
    """What happened. The order of the bits is part of the matching rule (core spec 3.2)."""

    ADD = 1
    DELETE = 1 << 1
    UPDATE_NODE_ALLOCATABLE = 1 << 2
    UPDATE_NODE_LABEL = 1 << 3
    UPDATE_NODE_TAINT = 1 << 4
    UPDATE_NODE_CONDITION = 1 << 5
    UPDATE_NODE_ANNOTATION = 1 << 6
    UPDATE_NODE_DECLARED_FEATURE = 1 << 7
    UPDATE_POD_LABEL = 1 << 8
    UPDATE_POD_SCALE_DOWN = 1 << 9
    UPDATE_POD_TOLERATION = 1 << 10
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 1 << 11
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = 1 << 12

    #: As an incoming event: some change that none of the specific bits describes.
    UPDATE = (1 << 13) - (1 << 2)
    ALL = (1 << 13) - 1

    @property
    def text(self) -> str:
        """The name as in event labels, e.g. `UpdateNodeTaint`; combinations are joined with `|`."""
        if self in (ActionType.UPDATE, ActionType.ALL):
            return "Update" if self is ActionType.UPDATE else "All"
        return "|".join("".join(word.capitalize() for word in str(bit.name).split("_")) for bit in self)


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """A change of one kind of object, or, registered by a plugin, a set of changes it waits for.

    `label` names it in metrics; it follows from the other two unless given.
    """

    resource: EventResource
    action: ActionType
    label: str = ""

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", f"{self.resource}{self.action.text}")

    @property
    def is_wildcard(self) -> bool:
        """Whether it moves pods whatever rejected them, without asking for hints."""
        return self.resource == WILDCARD and self.action == ActionType.ALL

    def matches(self, incoming: ClusterEvent) -> bool:
        """Whether this registered event covers `incoming` (core spec 3.2).

        The integer comparison keeps a generic update from waking plugins that wait for specific ones: it is
        matched only by a registration that contains every update bit.
        """
        if self.is_wildcard:
            return True
        return (
            _covers(self.resource, incoming.resource)
            and bool(self.action & incoming.action)
            and int(incoming.action) <= int(self.action)
        )


def _covers(registered: EventResource, incoming: EventResource) -> bool:
    return registered in (WILDCARD, incoming) or (registered == POD and incoming in (ASSIGNED_POD, UNSCHEDULABLE_POD))


ASSIGNED_POD_ADD: Final = ClusterEvent(ASSIGNED_POD, ActionType.ADD)
ASSIGNED_POD_UPDATE: Final = ClusterEvent(ASSIGNED_POD, ActionType.UPDATE)
ASSIGNED_POD_DELETE: Final = ClusterEvent(ASSIGNED_POD, ActionType.DELETE)
UNSCHEDULABLE_POD_ADD: Final = ClusterEvent(UNSCHEDULABLE_POD, ActionType.ADD)
UNSCHEDULABLE_POD_UPDATE: Final = ClusterEvent(UNSCHEDULABLE_POD, ActionType.UPDATE)
NODE_ADD: Final = ClusterEvent(NODE, ActionType.ADD)
NODE_DELETE: Final = ClusterEvent(NODE, ActionType.DELETE)

#: A pod sat unschedulable for too long.
UNSCHEDULABLE_TIMEOUT: Final = ClusterEvent(WILDCARD, ActionType.ALL, "UnschedulableTimeout")
#: A plugin asked for the pod to be tried at once.
FORCE_ACTIVATE: Final = ClusterEvent(WILDCARD, ActionType.ALL, "ForceActivate")

# Labels of moves between queues that no cluster event causes.
SCHEDULE_ATTEMPT_FAILURE: Final = "ScheduleAttemptFailure"
BACKOFF_COMPLETE: Final = "BackoffComplete"
POP_FROM_BACKOFF_Q: Final = "PopFromBackoffQ"
