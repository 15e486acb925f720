"""Best fit: an order of devices in which small ones come first, and those whose loss costs others least (dra spec L1).

A search takes the first devices that will do. With the devices arranged so before it begins, these are

1. the smallest: by the largest share that a device has of a capacity (of the most that any device of the node has) or
   of a counter (of all that there is); of a shared device counts what is left of it,
2. of partitions that are equally large those where least is left of the counters, so that whole cards stay whole,
3. then those after which the fewest of the other partitions cannot be had any more,

and then the first, as without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

import numpy as np

from koordsched.plugins.dynamicresources.structured.ground import Ground
from koordsched.plugins.dynamicresources.structured.plans import Plan, arranged

_CounterSet = tuple[int, str]
"""The number of a usable pool, and the name of a set of counters."""

_COMPARED = 512
"""So many partitions of a set of counters are compared with each other; more are not."""


class ArrangedPlan(Plan):
    """A plan with its devices in another order: for each position, that in the plan."""

    __slots__ = ("_pools",)

    def __init__(self, plan: Plan, order: Sequence[int]) -> None:
        self.number = plan.number
        self.kinds = [plan.kinds[at] for at in order]
        self.every = plan.every
        self.partial = plan.partial
        self.pools = plan.pools
        self.usable = plan.usable
        self.counters = plan.counters
        self.troubles = plan.troubles
        self.multi = arranged(plan.multi, order)
        self.counted = arranged(plan.counted, order)
        self.known = [0] * len(plan.known)
        self.suited = [0] * len(plan.known)
        self.failed = [0] * len(plan.known)
        self._pools = [plan.pool_of(at) for at in order]

    def pool_of(self, position: int) -> int:
        """The number of the device's pool among the usable ones."""
        return self._pools[position]


def best_fit(plan: Plan, ground: Ground) -> list[int]:
    """The positions of a plan, the best first, given what is in use."""
    sizes, harm = _sizes(plan, ground), _harm(plan, ground)
    left = [_left(plan, ground, position) for position in range(len(plan.kinds))]
    return sorted(range(len(plan.kinds)), key=lambda at: (sizes[at], left[at], harm[at], at))


def _sizes(plan: Plan, ground: Ground) -> list[float]:
    """How large a device is, from 0 to 1; 1 if nothing is known about that."""
    largest: dict[str, int] = {}
    for kind in plan.kinds:
        for name, limit in kind.limits.items():
            largest[name] = max(largest.get(name, 1), limit)
    sizes = []
    for position, kind in enumerate(plan.kinds):
        shared = ground.shared.get(position)
        consumed = shared.consumed if shared is not None else {}
        shares = [(limit - consumed.get(name, 0)) / largest[name] for name, limit in kind.limits.items()]
        if kind.equipment.model.counters:
            total = plan.counters[plan.pool_of(position)]
            shares += [amount / total[key] for key, amount in kind.equipment.model.counters if total.get(key, 0) > 0]
        sizes.append(max(shares, default=1.0))
    return sizes


def _left(plan: Plan, ground: Ground, position: int) -> float:
    """The largest share that is left of the counters that a partition takes, from 0 to 1; 0 for other devices."""
    counters = plan.kinds[position].equipment.model.counters
    if not counters:
        return 0.0
    pool = plan.pool_of(position)
    total, available = plan.counters[pool], ground.available[pool]
    shares = [available[key] / total[key] for key, amount in counters if amount > 0 and total.get(key, 0) > 0]
    return max(shares, default=0.0)


def _harm(plan: Plan, ground: Ground) -> list[int]:
    """How many of the other partitions that can be had now could not be had after a device."""
    harm = [0] * len(plan.kinds)
    for (pool, name), members in _partitions(plan, ground).items():
        if not 1 < len(members) <= _COMPARED:
            continue
        keys = sorted(key for key in plan.counters[pool] if key[0] == name)
        rows = [dict(plan.kinds[at].equipment.model.counters) for at in members]
        needs = [[row.get(key, 0) for key in keys] for row in rows]
        left = [ground.available[pool][key] for key in keys]
        # Billionths may be beyond int64; what all are multiples of does not matter.
        unit = gcd(*left, *(amount for row in needs for amount in row)) or 1
        scaled = [[amount // unit for amount in row] for row in (left, *needs)]
        if max(map(max, scaled)) >= 1 << 62:
            continue
        table = np.array(scaled, dtype=np.int64)
        lost = (table[1:, None, :] > (table[0] - table[1:])[None, :, :]).any(axis=2)
        np.fill_diagonal(lost, False)
        for at, number in zip(members, lost.sum(axis=0).tolist(), strict=True):
            harm[at] += number
    return harm


def _partitions(plan: Plan, ground: Ground) -> dict[_CounterSet, list[int]]:
    """The devices that can be had of each set of counters, by position."""
    found: dict[_CounterSet, list[int]] = {}
    for position, kind in enumerate(plan.kinds):
        counters = kind.equipment.model.counters
        if not counters or ground.used >> position & 1:
            continue
        pool = plan.pool_of(position)
        if all(ground.available[pool].get(key, 0) >= amount for key, amount in counters):
            for name in dict.fromkeys(key[0] for key, _ in counters):
                found.setdefault((pool, name), []).append(position)
    return found
