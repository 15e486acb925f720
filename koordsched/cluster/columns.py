"""Columns: one fact about every node, as an array that grows with the cluster."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T", bound=Hashable)


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

    def widen(self, width: int) -> None:
        """Makes room for this many numbers per row, filled with `fill`; a wider column stays as it is.

        Not in a what-if, which holds on to `data`. Raises ValueError for a column of one number per row.
        """
        if self.data.ndim != 2:
            raise ValueError("a column of one number per row")
        rows, before = self.data.shape
        if width > before:
            wider = _filled((rows, width), self.fill, self.data.dtype)
            wider[:, :before] = self.data
            self.data = wider

    def clear(self, row: int) -> None:
        """Puts a row back to `fill`, for a node that is gone."""
        self.data[row] = self.fill


def _filled(shape: tuple[int, ...], fill: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Zeros are not written, so that the pages of a column that few rows use take no memory."""
    return np.full(shape, fill, dtype=dtype) if fill else np.zeros(shape, dtype=dtype)


ABSENT = 0
"""Number of the value of rows that have none: a label that the node does not carry, no taints."""

_CHANGES_KEPT = 1024


class ValueColumn(Generic[T]):
    """One value per row out of an unlimited number, as small integers that are reused.

    `ids`: int32[rows]; `values[id]` is the value, `index` the opposite; `values[ABSENT]` is what rows without a node
    have. A number stands for one value as long as any row has it. Then it is free, stands for what ABSENT stands for,
    and may be given to another value: clusters that replace their nodes all day have new host names all day. So code
    that keeps what it derived from a number calls `changed_since`; `serial` grows with every change of `values`. The
    numbers that rows have change only together with what the rows have.
    """

    __slots__ = ("_changed", "_free", "_uses", "ids", "index", "serial", "values")

    def __init__(self, capacity: int, absent: T) -> None:
        self.ids = Column(capacity, np.int32, ABSENT)
        self.values: list[T] = [absent]
        self.index: dict[T, int] = {absent: ABSENT}
        self.serial = 0
        self._uses = [0]
        self._free: list[int] = []
        self._changed: list[int] = []

    def set(self, row: int, value: T) -> None:
        """Stores the value of a row."""
        ids = self.ids.data
        before: int = ids.item(row)
        number = self.index.get(value)
        if number is None:
            number = self._number(value)
        if number == before:
            return
        ids[row] = number
        if number != ABSENT:
            self._uses[number] += 1
        if before != ABSENT:
            self._uses[before] -= 1
            if not self._uses[before]:
                self._give_back(before)

    def clear(self, row: int) -> None:
        """Puts a row back to ABSENT, for a node that is gone."""
        self.set(row, self.values[ABSENT])

    @property
    def unused(self) -> bool:
        """Whether no row has any value."""
        return len(self.index) == 1

    def _number(self, value: T) -> int:
        if self._free:
            number = self._free.pop()
            self.values[number] = value
        else:
            number = len(self.values)
            self.values.append(value)
            self._uses.append(0)
        self.index[value] = number
        self._note(number)
        return number

    def _give_back(self, number: int) -> None:
        del self.index[self.values[number]]
        self.values[number] = self.values[ABSENT]
        self._free.append(number)
        self._note(number)

    def _note(self, number: int) -> None:
        self.serial += 1
        self._changed.append(number)
        # As many as there are values: for a reader that missed more, reading all values is cheaper.
        kept = max(_CHANGES_KEPT, len(self.values))
        if len(self._changed) > 2 * kept:
            del self._changed[:-kept]

    def changed_since(self, serial: int) -> Sequence[int] | None:
        """The numbers whose value has changed since `serial`; None if it may be all of them."""
        missed = self.serial - serial
        if missed > len(self._changed):
            return None
        return self._changed[len(self._changed) - missed :]


LabelColumn = ValueColumn[str | None]
"""The values of one label key; None where the node has no such label."""
