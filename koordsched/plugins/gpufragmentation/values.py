"""What the free part of a node is worth, in GPUs. Placing a task takes some of it; the less, the better the place.

Four terms, added up:

* *worth*: of each GPU's free part (`worth.py`);
* *fragmentation* (`fragmentation.py`), which counts against the node: of its free GPUs, the part that a task of each
  class cannot use there, weighted by how frequent the class is and how scarce room for it has become;
* *reserve*: room for tasks that take several whole GPUs, as long as little of it is left. A node that has a part of the
  GPUs that such a task needs counts for less than that part: so nodes that are nearly empty are emptied, and nodes that
  are nearly full are filled;
* *balance*, which counts against the node: free CPU that is too little, or too much, for its free GPUs.

The first three depend on a GPU's free part, on the node's kind and on which classes its CPU suffices for; so they are
tables.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from koordsched.plugins.gpufragmentation.fleet import Demand, Fleet, slots
from koordsched.plugins.gpufragmentation.fragmentation import fragmentation
from koordsched.plugins.gpufragmentation.worth import WHOLE, Float, Int, worth

FRAGMENTATION = 0.05
"""The weight of fragmentation."""

MOST_SCARCE = 20.0
"""A class whose room is scarce counts at most this many times as much as another one of its frequency."""

RESERVE = 0.25
"""The worth of the room for a task of several GPUs while it is reserved, per GPU."""

SAFETY = 6.0
"""Room is reserved for this many standard deviations more than the expected tasks (square-root staffing)."""

_EPSILON = 1e-9

TOO_LITTLE, TOO_MUCH = 2e-3, 0.96e-3
"""What a core too few, or too many, counts against a node."""


class Values(NamedTuple):
    """`levels`: int64[levels], ascending: free CPU from which on another class fits. `gpu`: float64[kinds, levels + 1,
    101], by the free part of a GPU; `whole`: float64[kinds, levels + 1, minors + 1], by how many GPUs are free as a
    whole; the last kind is for nodes of a kind not known then. `balance`: cores per GPU."""

    levels: Int
    gpu: Float
    whole: Float
    balance: float

    def balanced(self, cpu: Int, gpu: Int) -> Float:
        """float64[rows]: minus what CPU out of balance counts. `gpu`: per cent of a GPU."""
        surplus = cpu / 1000 - self.balance / WHOLE * gpu
        surplus *= np.where(surplus < 0, TOO_LITTLE, -TOO_MUCH)
        return surplus


def solve(fleet: Fleet, demand: Demand, balance: float) -> Values:
    """The values of free parts, as the fleet is and for tasks such as were seen. `balance`: cores per GPU.

    `demand.allowed` has a column for nodes of a kind not known.
    """
    levels = np.unique(demand.cpu)
    kinds, minors = demand.allowed.shape[1], fleet.gpus.shape[1]
    gpu = np.zeros((kinds, len(levels) + 1, WHOLE + 1))
    whole = np.zeros((kinds, len(levels) + 1, minors + 1))
    gpu += worth(np.bincount(demand.share, weights=demand.tasks * demand.number, minlength=WHOLE + 1).astype(float))
    if len(demand.cpu):
        room = slots(fleet, demand)
        level = levels.searchsorted(demand.cpu) + 1
        in_gpu, in_whole = fragmentation(demand, _scarcity(fleet, demand, room), minors)
        gpu -= FRAGMENTATION * in_gpu
        whole -= FRAGMENTATION * in_whole
        _reserve(whole, demand, level, _shortage(fleet, demand, room))
    return Values(levels, gpu, whole, balance)


def _scarcity(fleet: Fleet, demand: Demand, room: Int) -> Float:
    """float64[classes]: the share of tasks, times the square of (free GPUs / free GPUs that the class can use)."""
    usable = np.maximum(room * demand.gpus, 1 / WHOLE)
    scarcity = (fleet.gpus.sum() / WHOLE / usable) ** 2
    weights: Float = demand.tasks / demand.tasks.sum() * np.minimum(scarcity, MOST_SCARCE)
    return weights


def _shortage(fleet: Fleet, demand: Demand, room: Int) -> Float:
    """float64[classes]: 1 if the room for tasks of several GPUs is short, 0 if there is plenty, or in between.

    Needed is room for as many tasks as are seen among those that would fill the free GPUs, and some for safety: from
    half as much again, when it begins to count, to half of it. A class uses the same room as those that are at least as
    demanding.
    """
    shares = demand.tasks / demand.tasks.sum()
    arrivals = fleet.gpus.sum() / WHOLE / (shares * demand.gpus).sum()
    shortage = np.zeros(len(shares))
    for at in np.flatnonzero((demand.number > 1) & (demand.share == WHOLE)).tolist():
        rivals = (demand.number >= demand.number[at]) & ~(demand.allowed & ~demand.allowed[at]).any(axis=1)
        expected = shares[rivals].sum() * arrivals
        needed = expected + SAFETY * np.sqrt(expected)
        shortage[at] = np.clip(1.5 - room[at] / max(needed, _EPSILON), 0, 1)
    return shortage


def _reserve(whole: Float, demand: Demand, level: Int, shortage: Float) -> None:
    """Adds the reserve to the table. Tasks of the same number of GPUs share the worth by how frequent they are."""
    free = np.arange(whole.shape[2])
    for at in np.flatnonzero(shortage).tolist():
        number = demand.number[at]
        alike = (demand.number == number) & (demand.share == WHOLE)
        part = demand.tasks[at] / demand.tasks[alike].sum()
        room = free // number + (free % number / number) ** 2
        value = RESERVE * shortage[at] * part * number * room
        whole[demand.allowed[at], level[at] :] += value
