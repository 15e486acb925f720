"""Which volume of which CSI driver a claim stands for.

Source: upstream `nodevolumelimits/csi.go`; default-plugins spec 3.11.
"""

from __future__ import annotations

from koordsched.api.storage import PersistentVolume, PersistentVolumeClaim
from koordsched.cluster.builtinkinds import PERSISTENT_VOLUMES, STORAGE_CLASSES
from koordsched.cluster.objects import Objects
from koordsched.plugins.shared.volumes.claims import class_of_claim
from koordsched.plugins.shared.volumes.intree import DRIVERS, VolumeId, volume_id


def identity_of(volume: PersistentVolume) -> VolumeId | None:
    """A persistent volume's driver and handle; None if no driver counts it."""
    csi = volume.spec.csi
    if csi is None:
        return volume_id(volume)
    return (csi.driver, csi.volume_handle) if csi.driver and csi.volume_handle else None


class Identities:
    """Looks claims up."""

    def __init__(self, objects: Objects) -> None:
        self.volumes = objects.of(PERSISTENT_VOLUMES)
        self.classes = objects.of(STORAGE_CLASSES)

    def of_claim(self, claim: PersistentVolumeClaim) -> VolumeId | None:
        """The claim's volume; until it has one, a made-up volume of its class's driver. None: not counted."""
        volume = self.volumes.get("", claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is not None:
            return identity_of(volume)
        storage_class = self.classes.get("", class_of_claim(claim))
        if storage_class is None or not storage_class.provisioner:
            return None
        driver = DRIVERS.get(storage_class.provisioner, storage_class.provisioner)
        return driver, f"unbound {claim.metadata.namespace}/{claim.metadata.name}"
