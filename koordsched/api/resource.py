"""Dynamic resource allocation, resource.k8s.io/v1: devices that drivers publish, classes of them, claims to them.

Sources: upstream's API types, and sections 2.1 to 2.3 of the dra spec, which have the limits.
"""

from __future__ import annotations

from typing import Any

import msgspec

from koordsched.api.core import NodeSelector, Quantities, Quantity
from koordsched.api.meta import Int64, ObjectMeta, Wire

# --- devices that drivers publish ----------------------------------------------------------------


class DeviceAttribute(Wire, frozen=True):
    """The value of an attribute: one of its members is set; lists are behind a feature gate."""

    int_value: Int64 | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string_value: str | None = msgspec.field(default=None, name="string")
    version_value: str | None = msgspec.field(default=None, name="version")
    ints: tuple[Int64, ...] = ()
    bools: tuple[bool, ...] = ()
    strings: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()


class CapacityRequestPolicyRange(Wire, frozen=True):
    """What may be consumed of a capacity: from `min` to `max`, in steps from `min` on."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Wire, frozen=True):
    """How much of a capacity a request consumes; `valid_values` ascend."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(Wire, frozen=True):
    """An amount that a device has."""

    value: Quantity = "0"
    request_policy: CapacityRequestPolicy | None = None


class Counter(Wire, frozen=True):
    """An amount that devices of a pool share, or that one of them takes of it."""

    value: Quantity = "0"


class CounterSet(Wire, frozen=True):
    """Counters that devices of the pool share, by name."""

    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(Wire, frozen=True):
    """What an allocated device takes of a counter set."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}


class DeviceTaint(Wire, frozen=True):
    """A taint of a device; effect is None, NoSchedule or NoExecute, and any other is as None."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeAllocatableResourceMapping(Wire, frozen=True):
    """What a device takes of a resource of its node: so much, or so many times what is consumed of that capacity."""

    capacity_key: str | None = None
    allocation_multiplier: Quantity | None = None


class Device(Wire, frozen=True):
    """A device. The node fields are used only with perDeviceNodeSelection of its slice."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None
    node_allocatable_resource_mappings: dict[str, NodeAllocatableResourceMapping] = {}


class ResourcePool(Wire, frozen=True):
    """The pool of a slice; slices of an older generation are not used any more."""

    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class ResourceSliceSpec(Wire, frozen=True):
    """Devices of a pool, and which nodes reach them (one of the node fields is set)."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: tuple[Device, ...] = ()
    per_device_node_selection: bool | None = None
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Wire, frozen=True):
    """A part of a pool of devices; published by a driver."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


# --- classes -------------------------------------------------------------------------------------


class CELDeviceSelector(Wire, frozen=True):
    """An expression about a device."""

    expression: str = ""


class DeviceSelector(Wire, frozen=True):
    """Selects devices; `cel` is the only kind there is."""

    cel: CELDeviceSelector | None = None


class OpaqueDeviceConfiguration(Wire, frozen=True):
    """Parameters for a driver, any JSON object; not read here."""

    driver: str = ""
    parameters: Any = None


class DeviceClassConfiguration(Wire, frozen=True):
    """Configuration of all devices of a class."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(Wire, frozen=True):
    """`extended_resource_name`: what pods may request instead of claiming a device, "" if there is nothing."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str = ""


class DeviceClass(Wire, frozen=True):
    """A class of devices that drivers offer."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


# --- taints of devices ---------------------------------------------------------------------------


class DeviceTaintSelector(Wire, frozen=True):
    """Selects devices by identity; a part that is None selects all."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Wire, frozen=True):
    """Without a selector the taint is on every device."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(Wire, frozen=True):
    """A taint on devices, from someone else than their driver (resource.k8s.io/v1beta2)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()


# --- claims --------------------------------------------------------------------------------------


class DeviceToleration(Wire, frozen=True):
    """Tolerates taints of devices; operator is Equal (or empty) or Exists."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class CapacityRequirements(Wire, frozen=True):
    """How much of each capacity a request needs."""

    requests: Quantities = {}


class ExactDeviceRequest(Wire, frozen=True):
    """A request for devices of one class; mode is ExactCount (or empty, which is the same) or All."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int64 = 0
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceSubRequest(Wire, frozen=True):
    """An alternative of a request."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int64 = 0
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceRequest(Wire, frozen=True):
    """A request of a claim: either `exactly`, or the first of `first_available` that can be had."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(Wire, frozen=True):
    """What devices of these requests (of all, if none is named) have in common, or do not."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(Wire, frozen=True):
    """Configuration of the devices of these requests, of all if none is named."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(Wire, frozen=True):
    """What is claimed."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(Wire, frozen=True):
    """What is claimed; it does not change."""

    devices: DeviceClaim = DeviceClaim()


class DeviceRequestAllocationResult(Wire, frozen=True):
    """A device for a request (`name`, or `name/subrequest`)."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: Quantities = {}


class DeviceAllocationConfiguration(Wire, frozen=True):
    """Configuration from a class or a claim (`source` is FromClass or FromClaim) for these requests."""

    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(Wire, frozen=True):
    """The devices, in the order of requests."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(Wire, frozen=True):
    """What a claim got; usable on all nodes without `node_selector`."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(Wire, frozen=True):
    """A user of the claim: a pod of its namespace."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class DeviceCondition(Wire, frozen=True):
    """A condition that a driver reports of an allocated device."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class AllocatedDeviceStatus(Wire, frozen=True):
    """What a driver reports of an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[DeviceCondition, ...] = ()


class ResourceClaimStatus(Wire, frozen=True):
    """What the claim got, and for which pods."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(Wire, frozen=True):
    """A claim to devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()
