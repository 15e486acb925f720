"""How an allocation may end other than with devices or without a solution."""

from __future__ import annotations

from collections.abc import Callable


class AllocationError(Exception):
    """The whole attempt fails; the text is upstream's (dra spec 3.6)."""


class InvalidPools(Exception):
    """There is no solution, and pools of the node are invalid; the text says which, and why."""


class SearchExpired(Exception):
    """The search was ended by its deadline."""


class Deadline:
    """How long searches may take: `seconds` each, and `total` all of one call together (0: no limit).

    `clock` is in seconds and monotonic.
    """

    def __init__(self, clock: Callable[[], float], seconds: float, total: float = 0) -> None:
        self._clock = clock
        self._seconds = seconds
        self._last = clock() + total if total else float("inf")

    def start(self) -> None:
        """A search begins."""
        end = self._clock() + self._seconds if self._seconds else self._last
        self._end = min(end, self._last)

    def expired(self) -> bool:
        """Whether the search that began last must end."""
        return self._clock() > self._end


UNLIMITED = Deadline(float, 0)
"""No deadline."""
