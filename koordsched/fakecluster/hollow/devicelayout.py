"""The annotation `koordsched.io/devices` of a node, and `devices` of a node template: its GPUs, RDMA NICs and FPGAs.

{"model": "A100-SXM4-80GB", "groups": [
  {"type": "gpu", "count": 8, "memory": "80Gi", "numaNodes": [0, 1], "pcie": ["0", "1", "2", "3"]}]}
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import msgspec

from koordsched.api import quantity
from koordsched.fakecluster.hollow.annotationtext import decode_text
from koordsched.fakecluster.names import label_errors

DEVICES = "koordsched.io/devices"
GPU, RDMA, FPGA = "gpu", "rdma", "fpga"
GPU_CORE, GPU_MEMORY = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory"
GPU_MEMORY_RATIO = "koordinator.sh/gpu-memory-ratio"
VENDOR, MODEL = "node.koordinator.sh/gpu-vendor", "node.koordinator.sh/gpu-model"
DRIVER_VERSION = "node.koordinator.sh/gpu-driver-version"
PARTITION_POLICY = "node.koordinator.sh/gpu-partition-policy"

Quantities = dict[str, str | int | float]
Key = tuple[str, int]
"""Type and minor."""

_HIGHEST_MINOR = 63
"""Koordinator's scheduler does not tell minors above apart."""
_MOST_FUNCTIONS = 254
"""Of a PCI device with a bus of its own, besides the physical one; the second is left out, as vendors do."""
_HIGHEST_NUMA_NODE = 127
_LONGEST_TEXT = 65536
_FIRST_BUS = {GPU: 0x10, RDMA: 0x50, FPGA: 0x90}


class DeviceGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """Identical devices. Raises ValueError for impossible values."""

    type: Literal["gpu", "rdma", "fpga"]
    """gpu for all accelerators but FPGAs."""
    count: int = 1
    first_minor: int = 0
    """The devices have this number and those that follow."""
    memory: str = ""
    """Of each GPU."""
    resources: Quantities = {}
    """Of each device; 100 % of all there is unless stated."""
    labels: dict[str, str] = {}
    numa_nodes: list[int] = []
    """NUMA nodes over which the PCIe switches are spread, in order; -1: not known."""
    pcie: list[str] = []
    """PCIe switches over which the devices are spread, in order. Without them no topology is reported."""
    virtual_functions: int = 0
    """Of each NIC."""

    def __post_init__(self) -> None:
        if self.count < 1 or self.first_minor < 0:
            raise ValueError("count must be at least 1, firstMinor at least 0")
        if self.first_minor + self.count - 1 > _HIGHEST_MINOR:
            last = self.first_minor + self.count - 1
            raise ValueError(f"{self.type} {last}: there can be no minors above {_HIGHEST_MINOR}")
        if (self.type == GPU and not self.resources) != bool(self.memory):
            raise ValueError("memory is needed of GPUs that state no resources, and of nothing else")
        if self.virtual_functions and self.type != RDMA:
            raise ValueError("virtualFunctions: only devices of type rdma have them")
        if not 0 <= self.virtual_functions <= _MOST_FUNCTIONS:
            raise ValueError(f"virtualFunctions must be 0 to {_MOST_FUNCTIONS}")
        self._check_places()
        for name, amount in self.amounts.items():
            _check_quantity(name, amount)
        _check_labels(self.labels)

    @property
    def amounts(self) -> Quantities:
        """What each device has, by resource."""
        if self.resources:
            return self.resources
        if self.type == GPU:
            return {GPU_CORE: "100", GPU_MEMORY: self.memory, GPU_MEMORY_RATIO: "100"}
        return {f"koordinator.sh/{self.type}": "100"}

    def place(self, index: int) -> tuple[int, str] | None:
        """NUMA node and PCIe switch of a device of the group; None if they are not stated."""
        if not self.pcie:
            return None
        switch = index * len(self.pcie) // self.count
        return self.numa_nodes[switch * len(self.numa_nodes) // len(self.pcie)], self.pcie[switch]

    def _check_places(self) -> None:
        if bool(self.numa_nodes) != bool(self.pcie):
            raise ValueError("numaNodes and pcie go together")
        if not len(self.numa_nodes) <= len(self.pcie) <= self.count:
            numbers = f"{self.count} devices, {len(self.pcie)} pcie, {len(self.numa_nodes)} numaNodes"
            raise ValueError(f"devices are spread over PCIe switches, these over NUMA nodes: {numbers} are too few")
        if any(not -1 <= node <= _HIGHEST_NUMA_NODE for node in self.numa_nodes):
            raise ValueError(f"numaNodes must be -1 to {_HIGHEST_NUMA_NODE}")
        if "" in self.pcie or len(set(self.pcie)) < len(self.pcie):
            raise ValueError("pcie: names must not be empty or come twice")


class Partitions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """Identical partitions of this many GPUs."""

    size: int
    minors: list[list[int]] = []
    """The GPUs of each; unless stated, GPUs of consecutive minors, each in one partition."""
    gpu_link_type: str = "NVLink"
    ring_bus_bandwidth: str = ""
    allocation_score: int = 1

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError("size must be at least 1")
        if self.ring_bus_bandwidth:
            _check_quantity("ringBusBandwidth", self.ring_bus_bandwidth)

    def members(self, gpus: list[int]) -> list[list[int]]:
        """The GPUs of each, of those of a node. Raises ValueError if there is no such GPU."""
        chosen = self.minors or [gpus[i : i + self.size] for i in range(0, len(gpus) - self.size + 1, self.size)]
        if not chosen:
            raise ValueError(f"partitions: {len(gpus)} GPUs are too few for partitions of {self.size}")
        for minors in chosen:
            if len(minors) != self.size or len(set(minors)) != self.size:
                raise ValueError(f"partitions: {minors} are not {self.size} GPUs")
            unknown = sorted(set(minors).difference(gpus))
            if unknown:
                raise ValueError(f"partitions: there is no gpu {unknown[0]}")
        return chosen


class Device(NamedTuple):
    """One device of a node."""

    type: str
    minor: int
    group: DeviceGroup
    place: tuple[int, str] | None
    """NUMA node and PCIe switch."""

    @property
    def bus_id(self) -> str:
        """Its PCI address; each device has a bus of its own."""
        return self._function(0)

    @property
    def virtual_functions(self) -> list[str]:
        """Their PCI addresses."""
        return [self._function(number + 2) for number in range(self.group.virtual_functions)]

    def _function(self, number: int) -> str:
        return f"0000:{_FIRST_BUS[self.type] + self.minor:02x}:{number // 8:02x}.{number % 8}"


class DeviceLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """All devices of a node. Raises ValueError for impossible values."""

    groups: list[DeviceGroup]
    vendor: str = "nvidia"
    """Of the GPUs; likewise the following."""
    model: str = ""
    driver_version: str = ""
    partition_policy: Literal["Honor", "Prefer"] = "Prefer"
    """Reported with partitions."""
    partitions: list[Partitions] = []
    labels: dict[str, str] = {}
    """Further ones of the Device."""

    def __post_init__(self) -> None:
        _check_labels(self.all_labels)
        seen: set[Key] = set()
        places: dict[str, int] = {}
        for device in self.devices():
            key = device.type, device.minor
            if key in seen:
                raise ValueError(f"{device.type} {device.minor} is in more than one group")
            seen.add(key)
            if device.place is not None and places.setdefault(device.place[1], device.place[0]) != device.place[0]:
                numbers = f"{places[device.place[1]]} and {device.place[0]}"
                raise ValueError(f"PCIe switch {device.place[1]!r} is on the NUMA nodes {numbers}")
        gpus = sorted(minor for kind, minor in seen if kind == GPU)
        for partitions in self.partitions:
            partitions.members(gpus)

    @property
    def all_labels(self) -> dict[str, str]:
        """Of the Device."""
        stated = {VENDOR: self.vendor, MODEL: self.model, DRIVER_VERSION: self.driver_version}
        of_gpus = {key: value for key, value in stated.items() if value}
        if self.partitions:
            of_gpus[PARTITION_POLICY] = self.partition_policy
        return {**(of_gpus if any(group.type == GPU for group in self.groups) else {}), **self.labels}

    def devices(self) -> Iterator[Device]:
        """Every device, group by group."""
        for group in self.groups:
            for index in range(group.count):
                yield Device(group.type, group.first_minor + index, group, group.place(index))


class Machine(NamedTuple):
    """A layout, taken apart."""

    layout: DeviceLayout
    devices: dict[Key, Device]
    """By type and minor, in this order."""

    @property
    def gpus(self) -> list[int]:
        """The minors of the GPUs, ascending."""
        return [minor for kind, minor in self.devices if kind == GPU]


@lru_cache(maxsize=64)
def read_devices(text: str) -> Machine:
    """Decodes the annotation. Raises ValueError."""
    layout = decode_text(text, DeviceLayout, _LONGEST_TEXT)
    return Machine(layout, {(device.type, device.minor): device for device in sorted(layout.devices(), key=_key)})


def _key(device: Device) -> Key:
    return device.type, device.minor


def _check_labels(labels: dict[str, str]) -> None:
    for wrong in label_errors(labels, "labels"):
        raise ValueError(str(wrong))


def _check_quantity(name: str, amount: Any) -> None:
    try:
        if quantity.parse(amount) < 0:
            raise ValueError(f"{name}: {amount!r} must not be negative")
    except quantity.QuantityError as error:
        raise ValueError(f"{name}: {error}") from None
