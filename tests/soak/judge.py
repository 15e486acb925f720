"""What a soak must show."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from tests.soak.sampling import Readings, Sample

WINDOWS = 5
"""The time after warm-up is cut into so many windows; the first and the last are compared."""

MOST_GROWTH = 0.05
"""Of the median of memory, from the first to the last window."""

MOST_SILENT = 0.001
"""Share of the bindings that may have no Event: when an answer was lost and the pod was deleted before it could be read
back, nobody knows that it had been bound."""

LEAST_RATE = 0.98
"""Share of the pods asked for that must have been made."""


class Outcome(msgspec.Struct):
    """What was seen after the load had ended.

    `unbound`: pods that never got a node although there was room; `silent`: bound pods without an Event that says so;
    `wrong`: what must never be and was; `idle_before`, `idle_after`: the scheduler at rest, before the first pod and
    after the last.
    """

    idle_before: Readings
    idle_after: Readings
    unbound: list[str]
    silent: list[str]
    wrong: list[str]


class Verdict(msgspec.Struct):
    """One question and its answer."""

    question: str
    passed: bool
    found: str


def windows(samples: Sequence[Sample], warm_up: float) -> list[list[Sample]]:
    """The samples under load after so many seconds, in windows of equal length."""
    counted = [sample for sample in samples if sample.busy and sample.seconds >= warm_up]
    if not counted:
        return []
    first, last = counted[0].seconds, counted[-1].seconds
    width = (last - first) / WINDOWS or 1.0
    found: list[list[Sample]] = [[] for _ in range(WINDOWS)]
    for sample in counted:
        found[min(int((sample.seconds - first) / width), WINDOWS - 1)].append(sample)
    return found


def growth(before: float, after: float) -> float:
    """As a share of what was before."""
    return after / before - 1 if before else 0.0


def judge(
    samples: Sequence[Sample], outcome: Outcome, *, warm_up: float, rate: float, most_growth: float = MOST_GROWTH
) -> list[Verdict]:
    """Every question with its answer. Raises ValueError if there are not enough samples to answer."""
    found = windows(samples, warm_up)
    if not found or not all(found):
        raise ValueError("too few samples after the warm-up to compare")
    memory = [median(sample.memory for sample in window) for window in found]
    tasks = [median(sample.tasks for sample in window) for window in found]
    grown = growth(memory[0], memory[-1])
    begun, ended = found[0][0], found[-1][-1]
    made = (ended.created - begun.created) / (ended.seconds - begun.seconds)
    before, after = outcome.idle_before, outcome.idle_after
    dropped = after.events_dropped - before.events_dropped
    return [
        Verdict(
            f"memory is flat: below {most_growth:.0%} from the first window to the last",
            grown < most_growth,
            f"{grown:+.1%}; medians in MiB: {', '.join(f'{kib / 1024:.1f}' for kib in memory)}",
        ),
        Verdict(
            "no task is left behind",
            after.tasks <= before.tasks,
            f"at rest {before.tasks} before, {after.tasks} after; medians under load: "
            + ", ".join(f"{number:g}" for number in tasks),
        ),
        Verdict("queues are empty at the end", after.left == 0, _what_is_left(after)),
        Verdict("every pod with room was bound", not outcome.unbound, _some(outcome.unbound)),
        Verdict("nothing was over-committed, bound twice or moved", not outcome.wrong, _some(outcome.wrong)),
        Verdict(
            "every binding has its Event (but for one in a thousand)",
            len(outcome.silent) <= MOST_SILENT * samples[-1].bound and not dropped,
            f"{dropped} lost; of {samples[-1].bound} bindings without: {_some(outcome.silent)}",
        ),
        Verdict(f"{rate:g} pods per second were made", made >= LEAST_RATE * rate, f"{made:.1f} per second"),
    ]


def _what_is_left(readings: Readings) -> str:
    return (
        f"{readings.waiting} pods, {readings.assumed} assumed, {readings.in_flight_events} events in flight, "
        f"writes {readings.writes}, {readings.events_waiting} Events"
    )


def _some(items: Sequence[str]) -> str:
    return f"{len(items)}: {'; '.join(items[:5])}" if items else "none missing or wrong"
