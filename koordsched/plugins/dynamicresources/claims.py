"""The claims of a pod: what its spec and status name, and what is wrong with them (dra spec 3.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from koordsched.api.core import PodResourceClaim
from koordsched.api.meta import controller_of
from koordsched.api.resource import ResourceClaim, ResourceClaimConsumerReference
from koordsched.cluster.pod import Pod
from koordsched.plugins.dynamicresources.assumed import AssumedClaims


class NamedClaim(NamedTuple):
    """A claim that a pod names. `generated`: it was made of a template, and must be the pod's own; `entry`: how the
    pod's containers name it."""

    name: str
    generated: bool
    entry: str


class ClaimProblem(Exception):
    """The pod cannot be tried as long as this is so; the message is upstream's."""


def named_claims(pod: Pod) -> Iterator[NamedClaim]:
    """The claims in the order of the pod's spec. Raises ClaimProblem at the first that has no name yet."""
    for entry in pod.shape.spec.resource_claims:
        if entry.resource_claim_name is not None:
            yield NamedClaim(entry.resource_claim_name, False, entry.name)
        elif entry.resource_claim_template_name is None:
            raise ClaimProblem(
                f'pod "{pod.key}", spec.resourceClaim "{entry.name}": none of the supported fields are set'
            )
        else:
            statuses = pod.wire.status.resource_claim_statuses if pod.wire is not None else ()
            status = next((status for status in statuses if status.name == entry.name), None)
            if status is None:
                raise ClaimProblem(f'pod "{pod.key}": ResourceClaim not created yet')
            if status.resource_claim_name is not None:
                yield NamedClaim(status.resource_claim_name, True, entry.name)


def names_of_entries(pod: Pod) -> Iterator[tuple[PodResourceClaim, str]]:
    """The entries of the pod's spec with the names of their claims, without those that have none."""
    statuses = pod.wire.status.resource_claim_statuses if pod.wire is not None else ()
    made = {status.name: status.resource_claim_name for status in statuses}
    for entry in pod.shape.spec.resource_claims:
        name = entry.resource_claim_name if entry.resource_claim_name is not None else made.get(entry.name)
        if name is not None:
            yield entry, name


def claims_of(pod: Pod, claims: AssumedClaims, group: str = "") -> tuple[ResourceClaim, ...]:
    """The claims of the pod, each once, in the order of its spec. Raises ClaimProblem.

    `group`: the name of the PodGroup whose claims the pod may have, too; "" for none.
    """
    found: dict[str, ResourceClaim] = {}
    for name, generated, _ in named_claims(pod):
        claim = claims.get(pod.namespace, name)
        if claim is None:
            raise ClaimProblem(f'could not find ResourceClaim "{pod.namespace}/{name}"')
        if claim.metadata.deletion_timestamp is not None:
            raise ClaimProblem(f'resourceclaim "{name}" is being deleted')
        if generated and not is_owned_by(claim, pod, group):
            why = f"neither Pod nor PodGroup {group} is the owner" if group else "Pod is not owner"
            raise ClaimProblem(f"ResourceClaim {pod.namespace}/{name} was not created for Pod {pod.key} ({why})")
        found[name] = claim
    return tuple(found.values())


def is_reserved_for(claim: ResourceClaim, uid: str) -> bool:
    """Whether the claim is reserved for the pod, or PodGroup, of that uid."""
    return any(consumer.uid == uid for consumer in claim.status.reserved_for)


def reference_to(pod: Pod) -> ResourceClaimConsumerReference:
    """The entry of `reservedFor` that stands for a pod."""
    return ResourceClaimConsumerReference(resource="pods", name=pod.name, uid=pod.uid)


def title_of(claim: ResourceClaim) -> str:
    """`namespace/name`."""
    return f"{claim.metadata.namespace}/{claim.metadata.name}"


def is_owned_by(claim: ResourceClaim, pod: Pod, group: str = "") -> bool:
    """Whether the claim was made for the pod, or for the PodGroup of this name; "" for none."""
    owner = controller_of(claim.metadata)
    if owner is None or owner.uid == pod.uid:
        return owner is not None
    is_of_groups = owner.kind == "PodGroup" and owner.api_version.partition("/")[0] == "scheduling.k8s.io"
    return bool(group) and is_of_groups and owner.name == group
