"""What changed between two versions of a pod or node, as cluster events (core spec 3.2)."""

from __future__ import annotations

from copy import copy

from koordsched.cluster.events import ASSIGNED_POD, NODE, UNSCHEDULABLE_POD, ActionType, ClusterEvent
from koordsched.cluster.pod import Pod

_NODE_UPDATES = tuple(
    ClusterEvent(NODE, action)
    for action in (
        ActionType.UPDATE_NODE_ALLOCATABLE,
        ActionType.UPDATE_NODE_LABEL,
        ActionType.UPDATE_NODE_TAINT,
        ActionType.UPDATE_NODE_CONDITION,
        ActionType.UPDATE_NODE_ANNOTATION,
        ActionType.UPDATE_NODE_DECLARED_FEATURE,
    )
)


def node_events(changed: ActionType) -> list[ClusterEvent]:
    """One event per kind of change; none for a heartbeat."""
    return [event for event in _NODE_UPDATES if event.action & changed]


def pod_events(old: Pod, new: Pod) -> list[ClusterEvent]:
    """The change events of a pod; a single generic Update if nothing specific changed."""
    resource = ASSIGNED_POD if new.node else UNSCHEDULABLE_POD
    actions: list[ActionType] = []
    if old.labels is not new.labels:
        actions.append(ActionType.UPDATE_POD_LABEL)
    if old.requests is not new.requests and _scaled_down(old, new):
        actions.append(ActionType.UPDATE_POD_SCALE_DOWN)
    if gates_eliminated(old, new):
        actions.append(ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    if old.shape is not new.shape and len(old.shape.spec.tolerations) != len(new.shape.spec.tolerations):
        actions.append(ActionType.UPDATE_POD_TOLERATION)
    if claims_generated(old, new):
        actions.append(ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
    return [ClusterEvent(resource, action) for action in actions or (ActionType.UPDATE,)]


def leaving(pod: Pod, nominated_node: str) -> Pod:
    """The pod as if it had been on the node it was nominated to, for the event that it leaves that node.

    Pods that the nomination kept out may take the room.
    """
    gone = copy(pod)
    gone.node, gone.row = nominated_node, -1
    return gone


def place_left(old: Pod | None, new: Pod | None) -> str:
    """The node that a pod leaves for good, "" if it does not, or had none."""
    return old.node if old is not None and new is None else ""


def gates_eliminated(old: Pod, new: Pod) -> bool:
    """Whether the last scheduling gate was removed."""
    return (
        old.wire is not None
        and new.wire is not None
        and bool(old.wire.spec.scheduling_gates)
        and not new.wire.spec.scheduling_gates
    )


def claims_generated(old: Pod, new: Pod) -> bool:
    """Whether the pod's status names other resource claims than before."""
    if old.wire is None or new.wire is None:
        return False
    before, after = old.wire.status, new.wire.status
    return (
        before.resource_claim_statuses != after.resource_claim_statuses
        or before.extended_resource_claim_status != after.extended_resource_claim_status
    )


def _scaled_down(old: Pod, new: Pod) -> bool:
    after = dict(new.requests.amounts)
    return any(after.get(resource, 0) < amount for resource, amount in old.requests.amounts)
