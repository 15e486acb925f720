"""The answers to a demand for many rows: one search for all rows in the same state, where something changed."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from koordsched.plugins.dynamicresources.structured.footprint import Footprint
from koordsched.plugins.dynamicresources.structured.search import Solution

_ANSWERS_KEPT = 1 << 16


class Outcome(IntEnum):
    """How the search for a node ends."""

    UNKNOWN = -1
    FITS = 0
    NONE = 1
    """There is no solution."""
    INVALID = 2
    """There is no solution, and some pools of the node are invalid."""
    ERROR = 3
    """The attempt fails."""
    EXPIRED = 4


Footprints = tuple[Footprint, ...]
"""What the devices of each claim take of the node."""


class Verdicts(NamedTuple):
    """`outcomes`: int8[rows] of Outcome; `scores`: int64[rows], raw, 0 where the outcome is not FITS.

    `taken`: int32[rows], what the devices would take of the node, as positions in `footprints`; None while that does
    not count.
    """

    outcomes: npt.NDArray[np.int8]
    scores: npt.NDArray[np.int64]
    taken: npt.NDArray[np.int32] | None = None
    footprints: Sequence[Footprints] = ()


class Answer(NamedTuple):
    """The answer for one state. `solution` if it fits; `taken`: the position of its footprints."""

    outcome: Outcome
    solution: Solution | None = None
    taken: int = 0


AnswerKey = tuple[int, int, int]
"""The number of the plan, and of the two states of a row."""


class Answers:
    """All that is known for one demand: per row, as of a serial number of the index, and per state.

    `plans`: the number of the plan by row, for the inventory of that number in `planned`. `taken`: as of Verdicts.
    """

    __slots__ = (
        "by_state",
        "epoch",
        "footprints",
        "outcomes",
        "planned",
        "plans",
        "positions",
        "scores",
        "serial",
        "taken",
    )

    def __init__(self, *, with_footprints: bool) -> None:
        self.taken: npt.NDArray[np.int32] | None = np.zeros(0, dtype=np.int32) if with_footprints else None
        self.footprints: list[Footprints] = []
        self.positions: dict[Footprints, int] = {}
        self.by_state: dict[AnswerKey, Answer] = {}
        self.outcomes: npt.NDArray[np.int8] = np.zeros(0, dtype=np.int8)
        self.scores: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.plans: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.planned: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.serial = -1
        self.epoch = -1

    @property
    def nbytes(self) -> int:
        """About how many bytes this takes."""
        return 25 * len(self.outcomes) + 300 * len(self.by_state) + 500 * len(self.footprints)

    def forget(self, capacity: int) -> None:
        """No row's answer is known any more; those of states are."""
        if len(self.outcomes) != capacity:
            self.outcomes = np.empty(capacity, dtype=np.int8)
            self.scores = np.zeros(capacity, dtype=np.int64)
            self.plans = np.zeros(capacity, dtype=np.int64)
            self.planned = np.full(capacity, -1, dtype=np.int64)
            if self.taken is not None:
                self.taken = np.zeros(capacity, dtype=np.int32)
        self.outcomes.fill(Outcome.UNKNOWN)

    def position(self, footprints: Footprints) -> int:
        """The position of these footprints, which they have from now on."""
        found = self.positions.get(footprints)
        if found is None:
            found = self.positions[footprints] = len(self.footprints)
            self.footprints.append(footprints)
        return found

    def keep(self, key: AnswerKey, answer: Answer) -> None:
        """Remembers the answer for a state."""
        if len(self.by_state) >= _ANSWERS_KEPT:
            self.by_state.clear()
        self.by_state[key] = answer
