"""What the shape plugins said about the rows of an overlay, kept until a row changes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from koordsched.cluster.changelog import ChangeLog, RowArray
from koordsched.framework.interface import Scores
from koordsched.framework.overlay import Overlay
from koordsched.framework.status import Codes


class KeptRows:
    """Codes and raw scores, by row of a lasting overlay.

    `epochs`: those of the score plugins when they were last asked.
    """

    __slots__ = ("_stamps", "codes", "epochs", "raw")

    def __init__(self, overlay: Overlay, scorers: int) -> None:
        self._stamps = overlay.column(np.int64)
        self.codes = overlay.column(np.int32)
        self.raw = [overlay.column(np.int64) for _ in range(scorers)]
        self.epochs: list[Hashable] = []

    def stale(self, rows: RowArray, log: ChangeLog) -> RowArray:
        """Those of the rows, which are all of the overlay, that changed since they were kept."""
        found: RowArray = rows[self._stamps.data != log.latest.take(rows)]
        return found

    def keep(self, rows: RowArray, some: RowArray, log: ChangeLog, codes: Codes, raw: Sequence[Scores]) -> None:
        """Takes over what is known of some of the rows from arrays of all nodes (one number: all have it)."""
        at = np.searchsorted(rows, some)
        self.codes.data[at] = codes[some]
        for kept, scores in zip(self.raw, raw, strict=True):
            kept.data[at] = scores if isinstance(scores, int) else scores[some]
        self._stamps.data[at] = log.latest[some]
