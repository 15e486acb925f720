"""What PreBind would write of claims, applied at once, for evaluations without an API server."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from koordsched.api.resource import AllocationResult, ResourceClaim, ResourceClaimConsumerReference
from koordsched.cluster.builtinkinds import RESOURCE_CLAIMS
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.plugins.dynamicresources.books import DeviceBooks
from koordsched.plugins.dynamicresources.claims import is_reserved_for
from koordsched.plugins.dynamicresources.claimstates import placement_lines
from koordsched.plugins.dynamicresources.cyclestate import DeviceCycle
from koordsched.plugins.dynamicresources.extended.claim import is_in_memory


def settle(state: DeviceCycle, pod: Pod, books: DeviceBooks, cluster: ClusterState) -> list[str]:
    """Allocates and reserves the claims of a pod that was placed; returns in lines of text what they have."""
    chosen = {each.claim.metadata.uid: each.allocation for each in state.chosen}
    given: list[tuple[ResourceClaim, AllocationResult]] = []
    for named in state.claims:
        claim = books.claims.get(named.metadata.namespace, named.metadata.name)
        assert claim is not None, "nothing is deleted in between"
        allocation = claim.status.allocation or chosen[claim.metadata.uid]
        books.claims.assume(_reserved(claim, allocation, books.user_of(claim, pod)))
        given.append((claim, allocation))
    for claim, allocation in state.chosen:
        if is_in_memory(claim):
            made = replace(claim, metadata=replace(claim.metadata, name=f"{pod.name}-extended-resources"))
            cluster.objects.of(RESOURCE_CLAIMS).upsert(_reserved(made, allocation, books.user_of(made, pod)))
            given.append((made, allocation))
    return placement_lines(given)


def _reserved(
    claim: ResourceClaim, allocation: AllocationResult, user: ResourceClaimConsumerReference
) -> ResourceClaim:
    users: Sequence[ResourceClaimConsumerReference] = claim.status.reserved_for
    if not is_reserved_for(claim, user.uid):
        users = (*users, user)
    return replace(claim, status=replace(claim.status, allocation=allocation, reserved_for=tuple(users)))
