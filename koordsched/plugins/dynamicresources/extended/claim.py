"""The special claim: the ResourceClaim that the scheduler makes for a pod's extended resources (dra spec 3.10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from koordsched.api.core import PodExtendedResourceClaimStatus
from koordsched.api.meta import ObjectMeta, OwnerReference
from koordsched.api.resource import DeviceClaim, ResourceClaim, ResourceClaimSpec
from koordsched.cluster.pod import Pod
from koordsched.plugins.dynamicresources.extended.requests import SpecialRequests

ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
IN_MEMORY_NAME = "<extended-resources>"
"""The name while the API server has no such claim: not a valid one, so that no other claim has it."""

CREATES_METRIC = "scheduler_resourceclaim_creates_total"
"""Label: success or failure."""

CANNOT_SCHEDULE = "cannot schedule extended resource claim"
CANNOT_FIT = "cannot fit resource"
DELETED = "deletion of ResourceClaim completed"

_TRUE = "true"


def is_special(claim: ResourceClaim) -> bool:
    """Whether a scheduler made the claim for extended resources."""
    return claim.metadata.annotations.get(ANNOTATION) == _TRUE


def owner_of(claim: ResourceClaim) -> tuple[str, str] | None:
    """(uid, name) of the pod that a special claim was made for; None for any other claim."""
    if not is_special(claim):
        return None
    owner = next((owner for owner in claim.metadata.owner_references if owner.controller), None)
    return (owner.uid, owner.name) if owner is not None else None


def in_memory(pod: Pod, uid: str) -> ResourceClaim:
    """The special claim of a cycle, without requests: these depend on the node (`requesting`).

    `uid`: a random one, by which the allocation in flight is known.
    """
    owner = OwnerReference(kind="Pod", name=pod.name, uid=pod.uid, api_version="v1", controller=True)
    return ResourceClaim(
        metadata=ObjectMeta(
            name=IN_MEMORY_NAME,
            namespace=pod.namespace,
            uid=uid,
            annotations={ANNOTATION: _TRUE},
            owner_references=(owner,),
        )
    )


def is_in_memory(claim: ResourceClaim) -> bool:
    """Whether the claim still has to be created."""
    return claim.metadata.name == IN_MEMORY_NAME


def requesting(claim: ResourceClaim, special: SpecialRequests) -> ResourceClaim:
    """The claim with the requests of a node."""
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=special.requests))
    return msgspec.structs.replace(claim, spec=spec)


def to_create(claim: ResourceClaim) -> dict[str, Any]:
    """What is posted to the API server, which makes up the end of the name."""
    owner = next(iter(claim.metadata.owner_references))
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": f"{owner.name}-extended-resources-",
            "namespace": claim.metadata.namespace,
            "annotations": dict(claim.metadata.annotations),
            "ownerReferences": msgspec.to_builtins(claim.metadata.owner_references),
        },
        "spec": msgspec.to_builtins(claim.spec),
    }


def pod_status(claim_name: str, special: SpecialRequests) -> Mapping[str, Any]:
    """The merge patch of the pod's status that says which claim stands for its extended resources."""
    status = PodExtendedResourceClaimStatus(request_mappings=special.mappings, resource_claim_name=claim_name)
    return {"status": {"extendedResourceClaimStatus": msgspec.to_builtins(status)}}


def create_failed(pod: Pod, error: str) -> str:
    """Text of the Error when the API server refuses the claim."""
    return f"create claim for extended resources {pod.namespace}/: {error}"


def not_found(node: str) -> str:
    """Text of the Error when PreBind finds no requests for the node."""
    return f"extended resource claim not found for node {node}"


def status_failed(pod: Pod, error: str) -> str:
    """Text of the Error when the status of the pod cannot be written."""
    return f"update pod {pod.namespace}/{pod.name} ExtendedResourceClaimStatus: {error}"
