"""Times read back from objects, which users may have written."""

from __future__ import annotations

from koordsched.fakecluster.clock import parse_rfc3339


def seconds_of(text: str | None) -> float:
    """Seconds since the epoch; 0.0 for a missing or malformed time, which then counts as long ago."""
    if not text:
        return 0.0
    try:
        return parse_rfc3339(text)
    except ValueError:
        return 0.0
