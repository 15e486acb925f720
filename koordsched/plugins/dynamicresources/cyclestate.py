"""What the plugin keeps of one attempt, from PreFilter to Unreserve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from koordsched.api.resource import AllocationResult, ResourceClaim
from koordsched.cluster.claimedresources import ClaimedResources
from koordsched.framework.status import HeldReason
from koordsched.plugins.dynamicresources.extended import SpecialRequests
from koordsched.plugins.dynamicresources.structured import Demand, score_of
from koordsched.plugins.shared.matching.nodeselector import NodeTerms


class AllocatedClaim(NamedTuple):
    """A claim that has its devices. `place` among the pod's claims; `nodes`: where it can be used, None for
    everywhere."""

    place: int
    claim: ResourceClaim
    nodes: NodeTerms | None


class Chosen(NamedTuple):
    """A claim and what Reserve chose for it."""

    claim: ResourceClaim
    allocation: AllocationResult


class DeviceCycle:
    """The state.

    `claims`: those that the pod names; `allocated` and `open` sort them. `special`: the claim for extended resources,
    None if none of them is served by DRA; `leftover`: it is one of an earlier attempt, and in the way.
    `unavailable`: the places of claims without which a node would do. `scores`: int64 by row, None while all are 0.
    `shared`: those of `claims` whose allocation is in flight for another pod of the same attempt, as it is there;
    `shared_score`: what their alternatives add to the score of every node. `in_job`: whether others may share what is
    chosen for this pod. `chosen`: what Reserve chose or shares; `requests`: of the special claim there. `reserved`: the
    claims that PreBind may have reserved for the pod; `created`: the special claim that it made. `held`: reasons with
    texts of this attempt. `claimed`: what the claims take of the node since Reserve; `shown`: the fields of the pod's
    status that PreBind may have written; `takes`: somewhere they would take something.
    """

    __slots__ = (
        "allocated",
        "chosen",
        "claimed",
        "claims",
        "created",
        "demands",
        "held",
        "in_job",
        "leftover",
        "open",
        "reason",
        "requests",
        "reserved",
        "scores",
        "shared",
        "shared_score",
        "shown",
        "special",
        "takes",
        "unavailable",
    )

    def __init__(
        self,
        claims: tuple[ResourceClaim, ...],
        allocated: Sequence[AllocatedClaim],
        special: ResourceClaim | None = None,
        *,
        leftover: bool = False,
        shared: Sequence[ResourceClaim] = (),
        in_job: bool = False,
    ) -> None:
        self.claims = claims
        self.shared = shared
        self.shared_score = sum(score_of(claim) for claim in shared)
        self.in_job = in_job
        self.allocated = allocated
        self.open = tuple(claim for claim in claims if claim.status.allocation is None)
        self.special = special
        self.leftover = leftover
        self.demands: dict[SpecialRequests | None, Demand] = {}
        self.unavailable: set[int] = set()
        self.scores: npt.NDArray[np.int64] | None = None
        self.reason: HeldReason | None = None
        self.held: dict[int, HeldReason] = {}
        self.claimed: ClaimedResources = ()
        self.shown: list[str] = []
        self.takes = False
        self.chosen: tuple[Chosen, ...] = ()
        self.requests: SpecialRequests | None = None
        self.reserved: list[ResourceClaim] = []
        self.created: ResourceClaim | None = None
