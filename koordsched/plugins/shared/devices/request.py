"""What devices a pod asks for (deviceshare spec 2.2, 2.3, 3.2).

Source: koordinator `pkg/scheduler/plugins/deviceshare/{utils.go,devicehandler_default.go,devicehandler_gpu.go}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

import msgspec

from koordsched.api import gojson
from koordsched.api.core import Quantity
from koordsched.api.meta import LabelSelector
from koordsched.api.quantity import LIMIT, NANO, QuantityError, format_nano, nano_value
from koordsched.api.selectors import Selector, SelectorError, compile_selector
from koordsched.cluster.resources import effective_requests
from koordsched.cluster.shape import PodShape
from koordsched.plugins.shared.devices import kinds
from koordsched.plugins.shared.devices.resources import (
    FPGA,
    FPGA_RESOURCE,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    INDEX,
    NAMES,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    RDMA,
    RDMA_RESOURCE,
    TYPES,
)

WHOLE_GPU_NAMES = ("nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu")
KOORDINATOR_GPU = "koordinator.sh/gpu"
GPU_SHARED = "koordinator.sh/gpu.shared"

REQUESTED = {
    GPU: (*WHOLE_GPU_NAMES, KOORDINATOR_GPU, GPU_SHARED, *NAMES[GPU]),
    RDMA: NAMES[RDMA],
    FPGA: NAMES[FPGA],
}
"""The names of resources by which pods ask for devices of a type."""

_PERCENT = (KOORDINATOR_GPU, RDMA_RESOURCE, FPGA_RESOURCE)
"""Checked one by one, before combinations."""

_PLAIN = tuple(
    frozenset(names)
    for names in (
        (GPU_MEMORY,),
        (GPU_MEMORY_RATIO,),
        (GPU_CORE, GPU_MEMORY),
        (GPU_CORE, GPU_MEMORY_RATIO),
        (NPU_CORE, GPU_MEMORY_RATIO),
    )
)
_SHARED = tuple(
    frozenset((GPU_SHARED, *names))
    for names in ((GPU_MEMORY,), (GPU_MEMORY_RATIO,), (GPU_CORE, GPU_MEMORY), (GPU_CORE, GPU_MEMORY_RATIO))
)
_SHARED_NPU = tuple(frozenset((GPU_SHARED, NPU_CORE, NPU_CPU, GPU_MEMORY, *names)) for names in ((), (NPU_DVPP,)))
_DIVIDED = (GPU_CORE, NPU_CORE, NPU_CPU, NPU_DVPP)


class InvalidRequest(ValueError):
    """The request is invalid; the message is for the pod's owner."""


class InvalidAnnotation(InvalidRequest):
    """An annotation cannot be read."""


class TopologyScope(IntEnum):
    """How close to each other the GPUs of a pod must be."""

    ANY = 0
    NODE = 1
    NUMA_NODE = 2
    PCIE = 3
    DEVICE = 4


SCOPES = {
    "": TopologyScope.ANY,
    "Node": TopologyScope.NODE,
    "NUMANode": TopologyScope.NUMA_NODE,
    "PCIe": TopologyScope.PCIE,
    "Device": TopologyScope.DEVICE,
}


class Hint(NamedTuple):
    """The hint about one type of device. `selector`, `function_selector`: None where there is none."""

    selector: Selector | None = None
    function_selector: Selector | None = None
    apply_for_all: bool = False
    requests_as_count: bool = False
    exclusive_device: bool = False
    exclusive_pcie: bool = False


NO_HINT = Hint()


class GPUs(NamedTuple):
    """What is asked of GPUs beyond what each has to have.

    `shared`: parts of GPUs, not whole ones. `honours`: whole GPUs must be a partition; `restricted`: of the first score
    alone; `bandwidth`: of its ring bus, in nano-units. `scope`: how near each other they must be; `scoped`: the pod
    names a scope, perhaps one that is not known.
    """

    shared: bool
    honours: bool = False
    restricted: bool = False
    bandwidth: int | None = None
    scope: TopologyScope = TopologyScope.ANY
    scoped: bool = False


class TypeRequest(NamedTuple):
    """What is asked of one type. `amounts`: of each device, in the order of `NAMES`, 0 for what is not asked;
    `number`: of devices, 0 for all that there are."""

    amounts: tuple[int, ...]
    number: int


