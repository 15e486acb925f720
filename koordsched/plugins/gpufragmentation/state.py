"""The values of free parts as they were last worked out, as journals record them."""

from __future__ import annotations

import msgspec
import numpy as np

from koordsched.framework.agenda import Due
from koordsched.plugins.gpufragmentation.values import Values
from koordsched.plugins.gpufragmentation.worth import Float


class Table(msgspec.Struct, frozen=True, array_like=True):
    """A table of float64, row by row."""

    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, table: Float) -> Table:
        """The table as bytes, little endian."""
        return cls(table.shape, table.astype("<f8").tobytes())

    def table(self) -> Float:
        """And back. Raises ValueError if the shape is another."""
        found: Float = np.frombuffer(self.data, "<f8").astype(np.float64).reshape(self.shape)
        return found


class ValueState(msgspec.Struct, frozen=True):
    """`values`; `kinds`: (a row with an inventory, its kind), `number` of them; `memory`: bytes of a GPU.

    `changes` since, of which so many pods were counted; `timer`: when values are worked out anew, if that is due.
    """

    levels: tuple[int, ...]
    gpu: Table
    whole: Table
    balance: float
    kinds: tuple[tuple[int, int], ...]
    number: int
    memory: int
    changes: int
    counted: int
    timer: Due | None

    def values(self) -> Values:
        """The tables."""
        return Values(np.array(self.levels, dtype=np.int64), self.gpu.table(), self.whole.table(), self.balance)
