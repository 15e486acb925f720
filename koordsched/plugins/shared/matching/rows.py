"""Answering about one row or many.

Most questions of a scheduling cycle concern the single row that the last placement changed. For one row
plain Python numbers are several times faster than arrays of length one, so hot plugins have both forms.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from koordsched.cluster.nodetable import Rows
from koordsched.framework.status import Codes

Mask = npt.NDArray[np.bool_]
"""bool[rows]."""


def single(rows: Rows) -> int:
    """The row if `rows` is a slice of exactly one, otherwise -1."""
    if type(rows) is slice and rows.stop - rows.start == 1:
        return int(rows.start)
    return -1


def count_of(rows: Rows) -> int:
    """How many rows these are."""
    return int(rows.stop - rows.start) if isinstance(rows, slice) else len(rows)


def refused(fails: Mask, code: int) -> Codes | None:
    """`code` where `fails`, in the form that `ShapeFilter.filter_rows` answers."""
    return fails * np.int32(code) if fails.any() else None


def refused_row(code: int) -> Codes:
    """The answer about a single row that fails."""
    return np.array((code,), dtype=np.int32)