class DeviceRequest(NamedTuple):
    """What the pods of a shape ask for. `types`: in the order of TYPES. `joint`: the types to be taken near each other,
    the primary one first; `same_pcie`: on the same PCIe switches. `isolation`: what shared GPUs must be isolated by.
    """

    types: Mapping[str, TypeRequest]
    gpus: GPUs | None = None
    hints: Mapping[str, Hint] = {}
    joint: tuple[str, ...] = ()
    same_pcie: bool = False
    isolation: str = ""

    def hint(self, kind: str) -> Hint:
        """The hint about a type."""
        return self.hints.get(kind, NO_HINT)


NOTHING = DeviceRequest({})


class _Hint(msgspec.Struct, rename="camel"):
    selector: LabelSelector | None = None
    vf_selector: LabelSelector | None = None
    allocate_strategy: str = ""
    required_topology_scope: str = ""
    exclusive_policy: str = ""


class _JointAllocate(msgspec.Struct, rename="camel"):
    device_types: list[str] | None = None
    required_scope: str = ""


class _PartitionSpec(msgspec.Struct, rename="camel"):
    allocate_policy: str = ""
    ring_bus_bandwidth: Quantity | None = None


_hints = msgspec.json.Decoder(dict[str, _Hint | None] | None)
_joint_allocates = msgspec.json.Decoder(_JointAllocate | None)
_partition_specs = msgspec.json.Decoder(_PartitionSpec | None)


def request_of(shape: PodShape) -> DeviceRequest:
    """What the pods of a shape ask for; NOTHING if that is no device. Raises InvalidRequest."""
    try:
        asked = _asked(effective_requests(shape.spec))
    except QuantityError as error:
        raise InvalidRequest(str(error)) from error
    if not asked:
        return NOTHING
    hints, joint, same_pcie = _annotations(shape, asked)
    gpus = _gpus(shape, asked[GPU]) if GPU in asked else None
    scope = hints[GPU][1] if GPU in hints else ""
    if gpus is not None and scope:
        gpus = gpus._replace(scope=SCOPES.get(scope, TopologyScope.ANY), scoped=True)
    types = {
        kind: _of_gpu(asked[kind]) if kind == GPU else _of_type(kind, asked[kind], hints.get(kind, (NO_HINT, ""))[0])
        for kind in TYPES
        if kind in asked
    }
    isolation = shape.meta.labels.get(kinds.GPU_ISOLATION_PROVIDER, "")
    return DeviceRequest(
        types,
        gpus,
        {kind: hint for kind, (hint, _) in hints.items()},
        joint,
        same_pcie,
        isolation if gpus is not None and gpus.shared else "",
    )


