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
from koordsched.framework.shapecache import ShapeCache
from koordsched.framework.status import PASS, Codes

Keys = npt.NDArray[np.integer[Any]]
"""[rows] or [rows, width]."""

BUDGET = 16 << 20
"""Bytes that the answers of one filter, or of one score, may take, those of the latest call not counted."""

_OF_ONE_SHAPE = BUDGET // 4
"""When the answers for one shape take more, they are forgotten."""

_ANSWER_BYTES = 150
"""What an answer takes besides the bytes of its key: two objects, and a place in a dict."""

Ask = Callable[[PodShape, NodeTable, RowArray], npt.NDArray[np.int64]]
"""What a plugin says about rows of different keys."""

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
        self._verdicts = Answers(_each(self.evaluate_one))

    @abstractmethod
    def evaluate_one(self, shape: PodShape, table: NodeTable, row: int) -> int:
        """PASS, or the number of a reason. As it is remembered, the number must be the reason's for good
        (`ReasonTable.intern`, not `hold`).
        """

    def filter_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Codes | None:
        """See `ShapeFilter`."""
        keys = self.key(shape, table, rows)
        if len(keys) == 1:
            code: int = self._verdicts.of_one(shape, keys, table, rows)
            return None if code == PASS else np.array((code,), dtype=np.int32)
        if not len(keys):
            return None
        codes = self._verdicts.of(shape, keys, table, rows)
        return codes.astype(np.int32) if codes.any() else None


class KeyedScore(Keyed, ShapeScore):
    """Prefers nodes by (shape, key of the row)."""

    def __init__(self) -> None:
        super().__init__()
        self._scores = Answers(_each(self.score_one))

    @abstractmethod
    def score_one(self, shape: PodShape, table: NodeTable, row: int) -> int:
        """The raw score, which is remembered: an `epoch` cannot change it."""

    def score_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Scores:
        """See `ShapeScore`."""
        keys = self.key(shape, table, rows)
        if len(keys) == 1:
            score: int = self._scores.of_one(shape, keys, table, rows)
            return score
        return self._scores.of(shape, keys, table, rows) if len(keys) else np.zeros(0, dtype=np.int64)


def _each(ask: Callable[[PodShape, NodeTable, int], int]) -> Ask:
    """Asks about one row after the other."""

    def ask_all(shape: PodShape, table: NodeTable, rows: RowArray) -> npt.NDArray[np.int64]:
        return np.array([ask(shape, table, row) for row in rows.tolist()], dtype=np.int64)

    return ask_all


class _OfShape:
    """The answers for one shape, by the bytes of the key."""

    __slots__ = ("answers", "nbytes", "shape_bytes")

    def __init__(self, shape: PodShape) -> None:
        self.answers: dict[bytes, Any] = {}
        self.shape_bytes = self.nbytes = shape.nbytes


class Answers:
    """What `ask` says about rows: int64[rows] or [rows, width]. It is asked once per shape and key."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._kept = ShapeCache(_OfShape, BUDGET)

    def of_one(self, shape: PodShape, keys: Keys, table: NodeTable, rows: Rows) -> Any:
        """The answer about the only row: a number, or a list of them."""
        kept = self._kept.of(shape)
        key = keys.astype(np.int64, copy=False).tobytes()
        answer = kept.answers.get(key)
        if answer is None:
            row = rows.start if isinstance(rows, slice) else int(rows[0])
            answer = self._ask(shape, table, np.array((row,), dtype=np.intp)).tolist()[0]
            self._keep(kept, {key: answer})
        return answer

    def of(self, shape: PodShape, keys: Keys, table: NodeTable, rows: Rows) -> npt.NDArray[np.int64]:
        """An answer per row, of which there must be one."""
        keys = np.ascontiguousarray(keys, dtype=np.int64).reshape(len(keys), -1)
        examples, groups = grouped(keys)
        width = keys.itemsize * keys.shape[1]
        text = keys[examples].tobytes()
        distinct = [text[start : start + width] for start in range(0, len(text), width)]
        kept = self._kept.of(shape)
        asked = [at for at, key in enumerate(distinct) if key not in kept.answers]
        new: dict[bytes, Any] = {}
        if asked:
            positions = examples[asked]
            found = self._ask(shape, table, positions + rows.start if isinstance(rows, slice) else rows[positions])
            new = {distinct[at]: answer for at, answer in zip(asked, found.tolist(), strict=True)}
        answers = [new[key] if key in new else kept.answers[key] for key in distinct]
        self._keep(kept, new)
        return np.array(answers, dtype=np.int64)[groups]

    def _keep(self, kept: _OfShape, new: dict[bytes, Any]) -> None:
        if not new:
            return
        before = kept.nbytes
        if before > _OF_ONE_SHAPE:
            kept.answers.clear()
            kept.nbytes = kept.shape_bytes
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
