"""What feature gates amount to (dra spec 2.5)."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from koordsched.plugins.dynamicresources.structured import Features


@pytest.mark.parametrize(
    ("gates", "features"),
    [
        ((), set()),
        (("DRAPrioritizedList",), {"prioritized_list"}),
        (("DRAPartitionableDevices",), {"partitionable_devices"}),
        (("DRAConsumableCapacity",), {"consumable_capacity"}),
        (("DRADeviceTaints",), {"device_taints"}),
        (("DRADeviceBindingConditions",), set()),
        (("DRAResourceClaimDeviceStatus",), set()),
        (("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"), {"binding_conditions"}),
        (("DRAListTypeAttributes",), {"list_attributes"}),
        (("DRANodeAllocatableResources",), {"node_allocatable"}),
    ],
)
def test_a_gate_enables_its_feature_alone(gates: tuple[str, ...], features: set[str]) -> None:
    found = asdict(Features.enabled(gates))
    assert {name for name, enabled in found.items() if enabled} == features
