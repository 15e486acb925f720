"""Device: what the agent of a node reports about its GPUs, NICs and FPGAs. Labels and annotations.

Only what decisions read is decoded (deviceshare spec 2.1, 2.2).
"""

from __future__ import annotations

import msgspec

from koordsched.api.core import Quantities
from koordsched.api.meta import ObjectMeta, Wire
from koordsched.cluster.kinds import Kind, Need, every_pod

# Annotations of pods.
DEVICE_ALLOCATED = "scheduling.koordinator.sh/device-allocated"
DEVICE_ALLOCATE_HINT = "scheduling.koordinator.sh/device-allocate-hint"
DEVICE_JOINT_ALLOCATE = "scheduling.koordinator.sh/device-joint-allocate"
GPU_PARTITION_SPEC = "scheduling.koordinator.sh/gpu-partition-spec"

# Annotation of a Device.
GPU_PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"

# Label of pods and nodes.
GPU_ISOLATION_PROVIDER = "koordinator.sh/gpu-isolation-provider"

# Labels of nodes and Devices.
GPU_VENDOR = "node.koordinator.sh/gpu-vendor"
GPU_MODEL = "node.koordinator.sh/gpu-model"
GPU_PARTITION_POLICY = "node.koordinator.sh/gpu-partition-policy"
SECONDARY_DEVICE_WELL_PLANNED = "node.koordinator.sh/secondary-device-well-planned"

HONOR = "Honor"
"""The partition policy by which pods get nothing but partitions."""


class DeviceTopology(Wire, frozen=True):
    """Where in the machine a device is. `node_id`: its NUMA node, -1 if that is not known."""

    node_id: int = msgspec.field(default=0, name="nodeID")
    pcie_id: str = msgspec.field(default="", name="pcieID")


class VirtualFunction(Wire, frozen=True):
    """A virtual function of a NIC. `minor` is informational: `bus_id` tells them apart."""

    minor: int = 0
    bus_id: str = msgspec.field(default="", name="busID")


class VirtualFunctionGroup(Wire, frozen=True):
    """Virtual functions with the same labels."""

    labels: dict[str, str] = {}
    vfs: tuple[VirtualFunction, ...] = ()


class DeviceInfo(Wire, frozen=True):
    """One device. `minor`: its number among those of its type."""

    type: str = ""
    id: str = ""
    minor: int | None = None
    health: bool = False
    resources: Quantities = {}
    labels: dict[str, str] = {}
    topology: DeviceTopology | None = None
    vf_groups: tuple[VirtualFunctionGroup, ...] = ()


class DeviceSpec(Wire, frozen=True):
    """The devices of a node."""

    devices: tuple[DeviceInfo, ...] = ()


class Device(Wire, frozen=True):
    """The report about the node of the same name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceSpec = DeviceSpec()


DEVICES = Kind(
    "scheduling.koordinator.sh/v1alpha1",
    "devices",
    Device,
    namespaced=False,
    need=Need(("DeviceShare",), every_pod, "pods of profiles with DeviceShare wait"),
)
