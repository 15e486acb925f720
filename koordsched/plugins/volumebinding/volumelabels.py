"""Which of many volumes have labels that a selector matches.

A claim's selector may have tens of thousands of requirements, and a pod hundreds of such claims. So no volume is asked
by itself: the labels that the volumes have are looked up, or those that the selector names, if they are fewer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from koordsched.api.selectors import Selector
from koordsched.plugins.shared.matching.rows import Mask
from koordsched.plugins.shared.podcounts.bits import BitIndex


class VolumeLabels:
    """The labels of the volumes in slots 0, 1, 2 ..., which do not change."""

    __slots__ = ("_by_label", "_count", "_values")

    def __init__(self) -> None:
        self._count = 0
        self._by_label: BitIndex[tuple[str, str]] = BitIndex()
        self._values: dict[str, dict[str, None]] = {}

    def append(self, labels: Mapping[str, str]) -> None:
        """Those of the next slot."""
        for key, value in labels.items():
            self._by_label.add((key, value), self._count)
            self._values.setdefault(key, {})[value] = None
        self._count += 1

    def matching(self, selector: Selector) -> Mask:
        """bool[slots]: whether the selector matches."""
        found = (1 << self._count) - 1
        known = self._values
        if any(key not in known for key in selector.required):
            found = 0
        for key, values in selector.required.items():
            if not found:
                break
            found &= self._having(key, values)
        forbidden = selector.forbidden
        for key in forbidden if len(forbidden) < len(known) else known:
            if found and key in known and key in forbidden:
                found &= ~self._having(key, forbidden[key])
        width = self._count // 8 + 1
        packed = np.frombuffer(found.to_bytes(width, "little"), dtype=np.uint8)
        return np.unpackbits(packed, count=self._count, bitorder="little").astype(np.bool_)

    def _having(self, key: str, values: Collection[str] | None) -> int:
        """The slots whose label of this key has one of these values, or any (None), as bits."""
        known = self._values[key]
        if values is None:
            values = known
        elif len(known) < len(values):
            values = [value for value in known if value in values]
        return self._by_label.of([(key, value) for value in values])
