"""What is kept per shape, under a budget of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar

from koordsched.cluster.shape import PodShape


class Sized(Protocol):
    """Anything that reports its size in bytes."""

    @property
    def nbytes(self) -> int: ...


T = TypeVar("T", bound=Sized)


LARGE = 1 << 20
"""Bytes of a shape that is kept no longer than until the next one comes: its pods may be gone, and there may be ever
new ones.
"""


class ShapeCache(OrderedDict[PodShape, T]):
    """Values by shape, made at the first request. The least recently used go first; the latest always stays.

    `budget`: bytes that they may take.
    """

    def __init__(self, make: Callable[[PodShape], T], budget: int) -> None:
        super().__init__()
        self._make = make
        self.budget = budget
        self._bytes = 0
        self._size = 0
        self._large: PodShape | None = None

    def of(self, shape: PodShape, size: int = 0) -> T:
        """What belongs to a shape. `size`: of the table, for things made for all of its rows: others are made when it
        has grown.
        """
        if size != self._size:
            self.clear()
            self._bytes, self._size, self._large = 0, size, None
        found = self[shape]
        self.move_to_end(shape)
        return found

    def __missing__(self, shape: PodShape) -> T:
        gone = self.pop(self._large, None) if self._large is not None else None
        if gone is not None:
            self._bytes -= gone.nbytes
        self._large = shape if shape.nbytes > LARGE else None
        made = self[shape] = self._make(shape)
        self.resized(made.nbytes)
        return made

    def resized(self, more: int) -> None:
        """The latest one takes this many more bytes than before."""
        self._bytes += more
        while self._bytes > self.budget and len(self) > 1:
            self._bytes -= self.popitem(last=False)[1].nbytes
