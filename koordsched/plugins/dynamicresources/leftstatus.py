"""What an earlier binding has written to the status of a pod about claims, and this one will not write anew.

The kubelet would look for devices of another node, and what they took of that node would count on this one. (Upstream
leaves it.)
"""

from __future__ import annotations

from koordsched.cluster.pod import Pod
from koordsched.plugins.dynamicresources.cyclestate import DeviceCycle
from koordsched.plugins.dynamicresources.extended.claim import is_in_memory

CLAIMED = "nodeAllocatableResourceClaimStatuses"
SPECIAL = "extendedResourceClaimStatus"


def left_in_status(pod: Pod, state: DeviceCycle | None) -> list[str]:
    """The fields of the pod's status to clear before it is bound. `state`: None if it claims nothing."""
    if pod.wire is None:
        return []
    status, left = pod.wire.status, []
    if status.node_allocatable_resource_claim_statuses and (state is None or not state.claimed):
        left.append(CLAIMED)
    if status.extended_resource_claim_status is not None and (state is None or not makes_special(state)):
        left.append(SPECIAL)
    return left


def makes_special(state: DeviceCycle) -> bool:
    """Whether PreBind creates a claim for the pod's extended resources."""
    return any(is_in_memory(chosen.claim) for chosen in state.chosen)
