"""The volumes of pods, as far as placement depends on them."""

from __future__ import annotations

import msgspec

from koordsched.api.meta import Int32, Wire


class PersistentVolumeClaimSource(Wire, frozen=True):
    """A volume backed by a claim in the pod's namespace."""

    claim_name: str = ""
    read_only: bool = False


class GCEPersistentDisk(Wire, frozen=True):
    """Inline GCE disk."""

    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStore(Wire, frozen=True):
    """Inline EBS volume."""

    volume_id: str = msgspec.field(default="", name="volumeID")
    read_only: bool = False


class RBD(Wire, frozen=True):
    """Inline Ceph RBD image."""

    monitors: tuple[str, ...] = ()
    image: str = ""
    pool: str = "rbd"
    read_only: bool = False


class ISCSI(Wire, frozen=True):
    """Inline iSCSI volume."""

    target_portal: str = ""
    iqn: str = ""
    lun: Int32 = 0
    read_only: bool = False


class AzureDisk(Wire, frozen=True):
    """Inline Azure disk."""

    disk_name: str = ""
    disk_uri: str = msgspec.field(default="", name="diskURI")


class CinderVolume(Wire, frozen=True):
    """Inline Cinder volume."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class VsphereVolume(Wire, frozen=True):
    """Inline vSphere volume."""

    volume_path: str = ""


class PortworxVolume(Wire, frozen=True):
    """Inline Portworx volume."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class CSIVolumeSource(Wire, frozen=True):
    """Inline CSI volume."""

    driver: str = ""
    read_only: bool | None = None


class ImageVolumeSource(Wire, frozen=True):
    """A volume mounted from an image."""

    reference: str = ""


class EphemeralVolumeSource(Wire, frozen=True):
    """A generic ephemeral volume; its claim is named `<pod>-<volume>`."""


class Volume(Wire, frozen=True):
    """A pod volume, reduced to the sources that bear on placement."""

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    rbd: RBD | None = None
    iscsi: ISCSI | None = None
    azure_disk: AzureDisk | None = None
    cinder: CinderVolume | None = None
    vsphere_volume: VsphereVolume | None = None
    portworx_volume: PortworxVolume | None = None
    csi: CSIVolumeSource | None = None
    image: ImageVolumeSource | None = None

    @property
    def matters(self) -> bool:
        """Whether any source bears on placement (a ConfigMap or a service account token does not)."""
        return (
            self.persistent_volume_claim is not None
            or self.ephemeral is not None
            or self.image is not None
            or self.csi is not None
            or self.gce_persistent_disk is not None
            or self.aws_elastic_block_store is not None
            or self.rbd is not None
            or self.iscsi is not None
            or self.azure_disk is not None
            or self.cinder is not None
            or self.vsphere_volume is not None
            or self.portworx_volume is not None
        )
