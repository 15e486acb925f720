"""The kinds of Kubernetes itself that the scheduler reads."""

from __future__ import annotations

from typing import TypeVar

from koordsched.api import apps, core, policy, resource, storage
from koordsched.api.core import PodSpec
from koordsched.api.meta import HasMetadata
from koordsched.cluster import events
from koordsched.cluster.events import EventResource
from koordsched.cluster.kinds import Kind, Need, every_pod, no_pod

T = TypeVar("T", bound=HasMetadata)


def _reads_storage(spec: PodSpec) -> bool:
    return any(volume.matters and volume.image is None for volume in spec.volumes)


def _selects_namespaces(spec: PodSpec) -> bool:
    affinity = spec.affinity
    for kind in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ():
        if kind is None:
            continue
        for term in (*kind.required, *(preference.pod_affinity_term for preference in kind.preferred)):
            selector = term.namespace_selector
            if selector is not None and (selector.match_labels or selector.match_expressions):
                return True
    return False


def _claims_devices(spec: PodSpec) -> bool:
    return bool(spec.resource_claims)


_EVERYTHING = Need((), every_pod, "nothing is scheduled")
_STORAGE = Need(
    ("VolumeBinding", "NodeVolumeLimits", "VolumeZone", "VolumeRestrictions"), _reads_storage, "pods with volumes wait"
)
_DEVICES = Need(("DynamicResources",), _claims_devices, "pods with resource claims wait")


def _of_storage(plural: str, kind: type[T], event: EventResource, *, namespaced: bool = False) -> Kind[T]:
    return Kind("storage.k8s.io/v1", plural, kind, event, namespaced=namespaced, need=_STORAGE)


# After a lost response, what was written is read back: hence `get`.
NODES = Kind("v1", "nodes", core.Node, events.NODE, namespaced=False, need=_EVERYTHING)
PODS = Kind(
    "v1",
    "pods",
    core.Pod,
    events.POD,
    verbs={"": ("get", "delete"), "binding": ("create",), "status": ("patch",)},
    need=_EVERYTHING,
)
NAMESPACES = Kind(
    "v1",
    "namespaces",
    core.Namespace,
    namespaced=False,
    need=Need(("InterPodAffinity",), _selects_namespaces, "pods whose affinity selects namespaces by labels wait"),
)
CONFIG_MAPS = Kind("v1", "configmaps", core.ConfigMap)
SERVICES = Kind("v1", "services", core.Service)
REPLICATION_CONTROLLERS = Kind("v1", "replicationcontrollers", core.ReplicationController)
REPLICA_SETS = Kind("apps/v1", "replicasets", apps.ReplicaSet)
STATEFUL_SETS = Kind("apps/v1", "statefulsets", apps.StatefulSet)
POD_DISRUPTION_BUDGETS = Kind(
    "policy/v1",
    "poddisruptionbudgets",
    policy.PodDisruptionBudget,
    need=Need((), no_pod, "no pod is preempted", holds_preemption=True),
)
DEVICE_CLASSES = Kind(
    "resource.k8s.io/v1",
    "deviceclasses",
    resource.DeviceClass,
    events.DEVICE_CLASS,
    namespaced=False,
    need=_DEVICES,
)
RESOURCE_SLICES = Kind(
    "resource.k8s.io/v1",
    "resourceslices",
    resource.ResourceSlice,
    events.RESOURCE_SLICE,
    namespaced=False,
    need=_DEVICES,
)
# Their events come from DynamicResources, which also knows what we wrote and the watch does not show yet.
# `binding` stands for the right to write what only schedulers write of the status.
RESOURCE_CLAIMS = Kind(
    "resource.k8s.io/v1",
    "resourceclaims",
    resource.ResourceClaim,
    verbs={
        "": ("get", "create", "delete", "patch", "update"),
        "status": ("patch", "update"),
        "binding": ("patch", "update"),
    },
    need=_DEVICES,
)
DEVICE_TAINT_RULES = Kind(
    "resource.k8s.io/v1beta2",
    "devicetaintrules",
    resource.DeviceTaintRule,
    namespaced=False,
    need=_DEVICES,
)
PERSISTENT_VOLUMES = Kind(
    "v1",
    "persistentvolumes",
    storage.PersistentVolume,
    events.PERSISTENT_VOLUME,
    namespaced=False,
    verbs={"": ("get", "patch")},
    need=_STORAGE,
)
PERSISTENT_VOLUME_CLAIMS = Kind(
    "v1",
    "persistentvolumeclaims",
    storage.PersistentVolumeClaim,
    events.PERSISTENT_VOLUME_CLAIM,
    verbs={"": ("get", "patch")},
    need=_STORAGE,
)
STORAGE_CLASSES = _of_storage("storageclasses", storage.StorageClass, events.STORAGE_CLASS)
CSI_NODES = _of_storage("csinodes", storage.CSINode, events.CSI_NODE)
CSI_DRIVERS = _of_storage("csidrivers", storage.CSIDriver, events.CSI_DRIVER)
CSI_STORAGE_CAPACITIES = _of_storage(
    "csistoragecapacities", storage.CSIStorageCapacity, events.CSI_STORAGE_CAPACITY, namespaced=True
)
VOLUME_ATTACHMENTS = _of_storage("volumeattachments", storage.VolumeAttachment, events.VOLUME_ATTACHMENT)
