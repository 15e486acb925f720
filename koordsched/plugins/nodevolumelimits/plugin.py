"""The plugin: the pod's new volumes and those on the node must stay within the limit of each driver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from koordsched.cluster.builtinkinds import CSI_DRIVERS, PERSISTENT_VOLUME_CLAIMS
from koordsched.cluster.changelog import RowArray
from koordsched.cluster.events import (
    CSI_NODE,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    VOLUME_ATTACHMENT,
    ActionType,
    ClusterEvent,
)
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.framework.dryruns import DryRunFilter, FilterDryRun, PodIndependent, Tally
from koordsched.framework.handle import Handle
from koordsched.framework.interface import CycleState, PreFilter, PreFilterResult
from koordsched.framework.status import SKIP, SUCCESS, Code, Codes, Status
from koordsched.plugins.nodevolumelimits.attached import AttachedVolumes, inline_volumes, limits_of
from koordsched.plugins.shared.matching.rows import Mask, refused
from koordsched.plugins.shared.volumes.claims import (
    BY_CLAIM,
    belongs_to,
    claim_not_found,
    claims_of,
    named_claims,
    not_owner,
    uses_claims,
)
from koordsched.plugins.shared.volumes.intree import VolumeId, is_migratable
from koordsched.queue.hints import HintRegistration, QueueingHint, Scope

REASON = "node(s) exceed max volume count"
NOT_INSTALLED = " CSI driver is not installed on the node"

GATE = "VolumeLimitScaling"
"""Feature gate: drivers may ask that pods with their volumes stay away from nodes without them."""


def takes_part(shape: PodShape) -> bool:
    """Whether pods of this shape may use a volume that counts."""
    return shape.compiled(takes_part, _takes_part)


def _takes_part(shape: PodShape) -> bool:
    return uses_claims(shape) or any(is_migratable(volume) for volume in shape.spec.volumes)


class _LimitDryRun(PodIndependent):
    """A volume that stays attached when the last pod that uses it leaves counts twice, so that one more pod that leaves
    may make a difference.
    """

    def __init__(self, plugin: NodeVolumeLimits, cycle: CycleState, pod: Pod, *, one_by_one_in_doubt: Tally) -> None:
        super().__init__(plugin, cycle, pod, one_by_one_in_doubt=one_by_one_in_doubt)
        self._limits = plugin

    def in_doubt(self, table: NodeTable, rows: RowArray) -> Mask:
        """Where it refuses now, and where the pod's volumes are in use."""
        return super().in_doubt(table, rows) | self._limits.in_use(self._pod, table, rows)


_WITH_VOLUMES = Tally(takes_part, lambda pod: int(takes_part(pod.shape)))


