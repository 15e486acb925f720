"""What devices take of a node, as the API server writes it."""

from __future__ import annotations

import pytest

from koordsched.api.resource import NodeAllocatableResourceMapping
from koordsched.plugins.dynamicresources.structured.footprint import footprint


@pytest.mark.parametrize(
    ("amounts", "text"),
    [
        (["1Ki"], "1Ki"),
        (["0.5Ki"], "512"),
        (["0.5Ki", "0.5Ki"], "1Ki"),
        (["1024"], "1024"),
        (["1536Ki", "512Ki"], "2Mi"),
        (["500m", "500m"], "1"),
    ],
)
def test_the_amount_is_written_in_powers_of_1024_if_it_is_large_enough(amounts: list[str], text: str) -> None:
    devices = [({"memory": NodeAllocatableResourceMapping(allocation_multiplier=each)}, None) for each in amounts]
    assert [(taken.resource, taken.text) for taken in footprint(devices)] == [("memory", text)]
