"""How many pods a node can serve one after the other with single things: devices, CPUs.

Filters judge one pod beside those that have theirs. A plan for several pods of a node has to know what these would be
given: sums do not tell whether what is left of each device is enough for another one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.shape import PodShape
from koordsched.framework.status import Codes

Kinds = Sequence[tuple[PodShape, int]]
"""Shapes of pods, and how many of each, one after the other."""


class ServesSeveral(ABC):
    """A `ReservedAllocation` that plans of several pods ask how many of them a node can serve."""

    @abstractmethod
    def served(self, before: Kinds, shape: PodShape, rows: RowArray, most: int) -> tuple[npt.NDArray[np.int64], Codes]:
        """(int64[rows], int32[rows]): how many pods of the shape each row can serve after the pods `before`, at most
        `most`; and the reason, interned, why not one more, PASS where it serves `most`.

        The table reads as it is; Reservations that the pods could use do not count as theirs.
        """