class NodeVolumeLimits(PreFilter, DryRunFilter):
    """Refuses nodes that could not attach the pod's volumes.

    A volume that is attached to a node without a pod there using it counts once more if the incoming pod
    uses it: as upstream (default-plugins spec 6.8).
    """

    name = "NodeVolumeLimits"

    def __init__(self, args: None, handle: Handle) -> None:
        """Takes no arguments."""
        self._claims = handle.cluster.objects.of(PERSISTENT_VOLUME_CLAIMS)
        self._attached = handle.cluster.shared(AttachedVolumes)
        self._csi_drivers = handle.cluster.objects.of(CSI_DRIVERS) if GATE in handle.features else None
        self._reasons = handle.reasons
        self._code = handle.reasons.intern(self.name, Code.UNSCHEDULABLE, REASON)

    def skips_shape(self, shape: PodShape) -> bool:
        """Pods without volumes that count."""
        return not takes_part(shape)

    def pre_filter(self, cycle: CycleState, pod: Pod) -> PreFilterResult | Status:
        """SKIP without volumes that may count."""
        return SUCCESS if takes_part(pod.shape) else SKIP

    def filter(self, cycle: CycleState, pod: Pod, table: NodeTable, rows: RowArray) -> Codes | None:
        """Per driver: volumes on the node plus the pod's that no pod there uses yet."""
        volumes = self._volumes_of(pod)
        if isinstance(volumes, Status):
            code = self._reasons.intern(self.name, volumes.code, *volumes.reasons)
            return np.full(len(rows), code, dtype=np.int32)
        drivers = list(dict.fromkeys(driver for driver, _ in volumes))
        exceeded = np.zeros(len(rows), dtype=np.bool_)
        for driver in drivers:
            exceeded |= self._exceeded(driver, [volume for volume in volumes if volume[0] == driver], table, rows)
        codes = refused(exceeded, self._code)
        for driver in drivers if self._csi_drivers is not None else ():
            missing = self._missing(driver, rows)
            if missing is not None:
                code = self._reasons.intern(self.name, Code.UNSCHEDULABLE, f"{driver}{NOT_INSTALLED}")
                codes = np.where(missing, np.int32(code), 0 if codes is None else codes).astype(np.int32)
        return codes

    def _missing(self, name: str, rows: RowArray) -> Mask | None:
        """The rows where the driver is not installed, if it must be for pods to be placed there."""
        known = self._csi_drivers.get("", name) if self._csi_drivers is not None else None
        if known is None or not known.spec.prevent_pod_scheduling_if_missing:
            return None
        driver = self._attached.driver(name)
        return ~driver.installed.data[rows] if driver is not None else np.ones(len(rows), dtype=np.bool_)

    def _exceeded(self, name: str, volumes: list[VolumeId], table: NodeTable, rows: RowArray) -> Mask:
        driver = self._attached.driver(name)
        if driver is None:
            return np.zeros(len(rows), dtype=np.bool_)
        new = np.full(table.size, len(volumes), dtype=np.int64)
        for volume in volumes:
            using = self._attached.rows_using(volume)
            new[np.fromiter(using, dtype=np.intp, count=len(using))] -= 1
        added = new[rows]
        return (added > 0) & (driver.count.data[rows] + added > driver.limit.data[rows])

    def _volumes_of(self, pod: Pod) -> list[VolumeId] | Status:
        """The distinct volumes of the pod that count."""
        found = dict.fromkeys(inline_volumes(pod.shape))
        for name, ephemeral in claims_of(pod):
            claim = self._claims.get(pod.namespace, name)
            if claim is None:
                return Status(Code.UNRESOLVABLE, (f"looking up PVC {pod.namespace}/{name}: {claim_not_found(name)}",))
            if ephemeral and not belongs_to(claim, pod):
                return Status(Code.ERROR, (not_owner(claim, pod),))
            volume = self._attached.identities.of_claim(claim)
            if volume is not None:
                found[volume] = None
        return list(found)

    def dry_run(self, cycle: CycleState, pod: Pod, coming: Iterable[Pod]) -> FilterDryRun:
        """Pods with volumes that count are dry-run one by one; without them there are fewer, but for shared ones."""
        return _LimitDryRun(self, cycle, pod, one_by_one_in_doubt=_WITH_VOLUMES)

    def in_use(self, pod: Pod, table: NodeTable, rows: RowArray) -> Mask:
        """Where a pod uses one of this pod's volumes."""
        volumes = self._volumes_of(pod)
        used = np.full(table.size, isinstance(volumes, Status))
        for volume in () if isinstance(volumes, Status) else volumes:
            using = self._attached.rows_using(volume)
            used[np.fromiter(using, dtype=np.intp, count=len(using))] = True
        return used[rows]

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """New nodes, limits that are raised or removed, volumes that are detached, and claims that were missing.

        Upstream leaves out the first, since a node's CSINode follows it, and limits that go. But until that comes, and
        on nodes that have none, there is no limit.
        """
        return [
            HintRegistration(self.name, ClusterEvent(NODE, ActionType.ADD), None, Scope.SHAPE),
            HintRegistration(self.name, ClusterEvent(CSI_NODE, ActionType.ADD), None, Scope.SHAPE),
            HintRegistration(
                self.name,
                ClusterEvent(CSI_NODE, ActionType.UPDATE | ActionType.DELETE),
                _after_csi_node_changed,
                Scope.SHAPE,
            ),
            HintRegistration(self.name, ClusterEvent(POD, ActionType.DELETE), _after_pod_deleted, Scope.SHAPE),
            HintRegistration(self.name, ClusterEvent(PERSISTENT_VOLUME_CLAIM, ActionType.ADD), None, BY_CLAIM),
            HintRegistration(
                self.name, ClusterEvent(VOLUME_ATTACHMENT, ActionType.DELETE), _after_detached, Scope.SHAPE
            ),
        ]


def _after_csi_node_changed(pod: Pod, old: Any, new: Any) -> QueueingHint:
    before, after = limits_of(old), limits_of(new)
    grown = any(limit > before.get(driver, 0) for driver, limit in after.items())
    return QueueingHint.QUEUE if grown or before.keys() - after.keys() else QueueingHint.SKIP


def _after_pod_deleted(pod: Pod, old: Any, new: Any) -> QueueingHint:
    if old is None or not (old.node or old.nominated_node):
        return QueueingHint.SKIP
    return QueueingHint.QUEUE if takes_part(old.shape) else QueueingHint.SKIP


def _after_detached(pod: Pod, old: Any, new: Any) -> QueueingHint:
    freed = old is not None and any(driver == old.spec.attacher for driver, _ in inline_volumes(pod.shape))
    return QueueingHint.QUEUE if freed or named_claims(pod.shape) else QueueingHint.SKIP
