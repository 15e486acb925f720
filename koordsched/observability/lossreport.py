"""One line in the log for many losses of a kind: the first at once, then how many there were, once in a while."""

from __future__ import annotations

import logging
from collections.abc import Callable

INTERVAL = 60.0
"""Seconds between two lines about one kind of loss."""


class _Kind:
    __slots__ = ("example", "lost", "said_at")

    def __init__(self) -> None:
        self.lost = 0
        self.example = ""
        self.said_at = float("-inf")


class LossReport:
    """Counts losses by kind and writes to `log`. `monotonic` gives seconds, `what` is the plural of what is lost."""

    def __init__(self, log: logging.Logger, what: str, monotonic: Callable[[], float]) -> None:
        self._log = log
        self._what = what
        self._monotonic = monotonic
        self._kinds: dict[str, _Kind] = {}

    def lost(self, kind: str, example: str) -> None:
        """One more of a kind (of which there are few), such as this one."""
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds[kind] = _Kind()
        known.lost += 1
        known.example = example
        self._say(kind, known)

    def tick(self) -> None:
        """Writes the lines that are due; to be called regularly."""
        for kind, known in self._kinds.items():
            if known.lost:
                self._say(kind, known)

    def _say(self, kind: str, known: _Kind) -> None:
        now = self._monotonic()
        if now - known.said_at < INTERVAL:
            return
        self._log.warning("%d %s lost (%s), the last one %s", known.lost, self._what, kind, known.example)
        known.said_at, known.lost = now, 0
