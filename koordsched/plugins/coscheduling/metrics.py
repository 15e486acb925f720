"""Metrics of gangs (coscheduling spec 5)."""

from __future__ import annotations

from collections.abc import Callable

from koordsched.observability.metric_registry import MetricRegistry
from koordsched.plugins.coscheduling.cache import GangCache
from koordsched.plugins.coscheduling.plugin import Coscheduling
from koordsched.plugins.coscheduling.reports.report import (
    BOUND,
    INCOMPLETE,
    PENDING,
    PLACED,
    UNDEFINED,
    state_of,
)
from koordsched.plugins.coscheduling.round import Round

CYCLE_BUCKETS = (0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 12.5, 15.0, 20.0, 25.0, 30.0, 45.0, 60.0, 120.0)
"""Seconds, of the duration of a round."""

_STEP, _LARGEST = 100, 1000


def job_size(members: int) -> str:
    """The label of a number of pods: hundreds, beginning with `1-100`; `0` and `1000+` at the ends."""
    if members <= 0:
        return "0"
    if members > _LARGEST:
        return f"{_LARGEST}+"
    first = (members - 1) // _STEP * _STEP + 1
    return f"{first}-{first + _STEP - 1}"


SUCCEEDED, FAILED = "gang is already succeed", "all pending pods is already been attempted"
"""How attempts end, in upstream's words."""


class AttemptTimes:
    """Measures how long attempts to place groups of gangs, and job preemption, take."""

    def __init__(self, cache: GangCache, metrics: MetricRegistry, monotonic: Callable[[], float]) -> None:
        self._durations = metrics.histograms(
            "scheduler_gang_schedule_cycle_duration_seconds",
            "Duration of attempts to place all members of a group of gangs, by outcome and number of members tried.",
            ("reason", "job_size"),
            CYCLE_BUCKETS,
        )
        self._preemptions = metrics.histograms(
            "scheduler_job_preemption_duration_seconds",
            "Duration of the search for room for a job by preemption, by result.",
            ("result",),
            CYCLE_BUCKETS,
        )
        self._monotonic = monotonic
        self._began = 0.0
        self._preemption_began = 0.0
        cache.on_preemption(self._preempting)
        cache.on_round(self._changed)

    def _changed(self, old: Round | None, new: Round | None) -> None:
        if old is not None and old.decided:
            reason = SUCCEEDED if old.placed() else FAILED
            took = self._monotonic() - self._began
            self._durations.labels(reason, job_size(len(old.attempted))).observe(took)
        if new is not None:
            self._began = self._monotonic()

    def _preempting(self, result: str) -> None:
        now = self._monotonic()
        if result:
            self._preemptions.labels(result).observe(now - self._preemption_began)
        else:
            self._preemption_began = now


def observe_gangs(plugin: Coscheduling, metrics: MetricRegistry) -> None:
    """Shows how many gangs there are by state, and how long the oldest waits."""
    cache = plugin.cache
    metrics.read(
        "scheduler_waiting_gang_group_number",
        "Groups of gangs with members that have a node and wait for others.",
        lambda: sum(bool(group.waiting_gangs) for group in cache.groups()),
        of_leader=True,
    )
    metrics.read(
        "koordsched_gangs",
        "Gangs by state: nothing defines them, pods are missing, they wait for room, are being bound, are bound.",
        lambda: _states(plugin),
        ("state",),
        of_leader=True,
    )
    metrics.read(
        "koordsched_gang_oldest_wait_seconds",
        "Age of the oldest gang that has its pods and waits for room; 0 if none does.",
        lambda: _oldest_wait(plugin),
        of_leader=True,
    )


def _states(plugin: Coscheduling) -> dict[str, int]:
    found = dict.fromkeys((UNDEFINED, INCOMPLETE, PENDING, PLACED, BOUND), 0)
    for gang in plugin.cache.gangs.values():
        found[state_of(gang, plugin.cache)] += 1
    return found


def _oldest_wait(plugin: Coscheduling) -> float:
    cache, now = plugin.cache, plugin.handle.clock.wall()
    waiting = [
        gang.created
        for gang in cache.gangs.values()
        if gang.options is not None
        and gang.pending
        and len(gang.bound) < gang.options.min
        and not cache.shortcomings.hold(gang.group)
    ]
    return max(now - min(waiting), 0.0) if waiting else 0.0
