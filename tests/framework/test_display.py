"""Amounts as people read them."""

from __future__ import annotations

import pytest

from koordsched.framework.display import amount_text


@pytest.mark.parametrize(
    ("resource", "quantity", "text"),
    [
        ("cpu", "0", "0"),
        ("cpu", "40m", "40m"),
        ("cpu", "1010400m", "1010.4"),
        ("cpu", "333333m", "333.33"),
        ("cpu", "100", "100"),
        ("memory", "2000Gi", "2000Gi"),
        ("memory", "5368709121", "5Gi"),
        ("memory", "1610612737", "1.5Gi"),
        ("memory", "1000", "1000"),
        ("memory", "100k", "97.66Ki"),
        ("hugepages-2Mi", "4194304", "4Mi"),
        ("kubernetes.io/batch-memory", "1610612737", "1.5Gi"),
        ("kubernetes.io/batch-cpu", "5k", "5k"),
        ("pods", "1k", "1k"),
    ],
)
def test_amounts(resource: str, quantity: str, text: str) -> None:
    assert amount_text(resource, quantity) == text
