"""What the claims of a pod take of a node, as the pod's status says it, and what is wrong with it (dra spec 3.11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from koordsched.api.quantity import QuantityError
from koordsched.api.resource import AllocationResult, ResourceClaim
from koordsched.cluster.claimedresources import ClaimedResources, ClaimResources, total_of
from koordsched.cluster.pod import Pod
from koordsched.cluster.resources import exceeded_by_parts
from koordsched.plugins.dynamicresources.allocatable.mapped import MappedDevices
from koordsched.plugins.dynamicresources.claims import named_claims, title_of
from koordsched.plugins.dynamicresources.structured.footprint import Footprint, footprint, unmeasured


class TakingFailed(Exception):
    """What an allocation takes cannot be worked out; the message is upstream's. The attempt fails."""


def footprint_of(claim: ResourceClaim, allocation: AllocationResult, devices: MappedDevices) -> Footprint:
    """What the devices of an allocation take. Raises TakingFailed."""
    taking = []
    for result in allocation.devices.results:
        mappings = devices.of(result.driver, result.pool, result.device)
        if not mappings:
            continue
        consumed = result.consumed_capacity if result.consumed_capacity or result.share_id is not None else None
        problem = unmeasured(mappings, consumed)
        if problem is not None:
            raise TakingFailed(
                f"claim {title_of(claim)}, device {result.device}: ConsumedCapacity is nil, but Capacity key "
                f"'{problem.capacity}' is set in NodeAllocatableResourceMappings for resource {problem.resource}"
            )
        taking.append((mappings, consumed))
    try:
        return footprint(taking)
    except QuantityError as error:
        raise TakingFailed(f"claim {title_of(claim)}: {error}") from error


def containers_by_claim(pod: Pod) -> Mapping[str, tuple[str, ...]]:
    """By the name of a claim the containers of the pod that use it, init containers first."""
    claim_of = {named.entry: named.name for named in named_claims(pod)}
    users: dict[str, dict[str, None]] = {}
    for container in (*pod.shape.spec.init_containers, *pod.shape.spec.containers):
        for used in container.resources.claims if container.resources is not None else ():
            if used.name in claim_of:
                users.setdefault(claim_of[used.name], {})[container.name] = None
    return {claim: tuple(containers) for claim, containers in users.items()}


def claimed_resources(takings: Iterable[tuple[str, Footprint]], users: Mapping[str, Sequence[str]]) -> ClaimedResources:
    """What claims of these names take, as a pod's status lists it."""
    return tuple(
        ClaimResources(claim, tuple(users.get(claim, ())), tuple((each.resource, each.text) for each in taken))
        for claim, taken in sorted(takings)
        if taken
    )


def problem_of(pod: Pod, claimed: ClaimedResources) -> str:
    """Why a pod cannot have this anywhere; "" if it can."""
    for each in claimed:
        if not each.containers:
            return f"claim {each.claim}: node-allocatable resource claim not referenced by any container within the pod"
    resource = exceeded_by_parts(pod.shape.spec, dict(total_of(claimed)))
    if resource:
        return (
            f"pod level request for {resource} is insufficient to cover the aggregated container and "
            "node-allocatable DRA requests"
        )
    return ""


def updating_failed(pod: Pod, error: str) -> str:
    """Text of the Error when the status of the pod cannot be written."""
    return f"updating pod {pod.namespace}/{pod.name} NodeAllocatableResourceClaimStatuses: {error}"
