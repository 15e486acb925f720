"""How full a node would be of one resource, as a score of 0..100, truncated (default-plugins spec 3.6)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from koordsched.framework.interface import MAX_SCORE

Amounts = npt.NDArray[np.signedinteger[Any]]
"""Whole numbers per row."""

EXACT = 1 << 46
"""Below this, a share of 0..100 computed in floating point truncates as the exact one does: it cannot be closer to a
whole number than 1 / capacity, and is off by less than 100 * 2**-53. Amounts times 100 still are exact, too."""


def quotient(share: Amounts, capacity: Amounts) -> Amounts:
    """`share // capacity` where that is 0..100, both not negative and capacity positive.

    In floating point, which is several times as fast, wherever that gives the same.
    """
    if capacity.max(initial=0) < EXACT:
        exact = share.astype(np.float64)
        exact /= capacity.astype(np.float64)
        return exact.astype(np.int64)
    return np.floor_divide(share, capacity)


def least_allocated(requested: int, capacity: int) -> int:
    """Higher the emptier the node; 0 beyond the capacity, which is positive."""
    return (capacity - requested) * MAX_SCORE // capacity if requested <= capacity else 0


def least_allocated_rows(requested: Amounts, capacity: Amounts) -> Amounts:
    """The same for many nodes; overwrites `requested`."""
    free = np.subtract(capacity, requested, out=requested)
    np.maximum(free, 0, out=free)
    free *= MAX_SCORE
    return quotient(free, capacity)


def most_allocated(requested: int, capacity: int) -> int:
    """Higher the fuller the node; 100 beyond the capacity, which is positive."""
    return min(requested, capacity) * MAX_SCORE // capacity


def most_allocated_rows(requested: Amounts, capacity: Amounts) -> Amounts:
    """The same for many nodes; overwrites `requested`."""
    used = np.minimum(requested, capacity, out=requested)
    used *= MAX_SCORE
    return quotient(used, capacity)
