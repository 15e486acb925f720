"""Filters and scores whose verdict on a node takes a search: one search for all nodes that are in the same state.

Whether some devices or CPUs of a node go together is no array operation. But thousands of nodes are in few states, and
a node comes back to states that were seen before. A plugin says what of a row its answer depends on, the *key*, for all
rows at once, and judges one row; it is asked once per key, and the answer is remembered.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.shape import PodShape
from koordsched.framework.interface import Plugin, Scores, ShapeFilter, ShapeScore
from koordsched.framework.shapecache import SHAPE_BYTES, ShapeCache
from koordsched.framework.status import PASS, Codes

Keys = npt.NDArray[np.integer[Any]]
"""[rows] or [rows, width]."""

BUDGET = 16 << 20
"""Bytes that the answers of one filter, or of one score, may take, those of the latest call not counted."""

_OF_ONE_SHAPE = BUDGET // 4
"""When the answers for one shape take more, they are forgotten."""

_ANSWER_BYTES = 150
"""What an answer takes besides the bytes of its key: two objects, and a place in a dict."""

_MIXER = 0x9E3779B97F4A7C15
_HALF = np.uint64(32)


class Keyed(Plugin):
    """A plugin that says what of a row its answers depend on."""

    @abstractmethod
    def key(self, shape: PodShape, table: NodeTable, rows: Rows) -> Keys:
        """A key per row; the rows may include dead ones. Rows with equal keys get equal answers, now and ever.

        So everything that an answer depends on must be in the key. A number that is given back, and stands for
        something else later (those of a `ValueColumn`), must not be in it.
        """


class KeyedFilter(Keyed, ShapeFilter):
    """Refuses nodes by (shape, key of the row)."""

    def __init__(self) -> None:
        super().__init__()
        self._verdicts = _Answers(self.evaluate_one)

    @abstractmethod
    def evaluate_one(self, shape: PodShape, table: NodeTable, row: int) -> int:
        """PASS, or the number of a reason. As it is remembered, the number must be the reason's for good
        (`ReasonTable.intern`, not `hold`).
        """

    def filter_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Codes | None:
        """See `ShapeFilter`."""
        keys = self.key(shape, table, rows)
        if len(keys) == 1:
            code = self._verdicts.of_one(shape, keys, table, rows)
            return None if code == PASS else np.array((code,), dtype=np.int32)
        codes = self._verdicts.of(shape, keys, table, rows)
        return codes.astype(np.int32) if codes.any() else None


class KeyedScore(Keyed, ShapeScore):
    """Prefers nodes by (shape, key of the row)."""

    def __init__(self) -> None:
        super().__init__()
        self._scores = _Answers(self.score_one)

    @abstractmethod
    def score_one(self, shape: PodShape, table: NodeTable, row: int) -> int:
        """The raw score, which is remembered: an `epoch` cannot change it."""

    def score_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Scores:
        """See `ShapeScore`."""
        keys = self.key(shape, table, rows)
        if len(keys) == 1:
            return self._scores.of_one(shape, keys, table, rows)
        return self._scores.of(shape, keys, table, rows)


class _OfShape:
    """The answers for one shape, by the bytes of the key."""

    __slots__ = ("answers", "nbytes")

    def __init__(self, shape: PodShape) -> None:
        self.answers: dict[bytes, int] = {}
        self.nbytes = SHAPE_BYTES


class _Answers:
    """What `ask` says about rows, asked once per shape and key."""

    def __init__(self, ask: Callable[[PodShape, NodeTable, int], int]) -> None:
        self._ask = ask
        self._kept = ShapeCache(_OfShape, BUDGET)

    def of_one(self, shape: PodShape, keys: Keys, table: NodeTable, rows: Rows) -> int:
        """The answer about the only row."""
        kept = self._kept.of(shape)
        key = keys.astype(np.int64, copy=False).tobytes()
        answer = kept.answers.get(key)
        if answer is None:
            answer = self._ask(shape, table, rows.start if isinstance(rows, slice) else int(rows[0]))
            self._keep(kept, {key: answer})
        return answer

    def of(self, shape: PodShape, keys: Keys, table: NodeTable, rows: Rows) -> npt.NDArray[np.int64]:
        """An answer per row."""
        if not len(keys):
            return np.zeros(0, dtype=np.int64)
        keys = np.ascontiguousarray(keys, dtype=np.int64).reshape(len(keys), -1)
        examples, groups = grouped(keys)
        width = keys.itemsize * keys.shape[1]
        distinct = keys[examples].tobytes()
        asked = (examples + rows.start if isinstance(rows, slice) else rows[examples]).tolist()
        kept = self._kept.of(shape)
        new: dict[bytes, int] = {}
        answers = []
        for i, row in enumerate(asked):
            key = distinct[i * width : (i + 1) * width]
            answer = kept.answers.get(key)
            if answer is None:
                answer = new[key] = self._ask(shape, table, row)
            answers.append(answer)
        self._keep(kept, new)
        return np.array(answers, dtype=np.int64)[groups]

    def _keep(self, kept: _OfShape, new: dict[bytes, int]) -> None:
        if not new:
            return
        before = kept.nbytes
        if before > _OF_ONE_SHAPE:
            kept.answers.clear()
            kept.nbytes = SHAPE_BYTES
        kept.answers.update(new)
        kept.nbytes += sum(map(len, new)) + _ANSWER_BYTES * len(new)
        self._kept.resized(kept.nbytes - before)


def grouped(keys: npt.NDArray[np.int64]) -> tuple[RowArray, RowArray]:
    """(the position of one row of each group, the number of each row's group); rows of [rows, width] that are equal are
    a group.
    """
    bits = keys.view(np.uint64)
    # Amounts are often multiples of large powers of two: their upper halves must reach the lower bits.
    hashes = (bits ^ (bits >> _HALF)) @ _mixers(keys.shape[1])
    order = hashes.argsort()
    in_order = hashes[order]
    starts = np.concatenate(((True,), in_order[1:] != in_order[:-1]))
    groups = np.empty(len(keys), dtype=np.intp)
    groups[order] = np.cumsum(starts) - 1
    examples = order[starts]
    if not np.array_equal(keys[examples][groups], keys):
        # Two keys have the same hash.
        _, examples, groups = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return examples, groups


@cache
def _mixers(width: int) -> npt.NDArray[np.uint64]:
    """Odd numbers, the powers of one."""
    return np.multiply.accumulate(np.full(width, _MIXER, dtype=np.uint64))
