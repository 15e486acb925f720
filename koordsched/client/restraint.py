"""How long writes hold back while the server is in trouble, and a word about it in the log."""

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

SAID_EVERY = 60.0
"""Seconds between two lines in the log."""


class Restraint:
    """Nothing is sent before `until`, seconds of the monotonic clock."""

    def __init__(self, rng: Random) -> None:
        self.until = 0.0
        self._backoff = Backoff(rng, FIRST_PAUSE, LONGEST_PAUSE)
        self._held_up = 0
        self._say_at = float("-inf")

    def trouble(self, what: str, error: ClientError, now: float) -> None:
        """A write of this kind shows that the server has too much to do or cannot be reached."""
        if isinstance(error, ApiError) and error.retry_after:
            self.until = max(self.until, now + min(error.retry_after, LONGEST_RETRY_AFTER))
        elif isinstance(error, NotSent | TooManyRequests) and self.until <= now:
            self.until = now + self._backoff.next()
        self._held_up += 1
        if now >= self._say_at:
            log.warning("the API server holds up writes, %d more by now, the last a %s: %s", self._held_up, what, error)
            self._held_up, self._say_at = 0, now + SAID_EVERY

    def answered(self, now: float) -> None:
        """A write was carried out: whoever does not hold back now starts over with short pauses."""
        if self.until <= now:
            self._backoff.reset()
