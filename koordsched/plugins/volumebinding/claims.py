"""A pod's claims, sorted by what has to be done for them.

Source: upstream `volumebinding/{volume_binding,binder}.go`; default-plugins spec 3.11.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from koordsched.api.quantity import QuantityError, value
from koordsched.api.selectors import Selector, SelectorError, compile_selector
from koordsched.api.storage import PersistentVolumeClaim, StorageClass
from koordsched.cluster.objects import Store
from koordsched.cluster.pod import Pod
from koordsched.framework.status import SKIP, Code, Status
from koordsched.plugins.shared.volumes.claims import (
    belongs_to,
    claim_not_found,
    claims_of,
    class_of_claim,
    is_fully_bound,
    not_owner,
    uses_claims,
)
from koordsched.plugins.volumebinding.assumed import Assumed

UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"

SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation of a claim: the node that its volume is to be provisioned for."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A claim that waits for its first consumer, and what it asks of a volume. `size` in bytes."""

    claim: PersistentVolumeClaim
    class_name: str
    size: int
    selector: Selector | None

    @property
    def selected_node(self) -> str | None:
        """The node chosen for it already."""
        return self.claim.metadata.annotations.get(SELECTED_NODE)


@dataclass(frozen=True, slots=True)
class Claims:
    """`bound`: have their volume. `chosen`: a node was chosen for them before. `open`: the others, smallest first."""

    bound: list[PersistentVolumeClaim] = field(default_factory=list)
    chosen: list[Demand] = field(default_factory=list)
    open: list[Demand] = field(default_factory=list)

    @property
    def all_bound(self) -> bool:
        """Whether nothing is left to do."""
        return not self.chosen and not self.open


class ClaimReader:
    """Looks the claims of pods up."""

    def __init__(self, claims: Assumed[PersistentVolumeClaim], classes: Store[StorageClass]) -> None:
        self._claims = claims
        self._classes = classes

    def read(self, pod: Pod) -> Claims | Status:
        """The claims sorted, or why the pod cannot be placed at all; SKIP if it has none."""
        if not uses_claims(pod.shape):
            return SKIP
        for name, ephemeral in claims_of(pod):
            problem = self._problem_of(pod, name, ephemeral)
            if problem:
                return Status(Code.UNRESOLVABLE, (problem,))
        found = Claims()
        immediate = False
        for name, _ in claims_of(pod):
            claim = self._claims.get(pod.namespace, name)
            assert claim is not None, "existence was checked above"
            if is_fully_bound(claim):
                found.bound.append(claim)
                continue
            waits = self._waits_for_consumer(claim)
            if isinstance(waits, Status):
                return waits
            if not waits or claim.spec.volume_name:
                immediate = True  # a claim bound in advance, but not completely, is for the binder to finish
                continue
            try:
                demand = _demand_of(claim)
            except (QuantityError, SelectorError) as error:
                return Status(Code.ERROR, (f'persistentvolumeclaim "{name}": {error}',))
            (found.open if demand.selected_node is None else found.chosen).append(demand)
        if immediate:
            return Status(Code.UNRESOLVABLE, (UNBOUND_IMMEDIATE,))
        found.open.sort(key=lambda demand: demand.size)
        return found

    def _problem_of(self, pod: Pod, name: str, ephemeral: bool) -> str:
        """What makes a claim unusable as it is; "" if nothing does. What we assume of it does not matter here."""
        claim = self._claims.store.get(pod.namespace, name)
        if claim is None:
            if ephemeral:
                return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
            return claim_not_found(name)
        if claim.status.phase == "Lost":
            return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
        if claim.metadata.deletion_timestamp is not None:
            return f'persistentvolumeclaim "{name}" is being deleted'
        if ephemeral and not belongs_to(claim, pod):
            return not_owner(claim, pod)
        return ""

    def _waits_for_consumer(self, claim: PersistentVolumeClaim) -> bool | Status:
        """Whether the scheduler chooses the volume; a claim without an existing class counts as immediate."""
        name = class_of_claim(claim)
        storage_class = self._classes.get("", name) if name else None
        if storage_class is None:
            return False
        if storage_class.volume_binding_mode is None:
            return Status(Code.ERROR, (f'VolumeBindingMode not set for StorageClass "{name}"',))
        return storage_class.volume_binding_mode == "WaitForFirstConsumer"


def _demand_of(claim: PersistentVolumeClaim) -> Demand:
    requests = claim.spec.resources.requests if claim.spec.resources is not None else {}
    selector = compile_selector(claim.spec.selector) if claim.spec.selector is not None else None
    return Demand(claim, class_of_claim(claim), value(requests.get("storage", 0)), selector)
