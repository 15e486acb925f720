"""How many pods of each workload were placed lately: a counter per workload and sixth of the window."""

from __future__ import annotations

from koordsched.framework.handle import Clock
from koordsched.framework.timers import Timers
from koordsched.plugins.shared.workloads import Workload

_PARTS = 6


class Placements:
    """Counts. Time is read when a part of the window is over, not for each pod."""

    def __init__(self, window: float, clock: Clock, timers: Timers) -> None:
        self._part = window / _PARTS
        self._clock = clock
        self._timers = timers
        self._counts: dict[Workload, list[int]] = {}
        self._turning = False
        self._next = 0.0

    def add(self, workload: Workload) -> None:
        """A pod of the workload was placed."""
        counts = self._counts.get(workload)
        if counts is None:
            counts = self._counts[workload] = [0] * (_PARTS + 1)
            if not self._turning:
                self._turning = True
                self._timers.at(0.0, self._begin)
        counts[0] += 1

    def of(self, workload: Workload) -> int:
        """How many were placed within the window, or a sixth of it longer ago."""
        return sum(self._counts.get(workload, ()))

    def __len__(self) -> int:
        return len(self._counts)

    def _begin(self) -> None:
        self._next = self._clock.monotonic() + self._part
        self._timers.at(self._next, self._turn)

    def _turn(self) -> None:
        turns = 1 + int(max(self._clock.monotonic() - self._next, 0.0) // self._part)
        gone = []
        for workload, counts in self._counts.items():
            counts[:] = ([0] * turns + counts)[: _PARTS + 1]
            if not any(counts):
                gone.append(workload)
        for workload in gone:
            del self._counts[workload]
        self._next += turns * self._part
        self._turning = bool(self._counts)
        if self._turning:
            self._timers.at(self._next, self._turn)
