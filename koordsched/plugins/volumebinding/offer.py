"""What volumes offer, and to which claims they may go.

Source: component-helpers `storage/volume/pv_helpers.go`.
"""

from __future__ import annotations

from typing import NamedTuple

from koordsched.api.quantity import QuantityError, value
from koordsched.api.storage import PersistentVolume, PersistentVolumeClaim


class Offer(NamedTuple):
    """The properties that many volumes have in common."""

    mode: str
    attributes_class: str
    access_modes: frozenset[str]

    def is_of_kind(self, claim: PersistentVolumeClaim) -> bool:
        """Whether volume mode and attributes class are the ones that the claim asks for."""
        spec = claim.spec
        return self.mode == (spec.volume_mode or "Filesystem") and self.attributes_class == (
            spec.volume_attributes_class_name or ""
        )

    def suits(self, claim: PersistentVolumeClaim) -> bool:
        """Whether the access modes are there, too."""
        return self.is_of_kind(claim) and self.access_modes.issuperset(claim.spec.access_modes)


def offer_of(volume: PersistentVolume) -> Offer:
    """The offer of a volume."""
    spec = volume.spec
    return Offer(
        spec.volume_mode or "Filesystem", spec.volume_attributes_class_name or "", frozenset(spec.access_modes)
    )


def capacity_of(volume: PersistentVolume) -> int | None:
    """Bytes of storage; None if the quantity cannot be read."""
    try:
        return value(volume.spec.capacity.get("storage", 0))
    except QuantityError:
        return None


def refers_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume is meant for this claim; without a uid it is for whichever claim has the name."""
    reference, meta = volume.spec.claim_ref, claim.metadata
    return (
        reference is not None
        and (reference.namespace, reference.name) == (meta.namespace, meta.name)
        and reference.uid in ("", meta.uid)
    )


def is_free(volume: PersistentVolume) -> bool:
    """Whether the volume is free."""
    return (
        volume.spec.claim_ref is None
        and volume.status.phase == "Available"
        and volume.metadata.deletion_timestamp is None
    )
