"""How siblings share one resource, in whole steps (milli-CPU, bytes, devices): elasticquota spec 3.5 and 3.7."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Stake(NamedTuple):
    """One sibling's claim to a resource.

    `floor` is guaranteed: with a request above it, the sibling takes part in the distribution of the rest by its
    `weight`; with one below it, what is not requested is free for the others, if it lends.
    """

    weight: int
    request: int
    floor: int
    lent: bool


def redistribute(available: int, stakes: Sequence[Stake]) -> list[int]:
    """What each of the siblings, given in the order of their names, may use.

    The rest is shared by weight, exactly; steps that cannot be divided go to the largest remainders, then by name.
    A quota that gets more than it requests gives the excess back for the next round. What no quota requests stays
    undistributed. If the floors exceed what is available, each quota keeps its floor.
    """
    runtimes: list[int] = []
    hungry: list[int] = []
    for index, stake in enumerate(stakes):
        if stake.request > stake.floor:
            runtimes.append(stake.floor)
            if stake.weight > 0:
                hungry.append(index)
        else:
            runtimes.append(stake.request if stake.lent else stake.floor)
    left = available - sum(runtimes)
    while left > 0 and hungry:
        total = sum(stakes[index].weight for index in hungry)
        parts = [divmod(stakes[index].weight * left, total) for index in hungry]
        indivisible = left - sum(part for part, _ in parts)
        extra: set[int] = set()
        if indivisible:
            by_remainder = sorted(range(len(parts)), key=lambda position: -parts[position][1])
            extra.update(by_remainder[:indivisible])
        left = 0
        still_hungry: list[int] = []
        for position, index in enumerate(hungry):
            runtime = runtimes[index] + parts[position][0] + (position in extra)
            request = stakes[index].request
            if runtime >= request:
                left += runtime - request
                runtime = request
            else:
                still_hungry.append(index)
            runtimes[index] = runtime
        hungry = still_hungry
    return runtimes


def scale(minimum: int, available: int, total: int) -> int:
    """A min when the siblings' mins add up to `total` and only `available` is there (truncated double arithmetic)."""
    if available >= total:
        return minimum
    if available <= 0 or total <= 0:
        return 0
    try:
        return int(float(available) * float(minimum) / float(total))
    except (OverflowError, ValueError):
        return available * minimum // total  # beyond what a double can be
