"""Which pods with claims are refused alike: those whose own claims are new, and ask for the same."""

from __future__ import annotations

from collections.abc import Hashable

from koordsched.api.resource import ResourceClaim
from koordsched.cluster.pod import Pod
from koordsched.plugins.dynamicresources.books import DeviceBooks
from koordsched.plugins.dynamicresources.claims import ClaimProblem, claims_of, is_owned_by


def identity_of(pod: Pod, books: DeviceBooks) -> Hashable | None:
    """Equal for pods of one shape that are refused alike; None for a pod that is a case of its own.

    Changes of a pod's claims wake it by their names, and its identity is another one then.
    """
    if books.special_claims.of(pod) is not None or books.allocatable is not None:
        return None  # refusals for what devices take of nodes name the claim
    try:
        claims = claims_of(pod, books.claims)
    except ClaimProblem:
        return None
    if not all(_is_new(claim, pod, books) for claim in claims):
        return None
    return books.allocator.identity(claims, books.device_class)


def _is_new(claim: ResourceClaim, pod: Pod, books: DeviceBooks) -> bool:
    """Whether nothing is known of the claim but what it asks for, and no refusal has its name."""
    status = claim.status
    if status.allocation is not None or status.reserved_for or claim.metadata.uid in books.in_flight:
        return False
    if not is_owned_by(claim, pod):
        return False
    return all(
        request.exactly is not None or (request.first_available and books.features.prioritized_list)
        for request in claim.spec.devices.requests
    )
