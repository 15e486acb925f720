"""Nodes by what is known of their CPUs and NUMA nodes."""

from __future__ import annotations

import numpy as np

from koordsched.plugins.nodenumaresource.columns import MODES, NUMAColumns
from koordsched.plugins.nodenumaresource.policies import BindPolicy

STATES = NONE, VALID, INVALID, MISSING = "none", "valid", "invalid", "missing"
"""No report; one that can be used; one that cannot, or labels or annotations of the node that cannot; no report, though
the node has a policy, or its pods CPUs of their own."""

_NEEDS_A_REPORT = np.array([mode.numa != 0 or mode.bind is not BindPolicy.NONE for mode in MODES])


def state_of(columns: NUMAColumns, row: int) -> str:
    """The state of one node."""
    return STATES[int(_states(columns, slice(row, row + 1))[0])]


def counts(columns: NUMAColumns) -> dict[str, int]:
    """How many nodes are in each state."""
    table = columns.table
    found = _states(columns, table.all_rows)[table.alive.data[: table.size]]
    return dict(zip(STATES, np.bincount(found, minlength=len(STATES)).tolist(), strict=True))


def _states(columns: NUMAColumns, rows: slice) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    """Positions in STATES."""
    found = columns.report.data[rows].copy()
    none = found == 0
    if none.any():
        needed = _NEEDS_A_REPORT[columns.mode.data[rows]] | (columns.holders.data[rows] > 0).any(axis=1)
        found[none & needed] = STATES.index(MISSING)
    return found
