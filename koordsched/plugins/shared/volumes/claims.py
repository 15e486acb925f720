"""The persistent volume claims that a pod uses.

Source: component-helpers `storage/volume/helpers.go`, `storage/ephemeral/ephemeral.go`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from koordsched.api.meta import controller_of
from koordsched.api.storage import PersistentVolume, PersistentVolumeClaim
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.queue.hints import ByKey

CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
"""Wins over spec.storageClassName."""

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"

ClaimKey = tuple[str, str]
"""(namespace, name)."""


class PodClaim(NamedTuple):
    """A claim that a pod uses; `ephemeral`: it was made for the pod and must belong to it."""

    name: str
    ephemeral: bool


def _claims_of_shape(shape: PodShape) -> tuple[PodClaim, ...]:
    """An ephemeral volume's claim is named after the pod, too: here it has the volume's name."""
    found: list[PodClaim] = []
    for volume in shape.spec.volumes:
        if volume.persistent_volume_claim is not None:
            found.append(PodClaim(volume.persistent_volume_claim.claim_name, False))
        elif volume.ephemeral is not None:
            found.append(PodClaim(volume.name, True))
    return tuple(dict.fromkeys(found))


def claims_of(pod: Pod) -> tuple[PodClaim, ...]:
    """The distinct claims of a pod, in the order of its volumes."""
    claims = pod.shape.compiled(_claims_of_shape, _claims_of_shape)
    if not any(ephemeral for _, ephemeral in claims):
        return claims
    return tuple(
        PodClaim(f"{pod.name}-{name}", True) if ephemeral else PodClaim(name, False) for name, ephemeral in claims
    )


def named_claims(shape: PodShape) -> tuple[str, ...]:
    """The names of the claims that the pod's spec names, ephemeral volumes left out."""
    return shape.compiled(named_claims, _named_claims)


def _named_claims(shape: PodShape) -> tuple[str, ...]:
    claims = shape.compiled(_claims_of_shape, _claims_of_shape)
    return tuple(name for name, ephemeral in claims if not ephemeral)


def uses_claims(shape: PodShape) -> bool:
    """Whether pods of this shape use any claim."""
    return bool(shape.compiled(_claims_of_shape, _claims_of_shape))


def belongs_to(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    """Whether the claim was made for an ephemeral volume of this very pod."""
    owner = controller_of(claim.metadata)
    return owner is not None and owner.uid == pod.uid


def not_owner(claim: PersistentVolumeClaim, pod: Pod) -> str:
    """The text for a claim that has the name of an ephemeral volume's but another owner."""
    return f"PVC {pod.namespace}/{claim.metadata.name} was not created for pod {pod.key} (pod is not owner)"


def claim_not_found(name: str) -> str:
    """The text for a claim that does not exist."""
    return f'persistentvolumeclaim "{name}" not found'


def class_of_claim(claim: PersistentVolumeClaim) -> str:
    """The name of the claim's storage class, "" for none."""
    annotated = claim.metadata.annotations.get(CLASS_ANNOTATION)
    return annotated if annotated is not None else claim.spec.storage_class_name or ""


def class_of_volume(volume: PersistentVolume) -> str:
    """The name of the volume's storage class, "" for none."""
    annotated = volume.metadata.annotations.get(CLASS_ANNOTATION)
    return annotated if annotated is not None else volume.spec.storage_class_name


def is_fully_bound(claim: PersistentVolumeClaim) -> bool:
    """Whether the claim is completely bound."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


# --- events of claims concern the pods that use them ------------------------------------------------


def _named_keys(pod: Pod) -> Iterable[ClaimKey]:
    return [(pod.namespace, name) for name in named_claims(pod.shape)]


def _all_keys(pod: Pod) -> Iterable[ClaimKey]:
    return [(pod.namespace, name) for name, _ in claims_of(pod)]


def _event_keys(old: Any, new: Any) -> Iterable[ClaimKey]:
    claim = new if new is not None else old
    return [(claim.metadata.namespace, claim.metadata.name)]


BY_NAMED_CLAIM: ByKey[Pod] = ByKey(_named_keys, _event_keys)
"""Hints about claims, for the pods whose spec names them."""

BY_CLAIM: ByKey[Pod] = ByKey(_all_keys, _event_keys)
"""The same, claims of ephemeral volumes included."""
