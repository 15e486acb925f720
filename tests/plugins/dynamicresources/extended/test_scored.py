"""What scoring reads of a resource for which a class of devices may stand."""

from types import SimpleNamespace

import numpy as np
import pytest

from koordsched.plugins.shared.extendedresources import ScoredDevices

CAPACITY, USED = np.array([4, 0, 0, 0]), np.array([1, 2, 2, 2])
DEVICES, IN_USE = np.array([9, 8, 1, 0]), np.array([7, 6, 1, 5])


def scored(*, classes=("example.com/gpu",), counted=True):
    """Four nodes: with a device plugin, with eight devices, with one, with none at all."""
    counts = SimpleNamespace(
        on_rows=lambda resource, rows: (DEVICES[rows], IN_USE[rows]),
        on_row=lambda resource, row: (int(DEVICES[row]), int(IN_USE[row])),
    )
    return ScoredDevices(SimpleNamespace(counts=counts if counted else None, classes=classes), "example.com/gpu")


@pytest.mark.parametrize(
    ("asked", "capacity", "used"),
    [
        (scored(), [4, 8, 1, 0], [1, 6, 1, 2]),
        (scored(classes=()), [4, 0, 0, 0], [1, 2, 2, 2]),
        (scored(counted=False), [4, 0, 0, 0], [1, 2, 2, 2]),
    ],
    ids=["devices", "without a class", "without counts"],
)
def test_devices_stand_in_where_a_node_has_none_of_the_resource(asked, capacity, used):
    found = asked.amounts(np.arange(4), CAPACITY, USED)
    assert [amounts.tolist() for amounts in found] == [capacity, used]
    one_by_one = [asked.amounts_on(row, int(CAPACITY[row]), int(USED[row])) for row in range(4)]
    assert one_by_one == list(zip(capacity, used, strict=True))
