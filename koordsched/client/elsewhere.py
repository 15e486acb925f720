"""Writes that others make on our behalf: they do not pass our lanes, and still are ours to answer for.

A leader must not give its lease back while something that it set going may still reach the API server.
"""

from __future__ import annotations

from koordsched.client.clock import Clock


class WritesElsewhere:
    """Counts them. `in_doubt_at` is when one last ended without an answer (monotonic seconds)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.in_flight = 0
        self.in_doubt_at = float("-inf")

    def began(self) -> None:
        """Somebody was asked to write; `ended` must follow."""
        self.in_flight += 1

    def ended(self, *, answered: bool) -> None:
        """It is known what came of it; or, if nothing was `answered`, it may yet be carried out."""
        self.in_flight -= 1
        if not answered:
            self.in_doubt_at = self._clock.monotonic()

    def quiet_since(self, time: float) -> bool:
        """Whether every one has been answered, and none was left in doubt at that time or later."""
        return not self.in_flight and self.in_doubt_at < time
