"""Exponential back-off with jitter."""

from __future__ import annotations

from random import Random


class Backoff:
    """Delays in seconds that double from `initial` up to `cap`, each spread over 50 to 150 percent of its value."""

    def __init__(self, rng: Random, initial: float, cap: float) -> None:
        self._rng = rng
        self._initial = initial
        self._cap = cap
        self._next = initial

    def next(self) -> float:
        """The delay before the next attempt."""
        delay = self._next
        self._next = min(delay * 2, self._cap)
        return delay * self._rng.uniform(0.5, 1.5)

    def reset(self) -> None:
        """Starts over, after a success."""
        self._next = self._initial
