"""How full every node is before the pod, in floating point, kept up row by row.

Scores divide amounts by capacities for every node. What does not depend on the pod is the same for all pods: converted
once, a new shape costs half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import Facet
from koordsched.cluster.nodetable import NodeTable, Rows

Floats = npt.NDArray[np.float64]
"""float64[rows]."""

Base = Callable[[Any, Any], Any]
"""(used, capacity) to what a score starts from; of numbers, and of arrays row by row."""


class NodeUtilization:
    """Capacity and use of some resources on all rows; rows without a node have a capacity of 1.

    `capacity`, `base`: float64[rows] per resource; the capacity in milli-CPU or bytes or counts, and what was asked for
    to be made of it and the use. They follow the change log, so they do not see what-ifs; nothing is scored in those.
    Valid after `refresh`, if `usable`: where every node has all of the resources, in amounts that are below `exact`.
    """

    __slots__ = ("_base", "_exact", "_resources", "_serial", "base", "capacity", "usable")

    def __init__(self, resources: Sequence[tuple[int, bool]], exact: int, base: Base) -> None:
        """`resources`: the index of each, and whether its use counts defaults for containers without requests.

        `base` must be exact in int64 and in floating point for amounts below `exact`.
        """
        self._resources = tuple(resources)
        self._exact = exact
        self._base = base
        self._serial = -1
        self.usable = False
        self.capacity: list[Floats] = []
        self.base: list[Floats] = []

    def refresh(self, table: NodeTable) -> Rows | list[int]:
        """Brings everything up to date. Returns the rows that are new: a slice of all of them, an array, or a few."""
        serial = table.log.serial
        if serial == self._serial:
            return []
        size = table.size
        # LABELS always counts: nodes coming and going touch every facet.
        changed = table.log.since(self._serial, Facet.RESOURCES | Facet.LABELS, size)
        self._serial = serial
        if not self.usable or len(self.capacity[0]) < size or len(changed) * 4 > size:
            self.capacity = [np.ones(size) for _ in self._resources]
            self.base = [np.zeros(size) for _ in self._resources]
            self.usable = self._take_rows(table, table.all_rows)
            return table.all_rows
        if isinstance(changed, list):
            few = [row for row, _ in changed]
            self.usable = all(self._take_row(table, row) for row in few)
            return few
        self.usable = self._take_rows(table, changed)
        return changed

    def _take_rows(self, table: NodeTable, rows: Rows) -> bool:
        """Takes over what rows are like now; False if that cannot be kept here."""
        alive = table.alive.data[rows]
        for position, (index, nonzero) in enumerate(self._resources):
            capacity = np.where(alive, table.allocatable[index].data[rows], 1)
            used = (table.requested_nonzero if nonzero else table.requested)[index].data[rows]
            if not capacity.all() or max(capacity.max(initial=0), used.max(initial=0)) >= self._exact:
                return False
            self.capacity[position][rows] = capacity
            self.base[position][rows] = self._base(used, capacity)
        return True

    def _take_row(self, table: NodeTable, row: int) -> bool:
        """The same for one row, which is what usually changed."""
        for position, (index, nonzero) in enumerate(self._resources):
            capacity = table.allocatable[index].data.item(row) if table.alive.data.item(row) else 1
            used = (table.requested_nonzero if nonzero else table.requested)[index].data.item(row)
            if not capacity or capacity >= self._exact or used >= self._exact:
                return False
            self.capacity[position][row] = capacity
            self.base[position][row] = self._base(used, capacity)
        return True
