"""What reservations hold of CPUs and NUMA nodes, and what pods that use them may have (nodenumaresource spec 4)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from koordsched.framework.reservations import Reserved
from koordsched.plugins.nodenumaresource.allocation import MAX_NUMA_NODES, NOTHING, Allocation
from koordsched.plugins.nodenumaresource.columns import ABSENT, CPU, Counts, NUMAColumns
from koordsched.plugins.nodenumaresource.supply import amplified


class ReservedCPUs:
    """Reads reservations."""

    def __init__(self, columns: NUMAColumns) -> None:
        self._columns = columns

    def whole(self, reserved: Reserved) -> Allocation:
        """All that a reservation holds, in use or not."""
        return self._columns.allocation.among(reserved.facts) or NOTHING

    def left(self, reserved: Reserved) -> Allocation:
        """What is left of that."""
        return self._columns.allocation.of(reserved.pod) or NOTHING

    @contextmanager
    def confined(self, row: int, reserved: Reserved) -> Iterator[None]:
        """See ReservedAllocation: no CPUs are left but those of the reservation, and no more of the resources of NUMA
        nodes that it holds any of."""
        whole, left, columns = self.whole(reserved), self.left(reserved), self._columns
        if whole == NOTHING:
            yield
            return
        names = {name for numa in whole.numa for name, _ in numa.amounts}
        available = self._available(row)
        target = available.copy()
        for name in names:
            if (index := columns.resource(name)) >= 0:
                limit = np.zeros(MAX_NUMA_NODES, dtype=np.int64)
                for numa in left.numa:
                    limit[numa.node] = dict(numa.amounts).get(name, 0)
                target[index] = np.minimum(target[index], limit)
        layout = columns.layout(row)
        others = columns.free(row, layout) & ~left.cpus if layout is not None else 0
        # CPUs in use may count for more than they are: what that takes from the amounts is given back.
        with columns.in_use(row, others, available - target), columns.in_use(row, 0, self._available(row) - target):
            yield

    def _available(self, row: int) -> Counts:
        """int64[resources, NUMA nodes]: what is left for pods; negative where more was given out than there is."""
        columns, rows = self._columns, np.array((row,), dtype=np.intp)
        zones = columns.amounts_of(columns.zones, rows)[0]
        used = columns.amounts_of(columns.used, rows)[0]
        found: Counts = np.where(zones == ABSENT, 0, zones) - used
        ratio = columns.ratio.data[rows]
        if ratio.item(0) > 1:
            bound = columns.bound(rows)[0] * 1000
            found[CPU] -= (amplified(bound, ratio) - bound) * used.any(axis=0)
        return found
