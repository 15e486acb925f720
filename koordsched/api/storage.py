"""Volumes: core/v1 claims and volumes, storage.k8s.io/v1 classes, drivers, nodes, capacities and attachments."""

from __future__ import annotations

import msgspec

from koordsched.api.core import NodeSelector, Quantities, Quantity
from koordsched.api.meta import Int32, LabelSelector, ObjectMeta, Wire
from koordsched.api.podvolumes import (
    AWSElasticBlockStore,
    AzureDisk,
    CinderVolume,
    GCEPersistentDisk,
    PortworxVolume,
    VsphereVolume,
)


class ObjectReference(Wire, frozen=True):
    """The claim that a volume is bound to."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""


class CSIPersistentVolume(Wire, frozen=True):
    """A volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(Wire, frozen=True):
    """Where a volume can be used."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Wire, frozen=True):
    """What a volume offers."""

    capacity: Quantities = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIPersistentVolume | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    cinder: CinderVolume | None = None
    vsphere_volume: VsphereVolume | None = None
    portworx_volume: PortworxVolume | None = None


class Phase(Wire, frozen=True):
    """A status that is a phase."""

    phase: str = ""


class PersistentVolume(Wire, frozen=True):
    """A persistent volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: Phase = Phase()


class VolumeResourceRequirements(Wire, frozen=True):
    """Requests of a volume: unlike a container's requirements it has no claims."""

    requests: Quantities = {}


class PersistentVolumeClaimSpec(Wire, frozen=True):
    """What a claim asks for."""

    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: VolumeResourceRequirements | None = None
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaim(Wire, frozen=True):
    """A persistent volume claim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: Phase = Phase()


class TopologySelectorLabelRequirement(Wire, frozen=True):
    """Values allowed for a topology label."""

    key: str
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Wire, frozen=True):
    """Requirements, ANDed."""

    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(Wire, frozen=True):
    """How volumes of this class come into being."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeNodeResources(Wire, frozen=True):
    """How many volumes of a driver a node can take."""

    count: Int32 | None = None


class CSINodeDriver(Wire, frozen=True):
    """A CSI driver on a node."""

    name: str
    node_id: str = msgspec.field(default="", name="nodeID")
    topology_keys: tuple[str, ...] = ()
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Wire, frozen=True):
    """The drivers on a node."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Wire, frozen=True):
    """The CSI side of a node, of the same name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(Wire, frozen=True):
    """What matters of a driver for placement."""

    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(Wire, frozen=True):
    """A CSI driver."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Wire, frozen=True):
    """How much a class can still provision where."""

    metadata: ObjectMeta = ObjectMeta()
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class VolumeAttachmentSource(Wire, frozen=True):
    """What is attached: a persistent volume; None if it is an inline volume."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Wire, frozen=True):
    """What is attached where."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(Wire, frozen=True):
    """A volume attachment."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
