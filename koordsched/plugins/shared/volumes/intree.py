"""Volumes of plugins that once were part of Kubernetes, under the names of the CSI drivers that took over.

Only the plugins whose volumes count against a CSI driver's limit are listed. Source: csi-translation-lib,
upstream `nodevolumelimits/utils.go`.
"""

from __future__ import annotations

from koordsched.api.podvolumes import GCEPersistentDisk, Volume
from koordsched.api.storage import PersistentVolume

VolumeId = tuple[str, str]
"""(CSI driver, volume handle)."""

DRIVERS = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
"""In-tree provisioner -> CSI driver."""

_ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")


def volume_id(source: Volume | PersistentVolume) -> VolumeId | None:
    """The CSI identity of an inline or persistent in-tree volume; None if its plugin is not listed above."""
    spec = source.spec if isinstance(source, PersistentVolume) else source
    if spec.aws_elastic_block_store is not None:
        return DRIVERS["kubernetes.io/aws-ebs"], _ebs_handle(spec.aws_elastic_block_store.volume_id)
    if spec.gce_persistent_disk is not None:
        labels = source.metadata.labels if isinstance(source, PersistentVolume) else {}
        return DRIVERS["kubernetes.io/gce-pd"], _gce_handle(spec.gce_persistent_disk, labels)
    if spec.azure_disk is not None:
        return DRIVERS["kubernetes.io/azure-disk"], spec.azure_disk.disk_uri
    if spec.cinder is not None:
        return DRIVERS["kubernetes.io/cinder"], spec.cinder.volume_id
    if spec.portworx_volume is not None:
        return DRIVERS["kubernetes.io/portworx-volume"], spec.portworx_volume.volume_id
    return None


def is_migratable(volume: Volume) -> bool:
    """Whether an inline volume is of a plugin that became a CSI driver (vSphere's has no limits)."""
    return volume.vsphere_volume is not None or volume_id(volume) is not None


def _ebs_handle(text: str) -> str:
    """`aws://zone/vol-x` or `vol-x` -> `vol-x`."""
    return text.rstrip("/").rpartition("/")[2] if text.startswith("aws://") else text


def _gce_handle(disk: GCEPersistentDisk, labels: dict[str, str]) -> str:
    zones = next((labels[key] for key in _ZONE_LABELS if labels.get(key)), "UNSPECIFIED").split("__")
    if len(zones) > 1:
        region = zones[0].rpartition("-")[0]
        return f"projects/UNSPECIFIED/regions/{region}/disks/{disk.pd_name}"
    return f"projects/UNSPECIFIED/zones/{zones[0]}/disks/{disk.pd_name}"
