"""How many pods of a shape the devices of a node serve, one after the other.

The pods are given their devices on a row that stands for all rows in the same state; then all is taken back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.kept import Kept
from koordsched.cluster.shape import PodShape
from koordsched.framework.serving import Kinds
from koordsched.framework.status import PASS, Codes
from koordsched.plugins.deviceshare.allocating import Allocating
from koordsched.plugins.deviceshare.compiled import CompiledRequests
from koordsched.plugins.deviceshare.feasibility import Feasibility
from koordsched.plugins.deviceshare.reasons import Refusal
from koordsched.plugins.deviceshare.templates import Templates
from koordsched.plugins.shared.devices.resources import TYPES

_BUDGET = 64 << 20
"""Bytes of the shapes of pods for which answers are known."""


class _Answer(NamedTuple):
    """`number` pods of at most `most`; `code`: why not more, PASS if `most` was reached."""

    most: int
    number: int
    code: int


class Serving:
    """Counts for one profile."""

    def __init__(
        self, compiled: CompiledRequests, allocating: Allocating, feasibility: Feasibility, templates: Templates
    ) -> None:
        self._compiled = compiled
        self._allocating = allocating
        self._columns = allocating.columns
        self._feasibility = feasibility
        self._templates = templates
        self._known: Kept[tuple[object, ...], _Answer] = Kept(_BUDGET)

    def served(self, before: Kinds, shape: PodShape, rows: RowArray, most: int) -> tuple[npt.NDArray[np.int64], Codes]:
        """See ServesSeveral."""
        request = self._compiled.of(shape)
        if not request.types or not len(rows):
            return np.full(len(rows), most, dtype=np.int64), np.zeros(len(rows), dtype=np.int32)
        before = tuple((other, number) for other, number in before if self._compiled.of(other).types)
        keys = self._columns.keys(TYPES, rows)
        if any(self._compiled.of(each).designated is not None for each in (shape, *dict(before))):
            keys = np.column_stack((keys, rows))  # a refusal may name the node
        states, first, of_row = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        answers = []
        for key, at in zip(states, first.tolist(), strict=True):
            what = (before, shape, self._templates.serial, key.tobytes())
            answers.append(self._answer(what, before, shape, int(rows[at]), most))
        found = np.array([(min(each.number, most), each.code) for each in answers], dtype=np.int64)[of_row.reshape(-1)]
        numbers = found[:, 0]
        return numbers, np.where(numbers < most, found[:, 1], PASS).astype(np.int32)

    def _answer(self, what: tuple[object, ...], before: Kinds, shape: PodShape, row: int, most: int) -> _Answer:
        known = self._known.get(what)
        if known is None or (known.code == PASS and known.most < most):
            known = self._count(before, shape, row, most)
            self._known.put(what, known, shape.nbytes + sum(other.nbytes for other, _ in before))
        return known

    def _count(self, before: Kinds, shape: PodShape, row: int, most: int) -> _Answer:
        if not self._feasibility.is_known(row):
            return _Answer(most, most, PASS)
        with self._columns.giving(row) as give:
            for other, number in before:
                for _ in range(number):
                    given = self._allocating.allocate(other, row)
                    if isinstance(given, Refusal):
                        return _Answer(most, 0, self._feasibility.refusal_code(given))
                    give(given)
            for number in range(most):
                given = self._allocating.allocate(shape, row)
                if isinstance(given, Refusal):
                    return _Answer(most, number, self._feasibility.refusal_code(given))
                give(given)
        return _Answer(most, most, PASS)
