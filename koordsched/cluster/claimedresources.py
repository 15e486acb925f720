"""What a pod's claims to devices take of its node's allocatable resources, CPU and memory maybe (dra spec 3.11).

The scheduler works it out when it chooses devices, and writes it to the pod's status before the binding. On the node it
counts like a request.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from koordsched.api.core import PodStatus
from koordsched.api.quantity import nano_value


class ClaimResources(NamedTuple):
    """What one claim takes. `containers`: those that use it; `amounts`: (resource, quantity), by name."""

    claim: str
    containers: tuple[str, ...]
    amounts: tuple[tuple[str, str], ...]


ClaimedResources = tuple[ClaimResources, ...]
"""Of all claims of a pod that take something, in the order of their names."""


def of_status(status: PodStatus) -> ClaimedResources | None:
    """What the status says; None if it says nothing."""
    statuses = status.node_allocatable_resource_claim_statuses
    if not statuses:
        return None
    return tuple(
        ClaimResources(
            each.resource_claim_name,
            each.containers,
            tuple(sorted((name, str(quantity)) for name, quantity in each.resources.items())),
        )
        for each in statuses
    )


def as_status(claimed: ClaimedResources) -> dict[str, Any]:
    """The part of a pod's status that says this."""
    return {
        "nodeAllocatableResourceClaimStatuses": [
            {"resourceClaimName": each.claim, "containers": list(each.containers), "resources": dict(each.amounts)}
            for each in claimed
        ]
    }


Total = tuple[tuple[str, int], ...]
"""(resource, amount in nano-units), in the order of the names."""


def total_of(claimed: ClaimedResources) -> Total:
    """What all claims take together. Raises QuantityError."""
    total: dict[str, int] = {}
    for each in claimed:
        for name, quantity in each.amounts:
            total[name] = total.get(name, 0) + nano_value(quantity)
    return tuple(sorted(total.items()))
