"""VolumeZone: a volume labelled with a zone or region is used there (default-plugins spec 3.11)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from koordsched.api.storage import PersistentVolume, PersistentVolumeClaim
from koordsched.cluster.builtinkinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from koordsched.cluster.changelog import RowArray
from koordsched.cluster.columns import ABSENT
from koordsched.cluster.events import (
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    STORAGE_CLASS,
    ActionType,
    ClusterEvent,
)
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.framework.dryruns import DryRunFilter, FilterDryRun, PodIndependent
from koordsched.framework.handle import Handle
from koordsched.framework.interface import CycleState, PreFilter, PreFilterResult
from koordsched.framework.status import SKIP, SUCCESS, Code, Codes, Status
from koordsched.plugins.shared.matching.lookup import MembershipTest
from koordsched.plugins.shared.matching.rows import Mask, refused
from koordsched.plugins.shared.volumes.claims import BY_NAMED_CLAIM, claim_not_found, class_of_claim, named_claims
from koordsched.queue.hints import HintRegistration, QueueingHint, Scope

REASON = "node(s) had no available volume zone"

_GENERAL_KEY = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Label key -> the key to look at where a node does not carry it."""

_SEPARATOR = "__"

Topology = tuple[str, tuple[str, ...]]
"""A label key and the values that the node may have."""


class VolumeZone(PreFilter, DryRunFilter):
    """Refuses nodes outside of the zones and regions of the pod's bound volumes; nodes without any pass."""

    name = "VolumeZone"

    def __init__(self, args: None, handle: Handle) -> None:
        """Takes no arguments."""
        objects = handle.cluster.objects
        self._claims = objects.of(PERSISTENT_VOLUME_CLAIMS)
        self._volumes = objects.of(PERSISTENT_VOLUMES)
        self._classes = objects.of(STORAGE_CLASSES)
        self._code = handle.reasons.intern(self.name, Code.UNRESOLVABLE, REASON)

    def skips_shape(self, shape: PodShape) -> bool:
        """Pods without claims."""
        return not named_claims(shape)

    def pre_filter(self, cycle: CycleState, pod: Pod) -> PreFilterResult | Status:
        """SKIP without labelled volumes; UNRESOLVABLE if a claim's volume is unknown."""
        names = named_claims(pod.shape)
        if not names:
            return SKIP
        for name in names:
            problem = self._problem_of(pod, name)
            if problem:
                return Status(Code.UNRESOLVABLE, (problem,))
        return SUCCESS if self._topologies(pod) else SKIP

    def _problem_of(self, pod: Pod, name: str) -> str:
        """Why it is unknown where a claim's volume is; "" if it is known, or if the claim waits to be bound."""
        if not name:
            return "PersistentVolumeClaim had no name"
        claim = self._claims.get(pod.namespace, name)
        if claim is None:
            return claim_not_found(name)
        if not claim.spec.volume_name:
            return self._why_unbound(claim)
        if self._volumes.get("", claim.spec.volume_name) is None:
            return f'persistentvolume "{claim.spec.volume_name}" not found'
        return ""

    def _topologies(self, pod: Pod) -> list[Topology]:
        """The zones and regions of the volumes that the pod's claims are bound to, each once."""
        found: dict[Topology, None] = {}
        for name in named_claims(pod.shape):
            claim = self._claims.get(pod.namespace, name)
            volume = self._volumes.get("", claim.spec.volume_name) if claim is not None else None
            if volume is not None:
                found.update(dict.fromkeys(topologies_of(volume)))
        return list(found)

    def _why_unbound(self, claim: PersistentVolumeClaim) -> str:
        """What is wrong with a claim not having a volume; "" if it waits for its first consumer."""
        name = class_of_claim(claim)
        if not name:
            return "PersistentVolumeClaim had no pv name and storageClass name"
        storage_class = self._classes.get("", name)
        if storage_class is None:
            return f'storageclass.storage.k8s.io "{name}" not found'
        if storage_class.volume_binding_mode is None:
            return f'VolumeBindingMode not set for StorageClass "{name}"'
        return "" if storage_class.volume_binding_mode == "WaitForFirstConsumer" else "PersistentVolume had no name"

    def filter(self, cycle: CycleState, pod: Pod, table: NodeTable, rows: RowArray) -> Codes | None:
        """A node with any of the labels must have one of the volume's values for each of the volume's."""
        constrained = np.zeros(len(rows), dtype=np.bool_)
        for key in _GENERAL_KEY:
            constrained |= table.label_column(key).ids.data[rows] != ABSENT
        outside = np.zeros(len(rows), dtype=np.bool_)
        for topology in self._topologies(pod):
            outside |= ~_inside(topology, table, rows)
        return refused(constrained & outside, self._code)

    def dry_run(self, cycle: CycleState, pod: Pod, coming: Iterable[Pod]) -> FilterDryRun:
        """Other pods do not matter."""
        return PodIndependent(self, cycle, pod)

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """Classes, nodes, the pod's claims, and volumes whose labels changed."""
        change = ActionType.ADD | ActionType.UPDATE
        return [
            HintRegistration(self.name, ClusterEvent(STORAGE_CLASS, ActionType.ADD), _after_class_added, Scope.SHAPE),
            HintRegistration(
                self.name, ClusterEvent(NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL), None, Scope.SHAPE
            ),
            HintRegistration(self.name, ClusterEvent(PERSISTENT_VOLUME_CLAIM, change), None, BY_NAMED_CLAIM),
            HintRegistration(self.name, ClusterEvent(PERSISTENT_VOLUME, change), _after_volume_change, Scope.SHAPE),
        ]


def topologies_of(volume: PersistentVolume) -> list[Topology]:
    """The zones and regions of a volume's labels; a label with an empty part says nothing."""
    found: list[Topology] = []
    for key in _GENERAL_KEY:
        text = volume.metadata.labels.get(key)
        if text is not None and all(values := tuple(value.strip() for value in text.split(_SEPARATOR))):
            found.append((key, tuple(sorted(set(values)))))
    return found


def _inside(topology: Topology, table: NodeTable, rows: RowArray) -> Mask:
    key, values = topology
    mask = MembershipTest(key, values).mask(table, rows)
    general = _GENERAL_KEY[key]
    if general != key:
        mask |= (table.label_column(key).ids.data[rows] == ABSENT) & MembershipTest(general, values).mask(table, rows)
    return mask


def _after_class_added(pod: Pod, old: Any, new: Any) -> QueueingHint:
    waits = new is not None and new.volume_binding_mode == "WaitForFirstConsumer"
    return QueueingHint.QUEUE if waits else QueueingHint.SKIP


def _after_volume_change(pod: Pod, old: Any, new: Any) -> QueueingHint:
    same = old is not None and new is not None and topologies_of(old) == topologies_of(new)
    return QueueingHint.SKIP if same else QueueingHint.QUEUE
