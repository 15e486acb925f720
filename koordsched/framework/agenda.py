"""Keys that are due at some time, the earliest first."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

_FEW = 64


class Due(NamedTuple):
    """When a key is due, in seconds; of several at one time, in the order of `turn`."""

    when: float
    turn: int


class Agenda(Generic[K]):
    """Keys, each with one time in seconds. A key that was set again or cleared leaves an entry that is passed over."""

    __slots__ = ("_heap", "_sequence", "_valid")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, K]] = []
        self._valid: dict[K, int] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._valid)

    def __contains__(self, key: K) -> bool:
        return key in self._valid

    def set(self, key: K, when: float, turn: int | None = None) -> Due:
        """The key is due then, and at no other time; after all others of that time, unless it has a turn already."""
        self._sequence += 1
        due = Due(when, self._sequence if turn is None else turn)
        self._valid[key] = self._sequence
        heappush(self._heap, (*due, self._sequence, key))
        if len(self._heap) > 2 * len(self._valid) + _FEW:
            self._heap = [entry for entry in self._heap if self._valid.get(entry[3]) == entry[2]]
            heapify(self._heap)
        return due

    def skip(self, turn: int) -> None:
        """What is set from now on comes after this turn."""
        self._sequence = max(self._sequence, turn)

    def clear(self, key: K) -> None:
        """The key is not due any more."""
        self._valid.pop(key, None)

    def entries(self) -> list[tuple[K, float]]:
        """All keys with their times, in the order in which these were set."""
        valid = [entry for entry in self._heap if self._valid.get(entry[3]) == entry[2]]
        return [(key, when) for when, _, _, key in sorted(valid, key=itemgetter(2))]

    @property
    def earliest(self) -> float | None:
        """When the first key is due."""
        while self._heap and self._valid.get(self._heap[0][3]) != self._heap[0][2]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: float) -> list[K]:
        """The keys whose time has come, in its order."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            _, _, sequence, key = heappop(self._heap)
            if self._valid.get(key) == sequence:
                del self._valid[key]
                due.append(key)
        return due
