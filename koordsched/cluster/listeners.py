"""Errors of what plugins register to be called with pods and objects: they harm neither the others nor the object.

An observer that fails for one pod must not keep that pod from the queue, nor from the observers after it. It may fail
for each of many pods, so the log has the first error of a kind in full.
"""

from __future__ import annotations

import logging

_log = logging.getLogger(__name__)


class ListenerErrors:
    """Reports errors, to be called inside `except`. `count`: how many there were."""

    def __init__(self) -> None:
        self.count = 0
        self._shown: set[tuple[str, str]] = set()

    def report(self, listener: object, about: str, error: Exception) -> None:
        """What was called failed for this pod or object."""
        self.count += 1
        name = getattr(listener, "__qualname__", type(listener).__qualname__)
        key = (name, type(error).__name__)
        if key in self._shown:
            _log.debug("%s failed for %s: %r", name, about, error)
            return
        self._shown.add(key)
        _log.error("%s failed for %s; further errors of this kind are not shown", name, about, exc_info=error)
