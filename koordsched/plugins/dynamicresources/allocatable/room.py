"""Whether nodes have room for a pod with all that its claims take (dra spec 3.11)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.resources import FIRST_SCALAR, Requests

Mask = npt.NDArray[np.bool_]


def shortages(table: NodeTable, rows: RowArray, requests: Requests) -> Iterator[tuple[Mask, bool, Sequence[str]]]:
    """(which rows, whether a whole node of these is too small, the resources that they lack), each row once at most.

    Only what devices may take is looked at: cpu, memory, ephemeral-storage and hugepages.
    """
    names = table.resource_names.names
    wanted = [each for each in requests.amounts if each[0] < FIRST_SCALAR or names[each[0]].startswith("hugepages-")]
    wanted.sort(key=lambda each: (min(each[0], FIRST_SCALAR), names[each[0]] if each[0] >= FIRST_SCALAR else ""))
    patterns = np.zeros(len(rows), dtype=np.int64)
    final = 1 << len(wanted)
    for bit, (index, amount) in enumerate(wanted):
        table.ensure_resource(index)
        allocatable = table.allocatable[index].data[rows]
        short = amount > allocatable - table.requested[index].data[rows]
        patterns |= short.astype(np.int64) << bit
        patterns[short & (amount > allocatable)] |= final
    if not patterns.any():
        return
    for pattern in np.unique(patterns[patterns != 0]).tolist():
        lacking = [names[index] for bit, (index, _) in enumerate(wanted) if pattern >> bit & 1]
        yield patterns == pattern, bool(pattern & final), lacking
