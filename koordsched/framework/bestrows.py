"""Choosing at random among the rows with the highest total: each has the same probability."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

Totals = npt.NDArray[np.signedinteger[Any]]

_TRIES = 4
"""Rows drawn from all rows, many of which may have the highest total, before these are listed."""


class BestRows:
    """The rows that had the highest total of a shape, remembered from pod to pod.

    A placement usually takes away just one of them, so that the next pod finds another without looking at every row. A
    row that no longer has the highest total is dropped when it is drawn. Where thousands of shapes take turns, totals
    are new each time, and listing thousands of rows for one draw would be wasteful: the first pod draws from all rows
    first.
    """

    __slots__ = ("_asked", "_highest", "_leading", "_rows")

    def __init__(self) -> None:
        self._rows: npt.NDArray[np.int32] | None = None
        self._leading = 0
        self._highest = 0
        self._asked = False

    def forget(self) -> None:
        """All totals are new."""
        self._rows = None
        self._asked = False

    def rises_to(self, total: int) -> None:
        """The total of one row rose to this."""
        if self._rows is not None and total >= self._highest:
            self._rows = None  # it has the highest total now, perhaps alone

    def pick(self, totals: Totals, rng: Random) -> int:
        """A row with the highest total."""
        while True:
            rows = self._rows
            if rows is None:
                highest = self._highest = np.maximum.reduce(totals).item()
                if not self._asked:
                    self._asked = True
                    for _ in range(_TRIES):
                        row: int = rng.randrange(len(totals))
                        if totals.item(row) == highest:
                            return row
                rows = self._rows = (totals == highest).nonzero()[0].astype(np.int32)
                self._leading = len(rows)
            while self._leading:
                at = rng.randrange(self._leading)
                row = rows.item(at)
                if totals.item(row) == self._highest:
                    return row
                self._leading -= 1
                rows[at] = rows[self._leading]
            self._rows = None
