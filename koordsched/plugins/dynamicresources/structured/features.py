"""The feature gates that change what is allocated (dra spec 2.5)."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Features:
    """Gates, with the defaults of 1.36."""

    prioritized_list: bool = True
    partitionable_devices: bool = True
    consumable_capacity: bool = True
    device_taints: bool = True
    binding_conditions: bool = True
    list_attributes: bool = False
    node_allocatable: bool = False

    @classmethod
    def enabled(cls, gates: Container[str]) -> Features:
        """What the gates that are on amount to. Binding conditions need the status of devices as well."""
        return cls(
            prioritized_list="DRAPrioritizedList" in gates,
            partitionable_devices="DRAPartitionableDevices" in gates,
            consumable_capacity="DRAConsumableCapacity" in gates,
            device_taints="DRADeviceTaints" in gates,
            binding_conditions="DRADeviceBindingConditions" in gates and "DRAResourceClaimDeviceStatus" in gates,
            list_attributes="DRAListTypeAttributes" in gates,
            node_allocatable="DRANodeAllocatableResources" in gates,
        )
