"""Writes that other processes make for us, such as bindings by extenders. They do not pass the write lanes.

A leader must not release its lease while a write that it caused may still reach the API server.
"""

from __future__ import annotations

from koordsched.client.clock import Clock


class ExternalWrites:
    """Counts these writes. `in_doubt_at`: when one last ended without an answer (monotonic seconds)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.in_flight = 0
        self.in_doubt_at = float("-inf")

    def began(self) -> None:
        """A write was requested; `ended` must follow."""
        self.in_flight += 1

    def ended(self, *, answered: bool) -> None:
        """The request ended. If it was not `answered`, the write may still be carried out."""
        self.in_flight -= 1
        if not answered:
            self.in_doubt_at = self._clock.monotonic()

    def quiet_since(self, time: float) -> bool:
        """Whether every write has been answered, and none ended without an answer at that time or later."""
        return not self.in_flight and self.in_doubt_at < time
