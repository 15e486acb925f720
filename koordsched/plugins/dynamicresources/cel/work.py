"""Work inside of single operations that has no cost upstream: comparing, flattening and printing nested collections.

A list may hold the same list twice, and that one another list twice, so a short expression can make a value whose parts
are more than could ever be looked at one by one. What looks at parts counts them here.
"""

from __future__ import annotations

from koordsched.plugins.dynamicresources.cel.errors import CostExceeded

MOST_WORK = 250_000
"""Parts that one evaluation may look at."""


class Work:
    """What is left of the work of the current evaluation. Evaluations do not nest, and one thread makes them all."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MOST_WORK

    def begin(self) -> None:
        """A new evaluation."""
        self._left = MOST_WORK

    def spend(self, parts: int) -> None:
        """Counts parts that are looked at. Raises CostExceeded if there are too many."""
        self._left -= parts
        if self._left < 0:
            raise CostExceeded


WORK = Work()
