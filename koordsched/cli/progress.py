"""The progress of a command, on one line of the terminal that is overwritten."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

PAUSE = 0.1
"""Minimum seconds between two updates: terminals may be slow."""

_ERASE = "\r\x1b[K"


class Progress:
    """Writes to terminals alone. Leaving the context erases the line."""

    def __init__(self, monotonic: Callable[[], float], out: TextIO | None = None) -> None:
        self._monotonic = monotonic
        self._out = out or sys.stderr
        self._shown_at = -PAUSE

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._shown_at >= 0 and self._out.isatty():
            self._out.write(_ERASE)
            self._out.flush()

    def show(self, text: str) -> None:
        """Replaces what was shown before."""
        now = self._monotonic()
        if self._out.isatty() and now - self._shown_at >= PAUSE:
            self._shown_at = now
            self._out.write(_ERASE + text)
            self._out.flush()
