"""Which ResourceClaims a pod has: those it names, and those that are made for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class PodClaim(NamedTuple):
    """An entry of a pod's spec.resourceClaims."""

    entry: str
    claim: str
    """Name of the claim; empty while none was made of the template, and if none is needed."""
    template: str
    """Name of the template that a claim is made of; empty if the pod names a claim."""
    needed: bool


def pod_claims(spec: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[PodClaim, ...]:
    """The claims of a pod, in the order of its spec."""
    made = {entry.get("name"): entry.get("resourceClaimName") for entry in status.get("resourceClaimStatuses") or ()}
    found = []
    for entry in spec.get("resourceClaims") or ():
        name, template = entry.get("name") or "", entry.get("resourceClaimTemplateName") or ""
        claim = made.get(name) if template else entry.get("resourceClaimName")
        needed = not template or name not in made or claim is not None
        found.append(PodClaim(name, claim or "", template, needed))
    return tuple(found)


def extended_claim(status: Mapping[str, Any]) -> str:
    """Name of the claim that the scheduler made for the pod's extended resources; empty if there is none."""
    found: str = (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName") or ""
    return found


def group_name(spec: Mapping[str, Any]) -> str:
    """Name of the PodGroup that the pod is in; empty if it is in none."""
    found: str = (spec.get("schedulingGroup") or {}).get("podGroupName") or ""
    return found


def is_reserved(status: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether a claim with this status is reserved for the pod, or for its PodGroup."""
    uid, group = pod["metadata"]["uid"], group_name(pod["spec"])
    for user in status.get("reservedFor") or ():
        if user.get("uid") == uid or (group and (user.get("resource"), user.get("name")) == ("podgroups", group)):
            return True
    return False
