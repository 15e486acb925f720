"""How many volumes of each CSI driver a node has, kept in step with pods, claims and attachments.

Per driver, `count[row]`: the distinct volumes that pods on the row use, and those attached to the node that none of
them uses; `limit[row]`: what the node's CSINode allows; `installed[row]`: whether it lists the driver. What a claim
stands for changes (it gets bound, its volume goes): then the rows where it is used are moved from one volume to the
other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

import numpy as np

from koordsched.api.core import Node
from koordsched.api.meta import controller_of
from koordsched.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment
from koordsched.cluster.builtinkinds import CSI_NODES, PERSISTENT_VOLUME_CLAIMS, VOLUME_ATTACHMENTS
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.cluster.state import ClusterState
from koordsched.plugins.nodevolumelimits.identity import Identities, identity_of
from koordsched.plugins.shared.volumes.claims import ClaimKey, claims_of, class_of_claim, uses_claims
from koordsched.plugins.shared.volumes.intree import VolumeId, volume_id

NO_LIMIT: Final = 1 << 40

K = TypeVar("K")
M = TypeVar("M")


class Driver:
    """The columns of one driver."""

    __slots__ = ("count", "installed", "limit")

    def __init__(self, table: NodeTable) -> None:
        self.count = table.column(np.int64)
        self.limit = table.column(np.int64, fill=NO_LIMIT)
        self.installed = table.column(np.bool_, fill=False)


class ClaimUse(NamedTuple):
    """A claim as pods use it; `owner` is the uid of the pod that it must have been made for, "" for none."""

    namespace: str
    name: str
    owner: str


def inline_volumes(shape: PodShape) -> tuple[VolumeId, ...]:
    """The inline volumes of a shape that count against a CSI driver, each once."""
    return shape.compiled(inline_volumes, _inline_volumes)


def _inline_volumes(shape: PodShape) -> tuple[VolumeId, ...]:
    found = (volume_id(volume) for volume in shape.spec.volumes)
    return tuple(dict.fromkeys(identity for identity in found if identity is not None))


def _uses_of(pod: Pod) -> list[ClaimUse]:
    return [ClaimUse(pod.namespace, name, pod.uid if ephemeral else "") for name, ephemeral in claims_of(pod)]


class _Claimed:
    """A claim in use: how many pods on which rows use it, and the volume it stands for at present."""

    __slots__ = ("claim", "rows", "volume")

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self.claim: PersistentVolumeClaim | None = None
        self.volume: VolumeId | None = None


class AttachedVolumes:
    """The counts; one per cluster."""

    facets = 0

    def __init__(self, cluster: ClusterState) -> None:
        self._table = cluster.table
        objects = cluster.objects
        self.identities = Identities(objects)
        self._claims = objects.of(PERSISTENT_VOLUME_CLAIMS)
        self._csi_nodes = objects.of(CSI_NODES)
        self._attachments = objects.of(VOLUME_ATTACHMENTS)
        self._drivers: dict[str, Driver] = {}
        self._used: dict[VolumeId, dict[int, int]] = {}
        """Volume -> row -> how many uses by pods."""
        self._attached: dict[str, dict[VolumeId, int]] = {}
        """Node -> volume -> how many attachments."""
        self._attachment: dict[str, tuple[str, VolumeId]] = {}
        """VolumeAttachment -> what it is counted as."""
        self._claimed: dict[ClaimUse, _Claimed] = {}
        self._by_claim: dict[ClaimKey, dict[ClaimUse, None]] = {}
        self._by_volume: dict[str, dict[ClaimUse, None]] = {}
        self._by_class: dict[str, dict[ClaimUse, None]] = {}
        self._attachments_of: dict[str, dict[str, None]] = {}
        """PersistentVolume -> names of its VolumeAttachments."""
        self._known = cluster.table.column(np.bool_, fill=False)
        cluster.table.on_node(self._node_changed)
        self._claims.subscribe(self._claim_changed)
        self.identities.volumes.subscribe(self._volume_changed)
        self.identities.classes.subscribe(self._class_changed)
        self._csi_nodes.subscribe(self._csi_node_changed)
        self._attachments.subscribe(self._attachment_changed)
        cluster.add_accountant(
            self, amendable=False, concerns=lambda shape: bool(inline_volumes(shape)) or uses_claims(shape)
        )

    # --- questions -------------------------------------------------------------------------------

    def driver(self, name: str) -> Driver | None:
        """The columns of a driver; None if no node has it or any of its volumes."""
        return self._drivers.get(name)

    def rows_using(self, volume: VolumeId) -> Mapping[int, int]:
        """The rows (keys) where a pod uses the volume."""
        return self._used.get(volume, {})

    # --- pods ------------------------------------------------------------------------------------

    def pod_added(self, row: int, pod: Pod) -> int:
        """Counts the pod's volumes on the row."""
        for volume in inline_volumes(pod.shape):
            self._use(volume, row, 1)
        if uses_claims(pod.shape):
            for use in _uses_of(pod):
                claimed = self._claimed.get(use)
                if claimed is None:
                    claimed = self._claimed[use] = _Claimed()
                    self._by_claim.setdefault(use[:2], {})[use] = None
                    self._resolve(use, claimed)
                claimed.rows[row] = claimed.rows.get(row, 0) + 1
                if claimed.volume is not None:
                    self._use(claimed.volume, row, 1)
        return 0

    def pod_removed(self, row: int, pod: Pod) -> int:
        """Takes them back."""
        for volume in inline_volumes(pod.shape):
            self._use(volume, row, -1)
        if uses_claims(pod.shape):
            for use in _uses_of(pod):
                claimed = self._claimed[use]
                if claimed.volume is not None:
                    self._use(claimed.volume, row, -1)
                claimed.rows[row] -= 1
                if not claimed.rows[row]:
                    del claimed.rows[row]
                    if not claimed.rows:
                        self._depend(use, claimed.claim, None)
                        _discard(self._by_claim, use[:2], use)
                        del self._claimed[use]
        return 0

    def _use(self, volume: VolumeId, row: int, by: int) -> None:
        changed = _count(self._used, volume, row, by)
        if changed and volume not in self._attached.get(self._table.names[row], ()):
            self._columns(volume[0]).count.data[row] += 1 if by > 0 else -1

    def _columns(self, name: str) -> Driver:
        found = self._drivers.get(name)
        if found is None:
            found = self._drivers[name] = Driver(self._table)
        return found

    # --- what claims stand for ---------------------------------------------------------------------

    def _resolve(self, use: ClaimUse, claimed: _Claimed) -> None:
        """Looks the claim up afresh, and moves the rows where it is used if it stands for another volume now."""
        claim = self._claims.get(use.namespace, use.name)
        if claim is not None and use.owner:
            owner = controller_of(claim.metadata)
            if owner is None or owner.uid != use.owner:
                claim = None
        self._depend(use, claimed.claim, claim)
        claimed.claim = claim
        volume = self.identities.of_claim(claim) if claim is not None else None
        if volume == claimed.volume:
            return
        for row, pods in claimed.rows.items():
            if claimed.volume is not None:
                self._use(claimed.volume, row, -pods)
            if volume is not None:
                self._use(volume, row, pods)
        claimed.volume = volume

    def _depend(self, use: ClaimUse, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        """Keeps track of the volumes and classes whose changes matter to the claim."""
        if old is not None:
            _discard(self._by_volume, old.spec.volume_name, use)
            _discard(self._by_class, class_of_claim(old), use)
        if new is not None:
            self._by_volume.setdefault(new.spec.volume_name, {})[use] = None
            self._by_class.setdefault(class_of_claim(new), {})[use] = None

    def _resolve_all(self, uses: Iterable[ClaimUse]) -> None:
        for use in list(uses):
            self._resolve(use, self._claimed[use])

    def _claim_changed(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        claim = new or old
        assert claim is not None, "a change has an object"
        self._resolve_all(self._by_claim.get((claim.metadata.namespace, claim.metadata.name), ()))

    def _class_changed(self, old: StorageClass | None, new: StorageClass | None) -> None:
        if old is None or new is None or old.provisioner != new.provisioner:
            changed = new or old
            assert changed is not None, "a change has an object"
            self._resolve_all(self._by_class.get(changed.metadata.name, ()))

    def _volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        before = identity_of(old) if old is not None else None
        after = identity_of(new) if new is not None else None
        if before == after and (old is None) == (new is None):
            return
        changed = new or old
        assert changed is not None, "a change has an object"
        name = changed.metadata.name
        self._resolve_all(self._by_volume.get(name, ()))
        for attachment in list(self._attachments_of.get(name, ())):
            self._count_attachment(attachment, self._attachments.get("", attachment))

    # --- nodes -----------------------------------------------------------------------------------

    def _node_changed(self, row: int, node: Node) -> None:
        if self._known.data[row]:
            return
        self._known.data[row] = True
        name = node.metadata.name
        self._store(row, self._csi_nodes.get("", name))
        for volume in self._attached.get(name, ()):
            self._columns(volume[0]).count.data[row] += 1

    def _csi_node_changed(self, old: CSINode | None, new: CSINode | None) -> None:
        changed = new or old
        assert changed is not None, "a change has an object"
        row = self._table.row_of.get(changed.metadata.name)
        if row is not None:
            self._store(row, new)

    def _store(self, row: int, csi_node: CSINode | None) -> None:
        limits = limits_of(csi_node)
        installed = {driver.name for driver in csi_node.spec.drivers} if csi_node is not None else set()
        for name in installed:
            self._columns(name)
        for name, driver in self._drivers.items():
            driver.limit.data[row] = limits.get(name, NO_LIMIT)
            driver.installed.data[row] = name in installed

    # --- attachments -----------------------------------------------------------------------------

    def _attachment_changed(self, old: VolumeAttachment | None, new: VolumeAttachment | None) -> None:
        for attachment, present in ((old, False), (new, True)):
            if attachment is not None and (source := attachment.spec.source.persistent_volume_name):
                if present:
                    self._attachments_of.setdefault(source, {})[attachment.metadata.name] = None
                else:
                    _discard(self._attachments_of, source, attachment.metadata.name)
        changed = new or old
        assert changed is not None, "a change has an object"
        self._count_attachment(changed.metadata.name, new)

    def _count_attachment(self, name: str, attachment: VolumeAttachment | None) -> None:
        before = self._attachment.pop(name, None)
        if before is not None:
            self._attach(*before, -1)
        source = attachment.spec.source.persistent_volume_name if attachment is not None else None
        volume = self.identities.volumes.get("", source) if source else None
        if attachment is None or volume is None or volume.spec.csi is None:
            return
        after = (attachment.spec.node_name, (attachment.spec.attacher, volume.spec.csi.volume_handle))
        self._attachment[name] = after
        self._attach(*after, 1)

    def _attach(self, node: str, volume: VolumeId, by: int) -> None:
        changed = _count(self._attached, node, volume, by)
        row = self._table.row_of.get(node)
        if changed and row is not None and row not in self._used.get(volume, ()):
            self._columns(volume[0]).count.data[row] += 1 if by > 0 else -1


def limits_of(csi_node: CSINode | None) -> dict[str, int]:
    """Driver -> how many volumes the node can take; a driver without a count has no limit."""
    drivers = csi_node.spec.drivers if csi_node is not None else ()
    return {
        driver.name: driver.allocatable.count
        for driver in drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


def _discard(index: dict[K, dict[M, None]], key: K, member: M) -> None:
    members = index[key]
    del members[member]
    if not members:
        del index[key]


def _count(index: dict[K, dict[M, int]], key: K, member: M, by: int) -> bool:
    """Adds to a count. Whether it came from zero or fell to it; zeros are left out."""
    members = index.setdefault(key, {})
    before = members.get(member, 0)
    if before + by:
        members[member] = before + by
        return not before
    del members[member]
    if not members:
        del index[key]
    return True
