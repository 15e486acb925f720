"""How long writes pause while the API server is overloaded or unreachable. Pauses are logged."""

from __future__ import annotations

import logging
from random import Random

from koordsched.client.backoff import Backoff
from koordsched.client.errors import ApiError, ClientError, NotSent, TooManyRequests

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds of a pause after a refusal or a failed connection, doubling in between."""

LONGEST_RETRY_AFTER = 30.0
"""Seconds of Retry-After that are obeyed at most."""

LOG_INTERVAL = 60.0
"""Seconds between two lines in the log."""


class WritePause:
    """Nothing is sent before `until`, seconds of the monotonic clock."""

    def __init__(self, rng: Random) -> None:
        self.until = 0.0
        self._backoff = Backoff(rng, FIRST_PAUSE, LONGEST_PAUSE)
        self._delayed = 0
        self._log_at = float("-inf")

    def overloaded(self, what: str, error: ClientError, now: float) -> None:
        """A write of this kind failed because the server is overloaded or unreachable."""
        if isinstance(error, ApiError) and error.retry_after:
            self.until = max(self.until, now + min(error.retry_after, LONGEST_RETRY_AFTER))
        elif isinstance(error, NotSent | TooManyRequests) and self.until <= now:
            self.until = now + self._backoff.next()
        self._delayed += 1
        if now >= self._log_at:
            latest = f"an {what}" if what[0] in "aeiou" else f"a {what}"
            text = "the API server is slow to accept writes: %d more waiting, latest: %s: %s"
            log.warning(text, self._delayed, latest, error)
            self._delayed, self._log_at = 0, now + LOG_INTERVAL

    def succeeded(self, now: float) -> None:
        """A write succeeded: if no pause is under way, the next one is short again."""
        if self.until <= now:
            self._backoff.reset()
