"""The score of an allocation that was made before, by the names of requests in its results (dra spec 3.7)."""

from __future__ import annotations

from koordsched.api.resource import ResourceClaim
from koordsched.plugins.dynamicresources.structured.search import BEST_SCORE


def score_of(claim: ResourceClaim) -> int:
    """8 less the number of the alternative, for each request of the allocated claim that has some."""
    allocation = claim.status.allocation
    if allocation is None:
        return 0
    results = {result.request for result in allocation.devices.results}
    score = 0
    for request in claim.spec.devices.requests:
        chosen = [f"{request.name}/{each.name}" in results for each in request.first_available]
        score += BEST_SCORE - chosen.index(True) if True in chosen else 0
    return score
