"""What decisions read of a Device (deviceshare spec 2.1, 3.1)."""

import pytest

from koordsched.api.decoding import convert
from koordsched.plugins.shared.devices.kinds import Device
from koordsched.plugins.shared.devices.reading import read
from koordsched.plugins.shared.devices.resources import ABSENT, GPU, NAMES, TYPES
from tests.plugins.deviceshare.machines import device, gpu
from tests.plugins.deviceshare.naive.books import NODE
from tests.plugins.deviceshare.naive.request import CORE, MEMORY

GIB = 1 << 30


def reading(*entries, **labels):
    return read(convert(device(*entries, labels=labels), Device))


@pytest.mark.parametrize(
    ("resources", "core", "memory", "problems"),
    [
        ({CORE: "100", MEMORY: "1Gi"}, 100, GIB, 0),
        ({MEMORY: "1Gi"}, ABSENT, GIB, 0),
        ({CORE: "lots", MEMORY: "1Gi"}, 0, GIB, 1),
        ({CORE: "-5", MEMORY: "1Gi"}, 0, GIB, 0),
        ({CORE: "lots"}, 0, ABSENT, 1),
    ],
)
def test_of_what_cannot_be_read_there_is_nothing(resources, core, memory, problems):
    found = reading({**gpu(0), "resources": resources})
    (place,) = found.equipment.devices[TYPES.index(GPU)]
    amounts = dict(zip(NAMES[GPU], place.amounts, strict=True))
    assert (amounts[CORE], amounts[MEMORY], len(found.problems)) == (core, memory, problems)


@pytest.mark.parametrize(("text", "planned"), [("true", True), ("false", False), ("", None), ("True", None)])
def test_whether_secondary_devices_are_well_planned_is_a_label(text, planned):
    found = reading(gpu(0), **{f"{NODE}secondary-device-well-planned": text})
    assert found.well_planned is planned
    assert found.equipment.well_planned is (planned is True)
