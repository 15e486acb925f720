"""Candidates: a node and the pods that would have to leave it; and which candidate is the best."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

from koordsched.cluster.pod import Pod

_PRIORITY_OFFSET = 1 << 31
"""Added to every priority so that a sum grows with each victim, negative priorities included."""

Rank = tuple[int, int, int, int, float]


@dataclass(slots=True)
class Candidate:
    """`victims`: most important first. `violations`: how many of them break a disruption budget."""

    row: int
    victims: tuple[Pod, ...]
    violations: int
    _rank: Rank | None = field(default=None, init=False, repr=False, compare=False)
    """Kept if it does not depend on the time: as long as all victims have started."""

    def rank(self, now: float) -> Rank:
        """Smaller is better (core spec 3.8, pick node)."""
        if self._rank is not None:
            return self._rank
        highest = self.victims[0].priority
        earliest = min(start_of(pod, now) for pod in self.victims if pod.priority == highest)
        total = sum(pod.priority + _PRIORITY_OFFSET for pod in self.victims)
        rank = (self.violations, highest, total, len(self.victims), -earliest)
        if all(pod.start_time is not None for pod in self.victims):
            self._rank = rank
        return rank


def start_of(pod: Pod, now: float) -> float:
    """When the pod started, seconds since the epoch; a pod that has not started counts as starting now."""
    if pod.start_time is None:
        return now
    seconds = _seconds_of(pod.start_time)
    return now if seconds is None else seconds


@lru_cache(maxsize=1 << 16)
def _seconds_of(text: str) -> float | None:
    """A timestamp in seconds since the epoch; None if it is none. The same few are asked for over and over."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def by_importance(pods: list[Pod], now: float) -> list[Pod]:
    """Most important first: higher priority, then longer running."""
    return sorted(pods, key=lambda pod: (-pod.priority, start_of(pod, now)))
