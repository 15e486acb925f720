"""Durations as Go writes them: `1h30m`, `2.5s`, `500ms`."""

from __future__ import annotations

import re

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(h|ms|us|ns|m|s)", re.ASCII)


def parse_duration(text: str) -> float:
    """Seconds. Raises ValueError for anything but one or more numbers with units."""
    position, total = 0, 0.0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            break
        total += float(part.group(1)) * _UNITS[part.group(2)]
        position = part.end()
    if not text or position != len(text):
        raise ValueError(f"{text[:64]!r} is not a duration such as 30s or 1m30s")
    return total
