"""When a dump was taken: reports are as old as they were at that time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from koordsched.cli.objectfiles import Sourced
from koordsched.client.clock import SystemClock


class DumpClock(SystemClock):
    """A clock that always shows the same time."""

    def __init__(self, wall: float) -> None:
        self._wall = wall

    def wall(self) -> float:
        """Seconds since the epoch."""
        return self._wall


def taken_at(objects: Iterable[Sourced], now: float) -> float:
    """The newest time of a report or a new pod in the dump, in seconds since the epoch, at most `now`.

    Without NodeMetrics it is `now`: nothing else that is decided has an age.
    """
    reports: list[float] = []
    pods: list[float] = []
    for sourced in objects:
        if sourced.kind == "NodeMetric":
            reports.append(_seconds(sourced.obj.get("status"), "updateTime"))
        elif sourced.kind == "Pod":
            pods.append(_seconds(sourced.meta, "creationTimestamp"))
    newest = max([*reports, *pods]) if any(reports) else 0.0
    return min(now, newest) if newest else now


def time_text(seconds: float) -> str:
    """As in objects."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seconds(of: object, key: str) -> float:
    """0 for a time that is absent or malformed."""
    text = of.get(key) if isinstance(of, dict) else None
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else 0.0
    except (ValueError, OverflowError):
        return 0.0
