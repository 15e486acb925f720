"""How many pods of each workload were placed lately: a counter per workload and sixth of the window."""

from __future__ import annotations

from koordsched.framework.handle import Clock
from koordsched.framework.timers import Timer, Timers, due_of
from koordsched.plugins.shared.workloads import Workload
from koordsched.plugins.workloadquarantine.state import PlacementsState

_PARTS = 6


class Placements:
    """Counts. Time is read when a part of the window is over, not for each pod."""

    def __init__(self, window: float, clock: Clock, timers: Timers) -> None:
        self._part = window / _PARTS
        self._clock = clock
        self._timers = timers
        self._counts: dict[Workload, list[int]] = {}
        self._timer: Timer | None = None
        """The next turn, or the beginning; None while nothing is counted."""
        self._turns = False
        self._next = 0.0

    def add(self, workload: Workload) -> None:
        """A pod of the workload was placed."""
        counts = self._counts.get(workload)
        if counts is None:
            counts = self._counts[workload] = [0] * (_PARTS + 1)
            if self._timer is None:
                self._turns = False
                self._timer = self._timers.at(0.0, self._begin)
        counts[0] += 1

    def take_back(self, workload: Workload) -> None:
        """One of the last that were placed was not after all."""
        counts = self._counts.get(workload, [])
        for part, count in enumerate(counts):
            if count:
                counts[part] -= 1
                return

    def of(self, workload: Workload) -> int:
        """How many were placed within the window, or a sixth of it longer ago."""
        return sum(self._counts.get(workload, ()))

    def __len__(self) -> int:
        return len(self._counts)

    def _begin(self) -> None:
        self._next = self._clock.monotonic() + self._part
        self._wait()

    def _wait(self) -> None:
        self._turns = True
        self._timer = self._timers.at(self._next, self._turn)

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
        self._timer = None
        if self._counts:
            self._wait()

    def recorded_state(self) -> PlacementsState:
        """All of it, for `restore_state`."""
        counts = tuple((workload, tuple(counts)) for workload, counts in self._counts.items())
        return PlacementsState(counts, self._next, due_of(self._timer), self._turns)

    def restore_state(self, state: PlacementsState) -> None:
        """This and nothing else."""
        if self._timer is not None:
            self._timer.cancel()
        self._counts = {workload: [*counts] for workload, counts in state.counts}
        self._next, self._turns, self._timer = state.next, state.turns, None
        if state.timer is not None:
            self._timer = self._timers.restore(state.timer, self._turn if state.turns else self._begin)
