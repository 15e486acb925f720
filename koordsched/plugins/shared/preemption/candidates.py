"""Candidates: a node and the pods that would have to leave it; and which candidate is the best."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from math import inf

import numpy as np
import numpy.typing as npt

from koordsched.cluster.pod import Pod
from koordsched.framework.status import PASS

PRIORITY_OFFSET = 1 << 31
"""Added to every priority so that a sum grows with each victim, negative priorities included."""

NOT_STARTED = inf
"""When a pod started that has not: whenever it is asked, that is now."""

VERDICT = np.dtype(
    [
        ("code", np.int32),
        ("violations", np.int32),
        ("highest", np.int64),
        ("total", np.int64),
        ("victims", np.int32),
        ("earliest", np.float64),
        ("waiting", np.bool_),
    ]
)
"""What a dry run found out about a row.

`code`: what refuses the pod even with all potential victims gone, or PASS; and then what decides between candidates:
`violations`: victims that break a disruption budget; `highest`: their highest priority; `total`: the sum of their
priorities, each plus PRIORITY_OFFSET; `victims`: how many; `earliest`: since when the longest running of the highest
priority runs, or NOT_STARTED; `waiting`: whether one of the highest priority has not started, which then counts as now.
"""

Verdicts = npt.NDArray[np.void]
"""VERDICT[rows]."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """`victims`: most important first. `violations`: how many of them break a disruption budget."""

    row: int
    victims: tuple[Pod, ...]
    violations: int


def verdicts_of(results: Iterable[Candidate | int]) -> Verdicts:
    """Of candidates, and of codes that refuse the pod."""
    return np.array([_verdict(result) for result in results], dtype=VERDICT)


def _verdict(result: Candidate | int) -> tuple[float, ...]:
    if isinstance(result, int):
        return result, 0, 0, 0, 0, 0.0, False
    victims = result.victims
    if not victims:
        return PASS, result.violations, 0, 0, 0, 0.0, False
    highest = victims[0].priority
    starts = [started_at(pod) for pod in victims if pod.priority == highest]
    total = sum(pod.priority + PRIORITY_OFFSET for pod in victims)
    return PASS, result.violations, highest, total, len(victims), min(starts), NOT_STARTED in starts


def best_of(verdicts: Verdicts, now: float) -> int:
    """The position of the best candidate, the first of equal ones (core spec 3.8, pick node).

    Raises ValueError if there are none.
    """
    if not len(verdicts):
        raise ValueError("no candidates")
    left = np.arange(len(verdicts))
    earliest = verdicts["earliest"]
    for measure in (
        verdicts["violations"],
        verdicts["highest"],
        verdicts["total"],
        verdicts["victims"],
        # The clocks of nodes may be ahead of ours: a start in the future is later than now.
        -np.where(verdicts["waiting"], np.minimum(earliest, now), earliest),
    ):
        of_left = measure[left]
        left = left[of_left == of_left.min()]
        if len(left) == 1:
            break
    return int(left[0])


def started_at(pod: Pod) -> float:
    """When the pod started, seconds since the epoch; NOT_STARTED if it did not."""
    return NOT_STARTED if pod.start_time is None else _seconds_of(pod.start_time)


@lru_cache(maxsize=1 << 16)
def _seconds_of(text: str) -> float:
    """A timestamp in seconds since the epoch. The same few are asked for over and over."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return NOT_STARTED  # the API server accepts no such time


def by_importance(pods: Iterable[Pod], now: float) -> list[Pod]:
    """Most important first: higher priority, then longer running; a pod that has not started counts as starting now.

    Upstream leaves the order of those that have not started to chance; here those that are already terminating come
    last.
    """

    def order(pod: Pod) -> tuple[int, float, bool]:
        started = started_at(pod)
        if started == NOT_STARTED:
            return -pod.priority, now, pod.deleting
        return -pod.priority, started, False

    return sorted(pods, key=order)
