"""The volumes and claims of a pod on the node chosen for it: assumed at once, written before the pod is bound.

Source: upstream `volumebinding/binder.go` AssumePodVolumes, component-helpers `pv_helpers.go` GetBindVolumeToClaim.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from koordsched.api.storage import ObjectReference, PersistentVolume, PersistentVolumeClaim
from koordsched.plugins.volumebinding.assumed import Assumed
from koordsched.plugins.volumebinding.claims import SELECTED_NODE
from koordsched.plugins.volumebinding.offer import refers_to
from koordsched.plugins.volumebinding.placing import Placing

BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"


@dataclass(slots=True)
class Binding:
    """A volume for a claim. `volume` is what we make of `before`; the same object if nothing has to be written."""

    claim: PersistentVolumeClaim
    before: PersistentVolume
    volume: PersistentVolume


@dataclass(slots=True)
class Provision:
    """A claim whose volume is made for the node. `claim` is what we make of `before`."""

    before: PersistentVolumeClaim
    claim: PersistentVolumeClaim


@dataclass(slots=True)
class AssumedVolumes:
    """All that is assumed for one pod."""

    bindings: list[Binding] = field(default_factory=list)
    provisions: list[Provision] = field(default_factory=list)


class VolumeAssumptions:
    """Makes assumptions and takes them back."""

    def __init__(self, volumes: Assumed[PersistentVolume], claims: Assumed[PersistentVolumeClaim]) -> None:
        self._volumes = volumes
        self._claims = claims

    def make(self, placing: Placing, row: int, node: str) -> AssumedVolumes:
        """Assumes what the pod needs on the node of a row."""
        made = AssumedVolumes()
        to_provision = [demand.claim for demand in placing.claims.chosen]
        for choice in placing.choices:
            claim, volume = choice.demand.claim, choice.on(row)
            if volume is None:
                to_provision.append(claim)
                continue
            bound = bound_to(volume, claim)
            if bound is not volume:
                self._volumes.assume(bound)
            made.bindings.append(Binding(claim, volume, bound))
        for claim in to_provision:
            selected = selecting(claim, node)
            if selected is not claim:
                self._claims.assume(selected)
            made.provisions.append(Provision(claim, selected))
        return made

    def undo(self, made: AssumedVolumes) -> None:
        """Takes the assumptions back; what was written stays written, and the next attempt finds it.

        What was found assumed already stays: it was assumed for another pod that shares the claim.
        """
        for binding in made.bindings:
            if binding.volume is not binding.before:
                self._volumes.restore(binding.volume)
        for provision in made.provisions:
            if provision.claim is not provision.before:
                self._claims.restore(provision.claim)


def bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """The volume with a complete reference to the claim; itself if it has that already."""
    meta, reference = claim.metadata, volume.spec.claim_ref
    was_meant = refers_to(volume, claim)
    if was_meant and reference is not None and reference.uid == meta.uid:
        return volume
    complete = ObjectReference(
        kind="PersistentVolumeClaim",
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        api_version="v1",
        resource_version=meta.resource_version,
    )
    annotations = volume.metadata.annotations
    if not was_meant and BOUND_BY_CONTROLLER not in annotations:
        annotations = {**annotations, BOUND_BY_CONTROLLER: "yes"}
    return replace(
        volume,
        metadata=replace(volume.metadata, annotations=annotations),
        spec=replace(volume.spec, claim_ref=complete),
    )


def selecting(claim: PersistentVolumeClaim, node: str) -> PersistentVolumeClaim:
    """The claim with the node chosen for it; itself if it has that already."""
    annotations = claim.metadata.annotations
    if annotations.get(SELECTED_NODE) == node:
        return claim
    return replace(claim, metadata=replace(claim.metadata, annotations={**annotations, SELECTED_NODE: node}))
