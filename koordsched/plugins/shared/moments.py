"""Times in objects: RFC 3339 text and seconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime

_LATEST = 253402300799.0
"""The last second of the year 9999."""


def moment(text: str | None) -> float | None:
    """Seconds since the epoch; None for a text that is no time."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def moment_text(seconds: float) -> str:
    """The text of a time, in whole seconds."""
    found = datetime.fromtimestamp(min(max(seconds, 0.0), _LATEST), UTC)
    return found.strftime("%Y-%m-%dT%H:%M:%SZ")
