"""Inline disks that pods of one node cannot share, sparse: few pods have any.

Source: upstream `volumerestrictions/volume_restrictions.go`; default-plugins spec 3.11.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from koordsched.api.podvolumes import Volume
from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.cluster.state import ClusterState


class Disk(NamedTuple):
    """What two pods would share. A RBD image is one per monitor, because any common monitor makes it the same."""

    identity: tuple[str, ...]
    read_only: bool


def _disks_of_volume(volume: Volume) -> Iterable[Disk]:
    if (gce := volume.gce_persistent_disk) is not None:
        yield Disk(("gce", gce.pd_name), gce.read_only)
    if (ebs := volume.aws_elastic_block_store) is not None:
        yield Disk(("ebs", ebs.volume_id), False)  # cannot be shared, not even read-only
    if (iscsi := volume.iscsi) is not None:
        yield Disk(("iscsi", iscsi.iqn), iscsi.read_only)
    if (rbd := volume.rbd) is not None:
        for monitor in rbd.monitors:
            yield Disk(("rbd", monitor, rbd.pool, rbd.image), rbd.read_only)


def disks_of(shape: PodShape) -> tuple[Disk, ...]:
    """The inline disks of a shape, computed once."""
    return shape.compiled(disks_of, _disks_of)


def _disks_of(shape: PodShape) -> tuple[Disk, ...]:
    return tuple(dict.fromkeys(disk for volume in shape.spec.volumes for disk in _disks_of_volume(volume)))


def has_disks(shape: PodShape) -> bool:
    """Whether the shape has an inline volume of one of these kinds."""
    return bool(disks_of(shape)) or any(volume.rbd is not None for volume in shape.spec.volumes)


def conflict(wanted: PodShape, used: PodShape) -> bool:
    """Whether pods of the two shapes cannot be on one node."""
    return any(
        a.identity == b.identity and not (a.read_only and b.read_only) for a in disks_of(wanted) for b in disks_of(used)
    )


class DisksInUse:
    """Per disk the rows where it is mounted, writable and read-only apart; one per cluster."""

    facets = 0

    def __init__(self, cluster: ClusterState) -> None:
        self._rows: dict[Disk, dict[int, int]] = {}
        cluster.add_accountant(self, amendable=False, concerns=lambda shape: bool(disks_of(shape)))

    def pod_added(self, row: int, pod: Pod) -> int:
        """Counts the pod's disks on the row."""
        for disk in disks_of(pod.shape):
            rows = self._rows.setdefault(disk, {})
            rows[row] = rows.get(row, 0) + 1
        return 0

    def pod_removed(self, row: int, pod: Pod) -> int:
        """Takes them back."""
        for disk in disks_of(pod.shape):
            rows = self._rows[disk]
            rows[row] -= 1
            if not rows[row]:
                del rows[row]
                if not rows:
                    del self._rows[disk]
        return 0

    def conflicting(self, shape: PodShape) -> RowArray:
        """The rows where one of the shape's disks is in use in a way that excludes it."""
        found: set[int] = set()
        for identity, read_only in disks_of(shape):
            found.update(self._rows.get(Disk(identity, False), ()))
            if not read_only:
                found.update(self._rows.get(Disk(identity, True), ()))
        return np.fromiter(found, dtype=np.intp, count=len(found))
