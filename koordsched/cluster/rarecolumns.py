"""Columns of amounts that few rows have.

Users make up names of resources, and there may be as many as there are nodes: as arrays they would take memory by the
product of both. Here an amount takes memory only where there is one, and a reader of many rows gets an array made for
the purpose.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from koordsched.cluster.columns import Column

_FEW = 64
"""Rows up to which each is looked up by itself."""

_WRAP = 1 << 64

_ROOM = 4
"""Amounts that there is room for as soon as there is one: most such resources are of one node."""

_NONE = np.zeros(0, dtype=np.int64)


class RareColumn(Column):
    """A column of int64 amounts in which most rows have 0. `data` reads and writes like the array of a `Column`."""

    __slots__ = ("_amounts",)

    def __init__(self, capacity: int) -> None:
        self.fill = 0
        self._amounts = RareAmounts(capacity)
        # It supports what is done with columns of amounts, so callers need not distinguish the two.
        self.data = cast("npt.NDArray[Any]", self._amounts)

    def __len__(self) -> int:
        """How many rows have an amount."""
        return len(self._amounts)

    def grow(self, capacity: int) -> None:
        """Makes room for rows up to `capacity`."""
        self._amounts.capacity = capacity

    def clear(self, row: int) -> None:
        """Puts a row back to 0."""
        self._amounts[row] = 0

    def copy_to(self, column: Column) -> None:
        """Writes all amounts into a column that has none yet."""
        self._amounts.fill(column.data)

    def copy_from(self, column: Column) -> None:
        """Takes over all amounts of a column."""
        for row in np.flatnonzero(column.data).tolist():
            self._amounts[row] = column.data.item(row)


class RareAmounts:
    """The amounts: what an int64 array of `capacity` rows can do, as far as columns of amounts are asked for it.

    An amount beyond 64 bits wraps around, as in an array.
    """

    __slots__ = ("_position", "_rows", "_stored", "capacity")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._position: dict[int, int] = {}
        self._rows = self._stored = _NONE

    def __len__(self) -> int:
        """How many rows have an amount."""
        return len(self._position)

    def item(self, row: int) -> int:
        """The amount of one row."""
        position = self._position.get(row)
        if position is None:
            return 0
        found: int = self._stored.item(position)
        return found

    def any(self) -> bool:
        """Whether any row has an amount."""
        return bool(self._position)

    def __getitem__(self, rows: Any) -> Any:
        """The amount of one row, or an array of those of a slice, an array of rows or a mask."""
        if isinstance(rows, int | np.integer):
            return self.item(int(rows))
        if isinstance(rows, np.ndarray) and rows.dtype != np.bool_ and len(rows) <= _FEW:
            return np.array([self.item(row) for row in rows.tolist()], dtype=np.int64)
        dense = np.zeros(self.capacity, dtype=np.int64)
        self.fill(dense)
        return dense[rows]

    def __setitem__(self, rows: Any, amounts: Any) -> None:
        """Sets the amount of one row, or those of an array of rows."""
        if isinstance(rows, int | np.integer):
            self._set(int(rows), int(amounts))
        else:
            for row, amount in zip(rows.tolist(), np.broadcast_to(amounts, rows.shape).tolist(), strict=True):
                self._set(row, amount)

    def fill(self, dense: npt.NDArray[Any]) -> None:
        """Writes the amounts into an array of zeros."""
        count = len(self)
        dense[self._rows[:count]] = self._stored[:count]

    def _set(self, row: int, amount: int) -> None:
        if not -(_WRAP >> 1) <= amount < _WRAP >> 1:
            amount = (amount + (_WRAP >> 1)) % _WRAP - (_WRAP >> 1)
        position = self._position.get(row)
        if position is not None:
            if amount:
                self._stored[position] = amount
            else:
                self._take_out(row, position)
        elif amount:
            self._append(row, amount)

    def _append(self, row: int, amount: int) -> None:
        position = len(self)
        if position == len(self._rows):
            more = np.zeros(max(_ROOM, position), dtype=np.int64)
            self._rows, self._stored = np.concatenate((self._rows, more)), np.concatenate((self._stored, more))
        self._position[row] = position
        self._rows[position] = row
        self._stored[position] = amount

    def _take_out(self, row: int, position: int) -> None:
        """The last one takes its place."""
        del self._position[row]
        last = len(self)
        if position != last:
            moved: int = self._rows.item(last)
            self._rows[position], self._stored[position] = moved, self._stored[last]
            self._position[moved] = position