def _asked(nano: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """By type, the resources asked for in whole units, checked and under the names that devices have."""
    exact = {name: amount for name, amount in nano.items() if amount > 0}
    found = {}
    for kind in TYPES:
        names = [name for name in REQUESTED[kind] if name in exact]
        if names:
            units = {name: -(-exact[name] // NANO) for name in names}
            for name in _PERCENT:
                if name in units and not _is_percent(units[name]):
                    raise InvalidRequest(f"invalid resource unit {name}: {format_nano(exact[name])}")
            found[kind] = _converted(kind, units)
    return found


def _is_percent(amount: int) -> bool:
    return amount <= 100 or amount % 100 == 0


def _converted(kind: str, units: dict[str, int]) -> dict[str, int]:
    """The resources of devices that these stand for. Raises InvalidRequest for combinations that are not allowed."""
    if kind != GPU:
        return units
    names = frozenset(units)
    if len(names) == 1 and names <= {*WHOLE_GPU_NAMES, KOORDINATOR_GPU}:
        name = next(iter(names))
        share = units[name] if name == KOORDINATOR_GPU else units[name] * 100
        return {GPU_CORE: share, GPU_MEMORY_RATIO: share}
    if names in _PLAIN:
        valid = all(_is_percent(units.get(name, 0)) for name in (GPU_CORE, GPU_MEMORY_RATIO))
    elif names in _SHARED:
        number = units[GPU_SHARED]
        shares = [units[name] for name in (GPU_CORE, GPU_MEMORY_RATIO) if name in units]
        valid = all(share % number == 0 and share // number <= 100 for share in shares)
    elif names in _SHARED_NPU:
        valid = units[GPU_SHARED] <= 1 and units.get(NPU_DVPP, 0) <= 100
    else:
        valid = False
    if not valid:
        raise InvalidRequest(f"invalid resource device requests: [{' '.join(sorted(names))}]")
    return units


def _number_of_gpus(units: dict[str, int]) -> int:
    ratio = units.get(GPU_MEMORY_RATIO, 0)
    return units.get(GPU_SHARED) or (ratio // 100 if ratio > 100 and ratio % 100 == 0 else 1)


def _of_gpu(units: dict[str, int]) -> TypeRequest:
    """What each GPU must have."""
    number = _number_of_gpus(units)
    amounts = [0] * len(NAMES[GPU])
    memory = GPU_MEMORY_RATIO if GPU_MEMORY_RATIO in units else GPU_MEMORY
    for name in (*_DIVIDED, memory):
        amounts[INDEX[name]] = min(units.get(name, 0) // number, LIMIT)  # no device has that much
    return TypeRequest(tuple(amounts), number)


def _gpus(shape: PodShape, units: dict[str, int]) -> GPUs:
    number = _number_of_gpus(units)
    ratio = units.get(GPU_MEMORY_RATIO)
    gpus = GPUs(GPU_MEMORY in units if ratio is None else ratio // number < 100)
    text = shape.meta.annotations.get(kinds.GPU_PARTITION_SPEC)
    if text is None:
        return gpus
    try:
        spec = _partition_specs.decode(text) or _PartitionSpec()
        bandwidth = None if spec.ring_bus_bandwidth is None else nano_value(spec.ring_bus_bandwidth)
    except (ValueError, RecursionError) as error:
        raise InvalidAnnotation(_message("GPUPartitionSpec", text, error)) from error
    return gpus._replace(honours=True, restricted=spec.allocate_policy == "Restricted", bandwidth=bandwidth)


def _of_type(kind: str, units: dict[str, int], hint: Hint) -> TypeRequest:
    """NICs and FPGAs have one resource."""
    (amount,) = units.values()
    if amount > 100 and amount % 100 == 0:
        return TypeRequest((100,), amount // 100)
    if hint.apply_for_all:
        return TypeRequest((amount,), 0)
    if hint.requests_as_count:
        return TypeRequest((100 if hint.exclusive_device else 1,), amount)
    return TypeRequest((amount,), 1)


def _annotations(
    shape: PodShape, asked: Mapping[str, object]
) -> tuple[dict[str, tuple[Hint, str]], tuple[str, ...], bool]:
    """(hint and topology scope by type, joint types, whether on the same PCIe switches). Raises InvalidRequest."""
    annotations = shape.meta.annotations
    hints: dict[str, tuple[Hint, str]] = {}
    try:
        decoded = _hints.decode(text := annotations.get(kinds.DEVICE_ALLOCATE_HINT, "null")) or {}
    except (ValueError, RecursionError) as error:
        raise InvalidAnnotation(_message("DeviceAllocateHint", text, error, "DeviceAllocateHints")) from error
    for kind, given in decoded.items():
        if given is not None:
            hints[kind] = _hint(kind, given), given.required_topology_scope
    try:
        joint = _joint_allocates.decode(text := annotations.get(kinds.DEVICE_JOINT_ALLOCATE, "null"))
    except (ValueError, RecursionError) as error:
        raise InvalidAnnotation(_message("DeviceJointAllocate", text, error)) from error
    joint = joint or _JointAllocate()
    types = dict.fromkeys(
        kind
        for kind in joint.device_types or ()
        if kind in asked and not hints.get(kind, (NO_HINT, ""))[0].apply_for_all
    )
    return hints, tuple(types), joint.required_scope == "SamePCIe"


def _message(name: str, text: str, error: Exception, go_type: str = "") -> str:
    return f"invalid {name} annotation, err: {gojson.message(text, error, f'extension.{go_type or name}')}"


def _hint(kind: str, given: _Hint) -> Hint:
    return Hint(
        _selector(kind, "Selector", given.selector),
        _selector(kind, "VFSelector", given.vf_selector),
        given.allocate_strategy == "ApplyForAll",
        given.allocate_strategy == "RequestsAsCount",
        given.exclusive_policy == "DeviceLevel",
        given.exclusive_policy == "PCIeLevel",
    )


def _selector(kind: str, name: str, given: LabelSelector | None) -> Selector | None:
    try:
        return None if given is None else compile_selector(given)
    except SelectorError as error:
        raise InvalidAnnotation(f"invalid {name} of DeviceHint, deviceType: {kind[:64]}, err: {error}") from error
