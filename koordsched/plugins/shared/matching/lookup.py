"""A judgement per interned value, so that judging every node is one indexing operation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from koordsched.api.selectors import SelectorError
from koordsched.cluster.columns import LabelColumn, ValueColumn
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.plugins.shared.matching.rows import Mask

T = TypeVar("T")
V = TypeVar("V", bound=Hashable)

_FEW_VALUES = 8
"""Up to so many values are compared one by one."""


class Lookup(Generic[T]):
    """`verdicts[i]` is the judgement of `values[i]`; values may be appended at any time, never changed.

    `lowest` and `highest` bound all verdicts so far (0 when there are none).
    """

    __slots__ = ("_judge", "_values", "highest", "lowest", "verdicts")

    def __init__(self, values: Sequence[T], judge: Callable[[T], int], dtype: npt.DTypeLike) -> None:
        self._values = values
        self._judge = judge
        self.verdicts: npt.NDArray[Any] = np.zeros(0, dtype=dtype)
        self.lowest = 0
        self.highest = 0
        self.refresh()

    def refresh(self) -> None:
        """Judges the values that came since the last call."""
        known = len(self.verdicts)
        if known == len(self._values):
            return
        more = np.array([self._judge(value) for value in self._values[known:]], dtype=self.verdicts.dtype)
        self.verdicts = np.concatenate((self.verdicts, more))
        self.lowest, self.highest = int(self.verdicts.min()), int(self.verdicts.max())


class ColumnLookup(Generic[V]):
    """`verdicts[i]` is the judgement of `column.values[i]`, where numbers come to stand for other values.

    `lowest` and `highest` bound all verdicts. Valid after `refresh`, until a node changes.
    """

    __slots__ = ("_judge", "_serial", "column", "highest", "lowest", "verdicts")

    def __init__(self, column: ValueColumn[V], judge: Callable[[V], int], dtype: npt.DTypeLike) -> None:
        self.column = column
        self._judge = judge
        self._serial = column.serial
        self.verdicts: npt.NDArray[Any] = np.zeros(0, dtype=dtype)
        self._take(range(len(column.values)))

    def refresh(self) -> None:
        """Judges the numbers that stand for something else since the last call."""
        column = self.column
        if column.serial == self._serial:
            return
        changed = column.changed_since(self._serial)
        self._take(range(len(column.values)) if changed is None else set(changed))
        self._serial = column.serial

    def _take(self, numbers: Iterable[int]) -> None:
        values, judge = self.column.values, self._judge
        more = len(values) - len(self.verdicts)
        if more:
            self.verdicts = np.concatenate((self.verdicts, np.zeros(more, dtype=self.verdicts.dtype)))
        for number in numbers:
            self.verdicts[number] = judge(values[number])
        self.lowest, self.highest = int(self.verdicts.min()), int(self.verdicts.max())


class LabelTest:
    """What one requirement says about the nodes: a test of the value of one label key."""

    __slots__ = ("__weakref__", "_lookup", "_test", "key")

    def __init__(self, key: str, test: Callable[[str | None], bool]) -> None:
        self.key = key
        self._test = test
        self._lookup: ColumnLookup[str | None] | None = None

    def passes(self, value: str | None) -> bool:
        """The verdict on a value; None stands for an absent label."""
        return self._test(value)

    def passes_row(self, table: NodeTable, row: int) -> bool:
        """The verdict on the node of one row."""
        column = table.label_column(self.key)
        return bool(self._verdicts(column)[column.ids.data[row]])

    def mask(self, table: NodeTable, rows: Rows) -> Mask:
        """The verdict on each row."""
        column = table.label_column(self.key)
        return self._verdicts(column).take(column.ids.data[rows])

    def _verdicts(self, column: LabelColumn) -> Mask:
        """By value number. The column of a key is another one when the key comes back after no node had it."""
        lookup = self._lookup
        if lookup is None or lookup.column is not column:
            lookup = self._lookup = ColumnLookup(column, self._test, np.bool_)
        else:
            lookup.refresh()
        return lookup.verdicts


class MembershipTest(LabelTest):
    """An In or NotIn requirement: looks its own values up instead of judging every value that any node has.

    With the value None (absent) also DoesNotExist, or Exists. Most selectors name one or two of what may be as many
    values as there are nodes (host names).
    """

    __slots__ = ("_inverted", "_values")

    def __init__(self, key: str, values: tuple[str | None, ...], *, inverted: bool = False) -> None:
        """`inverted`: NotIn. Raises SelectorError without values."""
        if not values:
            raise SelectorError(f"for operator {'NotIn' if inverted else 'In'!r} at least one value is required")
        # Pods may have thousands of these: neither a function nor, for few values, a set of its own.
        self.key = key
        self._values: Collection[str | None] = values if len(values) <= _FEW_VALUES else frozenset(values)
        self._inverted = inverted

    def passes(self, value: str | None) -> bool:
        """The verdict on a value; None stands for an absent label."""
        return (value in self._values) is not self._inverted

    def passes_row(self, table: NodeTable, row: int) -> bool:
        """The verdict on the node of one row."""
        column = table.label_column(self.key)
        return self.passes(column.values[column.ids.data.item(row)])

    def mask(self, table: NodeTable, rows: Rows) -> Mask:
        """The verdict on each row."""
        column = table.label_column(self.key)
        ids = column.ids.data[rows]
        numbers = [number for value in self._values if (number := column.index.get(value)) is not None]
        if len(numbers) == 1:
            return np.asarray(ids != numbers[0] if self._inverted else ids == numbers[0])
        verdicts = np.full(len(column.values), self._inverted, dtype=np.bool_)
        verdicts[numbers] = not self._inverted
        return verdicts.take(ids)
