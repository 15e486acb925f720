"""Columns: one fact about every node, as an array that grows with the cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class Column:
    """One fact per row. Read `data` afresh each time: it is replaced when the table grows.

    `data`: [capacity] or [capacity, width] of the given dtype; rows without a node hold `fill`.
    """

    __slots__ = ("data", "fill")

    def __init__(self, capacity: int, dtype: npt.DTypeLike, fill: Any = 0, width: int = 0) -> None:
        self.fill = fill
        shape = (capacity, width) if width else (capacity,)
        self.data: npt.NDArray[Any] = _filled(shape, fill, np.dtype(dtype))

    def grow(self, capacity: int) -> None:
        """Makes room for rows up to `capacity`."""
        larger = _filled((capacity, *self.data.shape[1:]), self.fill, self.data.dtype)
        if self.data.ndim == 1 and not self.fill and len(stored := np.flatnonzero(self.data)) < len(self.data) // 8:
            larger[stored] = self.data[stored]
        else:
            larger[: len(self.data)] = self.data
        self.data = larger

    def clear(self, row: int) -> None:
        """Puts a row back to `fill`, for a node that is gone."""
        self.data[row] = self.fill


def _filled(shape: tuple[int, ...], fill: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Zeros are not written, so that the pages of a column that few rows use take no memory."""
    return np.full(shape, fill, dtype=dtype) if fill else np.zeros(shape, dtype=dtype)


ABSENT = 0
"""Value number of a label that the node does not carry."""


class LabelColumn:
    """The values of one label key as small integers, ABSENT where the node has no such label.

    `ids`: int32[rows]; `values[id]` is the text, `values[ABSENT]` is None. Numbers are never reused, so a
    verdict table indexed by them only ever has to be extended.
    """

    __slots__ = ("ids", "index", "values")

    def __init__(self, capacity: int) -> None:
        self.ids = Column(capacity, np.int32, ABSENT)
        self.values: list[str | None] = [None]
        self.index: dict[str, int] = {}

    def set(self, row: int, value: str | None) -> None:
        """Stores the value of a row."""
        if value is None:
            self.ids.data[row] = ABSENT
            return
        number = self.index.get(value)
        if number is None:
            number = self.index[value] = len(self.values)
            self.values.append(value)
        self.ids.data[row] = number
