"""What is worked out per value and kept under a budget of bytes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import wraps
from typing import Generic, TypeVar

from msgspec.structs import astuple

from koordsched.api.meta import Wire

K = TypeVar("K")
V = TypeVar("V")

_LARGE = 8
"""What takes more than this part of a budget is not kept."""


def size_of(value: object, most: int = sys.maxsize) -> int:
    """Bytes of a value with all that it refers to, classes left out: no less than what only it refers to. Values nested
    in each other are counted once for each reference. Counting ends beyond `most`.
    """
    total, level = 0, [value]
    while level and total <= most:
        total += sum(map(sys.getsizeof, level))
        # The collector, which names what a value refers to, knows nothing of what wire types hold.
        wires = [each for each in level if isinstance(each, Wire)]
        level = [each for each in gc.get_referents(*level) if not isinstance(each, type)]
        for wire in wires:
            level.extend(astuple(wire))
    return total


class Kept(Generic[K, V]):
    """Values by what they were worked out from, which must be hashable.

    `budget`: bytes that both may take together; beyond, all are forgotten and may be worked out again. What users write
    may be large: a large value is not kept at all. Values must not refer to what they do not own, or to themselves.
    """

    __slots__ = ("_kept", "budget", "forgotten", "nbytes")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.nbytes = 0
        self.forgotten = 0
        """How often all were forgotten."""
        self._kept: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """What is kept for the key."""
        return self._kept.get(key)

    def put(self, key: K, value: V, size: int = 0) -> V:
        """Keeps a value, which it returns. `size`: bytes of both, if that is known."""
        most = self.budget // _LARGE
        size = size or size_of((key, value) if key is not value else (value,), most)
        if size <= most:
            if self.nbytes + size > self.budget:
                self.clear()
            self._kept[key] = value
            self.nbytes += size
        return value

    def clear(self) -> None:
        """Forgets all."""
        self._kept.clear()
        self.nbytes = 0
        self.forgotten += 1

    def __contains__(self, key: object) -> bool:
        return key in self._kept

    def __len__(self) -> int:
        return len(self._kept)


def kept(budget: int) -> Callable[[Callable[[K], V]], Callable[[K], V]]:
    """Decorates a function of one hashable value, whose results are kept within so many bytes."""

    def decorate(function: Callable[[K], V]) -> Callable[[K], V]:
        known: Kept[K, tuple[V]] = Kept(budget)

        @wraps(function)
        def found(value: K) -> V:
            answer = known.get(value)
            return answer[0] if answer is not None else known.put(value, (function(value),))[0]

        return found

    return decorate
