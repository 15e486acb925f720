"""The volumes and claims of a pod on the node chosen for it: assumed at once, written before the pod is bound.

Source: upstream `volumebinding/binder.go` AssumePodVolumes, component-helpers `pv_helpers.go` GetBindVolumeToClaim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
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


class Assumption(msgspec.Struct):
    """What is still assumed for one pod, by name: volume -> the claim it refers to, (namespace, claim) -> node."""

    volumes: dict[str, ObjectReference] = {}
    claims: list[tuple[str, str, str]] = []


class VolumeAssumptions:
    """Makes assumptions and takes them back.

    A keeper of state for journals: by now there may be a volume for a claim that was to be provisioned, and the same
    pod would assume something else.
    """

    def __init__(self, volumes: Assumed[PersistentVolume], claims: Assumed[PersistentVolumeClaim]) -> None:
        self.state_type = dict[str, Assumption]
        self._volumes = volumes
        self._claims = claims
        self._made: dict[str, list[PersistentVolume | PersistentVolumeClaim]] = {}
        """By uid of the pod, until `undo` or `end`."""

    def make(self, uid: str, placing: Placing, row: int, node: str) -> AssumedVolumes:
        """Assumes what the pod of this uid needs on the node of a row."""
        made = AssumedVolumes()
        to_provision = [demand.claim for demand in placing.claims.chosen]
        for choice in placing.choices:
            claim, volume = choice.demand.claim, choice.on(row)
            if volume is None:
                to_provision.append(claim)
                continue
            bound = bound_to(volume, claim)
            if bound is not volume:
                self._assume(uid, bound)
            made.bindings.append(Binding(claim, volume, bound))
        for claim in to_provision:
            selected = selecting(claim, node)
            if selected is not claim:
                self._assume(uid, selected)
            made.provisions.append(Provision(claim, selected))
        return made

    def _assume(self, uid: str, thing: PersistentVolume | PersistentVolumeClaim) -> None:
        self._made.setdefault(uid, []).append(thing)
        if isinstance(thing, PersistentVolume):
            self._volumes.assume(thing)
        else:
            self._claims.assume(thing)

    def undo(self, uid: str) -> None:
        """Takes the assumptions for a pod back; what was written stays written, and the next attempt finds it.

        What was found assumed already stays: it was assumed for another pod that shares the claim.
        """
        for thing in self._made.pop(uid, ()):
            if isinstance(thing, PersistentVolume):
                self._volumes.restore(thing)
            else:
                self._claims.restore(thing)

    def end(self, uid: str) -> None:
        """All that was assumed for a pod has come about."""
        self._made.pop(uid, None)

    def recorded_state(self) -> dict[str, Assumption]:
        """By uid of the pod."""
        state: dict[str, Assumption] = {}
        for uid, things in self._made.items():
            kept = state[uid] = Assumption()
            for thing in things:
                meta = thing.metadata
                if isinstance(thing, PersistentVolume):
                    reference = thing.spec.claim_ref
                    if reference is not None and self._volumes.get("", meta.name) is thing:
                        kept.volumes[meta.name] = reference
                elif self._claims.get(meta.namespace, meta.name) is thing:
                    kept.claims.append((meta.namespace, meta.name, meta.annotations[SELECTED_NODE]))
        return state

    def restore_state(self, state: Mapping[str, Assumption]) -> None:
        """Assumes these in place of all that is assumed. What is not there any more is left out."""
        for uid in list(self._made):
            self.undo(uid)
        for uid, kept in state.items():
            for name, reference in kept.volumes.items():
                if (volume := self._volumes.get("", name)) is not None:
                    self._assume(uid, referring(volume, reference))
            for namespace, name, node in kept.claims:
                if (claim := self._claims.get(namespace, name)) is not None:
                    self._assume(uid, selecting(claim, node))


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
    return replace(referring(volume, complete), metadata=replace(volume.metadata, annotations=annotations))


def referring(volume: PersistentVolume, reference: ObjectReference) -> PersistentVolume:
    """The volume with this reference to its claim."""
    return replace(volume, spec=replace(volume.spec, claim_ref=reference))


def selecting(claim: PersistentVolumeClaim, node: str) -> PersistentVolumeClaim:
    """The claim with the node chosen for it; itself if it has that already."""
    annotations = claim.metadata.annotations
    if annotations.get(SELECTED_NODE) == node:
        return claim
    return replace(claim, metadata=replace(claim.metadata, annotations={**annotations, SELECTED_NODE: node}))
