"""What a part of a GPU is worth: the share of a whole GPU's worth that the best set of tasks that fits into it has.

Tasks are worth what they are in the best packing of all tasks into as few GPUs as possible, by linear programming: the
dual of the cutting stock problem. So the rest of a GPU beside a task of 81 % is worth nothing where hardly any task is
that small, and half a GPU is worth half where tasks of 47 % abound.

Source: P. C. Gilmore and R. E. Gomory, A linear programming approach to the cutting-stock problem, Operations Research
9 (1961): the simplex method, where a column is a way to fill a GPU, and the best column is found as a knapsack.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]

WHOLE = 100
"""Parts of GPUs are counted in per cent."""

_MOST_STEPS = 1000
_EPSILON = 1e-9


def worth(tasks: Float) -> Float:
    """float[101]: the worth of 0 to 100 % of a GPU, from 0 to 1, never falling.

    `tasks`: float[101], how many tasks ask for 0 to 100 % of a GPU each; one for several GPUs counts once per GPU.
    """
    sizes = np.flatnonzero(tasks)
    sizes = sizes[sizes > 0]
    if not len(sizes):
        sizes, amounts = np.array((WHOLE,)), np.ones(1)
    else:
        amounts = tasks[sizes]
    # The basis: at first each size in GPUs of its own. `used`: GPUs filled in each way of the basis.
    inverse = np.diag(1.0 / (WHOLE // sizes))
    used = inverse @ amounts
    values, last = _knapsack(sizes, inverse.sum(axis=0))
    for _ in range(_MOST_STEPS):
        if values[WHOLE] <= 1 + _EPSILON:
            break
        direction = inverse @ _filling(sizes, last)
        enters = direction > _EPSILON
        ratios = np.full(len(sizes), np.inf)
        ratios[enters] = used[enters] / direction[enters]
        leaves = int(ratios.argmin())
        inverse[leaves] /= direction[leaves]
        used[leaves] /= direction[leaves]
        direction[leaves] = 0
        inverse -= np.outer(direction, inverse[leaves])
        used = np.maximum(used - direction * used[leaves], 0)
        values, last = _knapsack(sizes, inverse.sum(axis=0))
    values /= values[WHOLE]
    return values


def _knapsack(sizes: Int, prices: Float) -> tuple[Float, list[int]]:
    """(the value of the best set of tasks for each capacity, the position of a task of it, -1 for a part unused)."""
    values = np.zeros(WHOLE + 1)
    last = [-1] * (WHOLE + 1)
    fitting = np.searchsorted(sizes, np.arange(WHOLE + 1), side="right").tolist()
    for capacity in range(1, WHOLE + 1):
        value = values[capacity - 1]
        if count := fitting[capacity]:
            candidates = values[capacity - sizes[:count]] + prices[:count]
            best = int(candidates.argmax())
            if candidates[best] > value + _EPSILON:
                value, last[capacity] = candidates[best], best
        values[capacity] = value
    return values, last


def _filling(sizes: Int, last: list[int]) -> Float:
    """How many tasks of each size the best set for a whole GPU has."""
    counts = np.zeros(len(sizes))
    left = WHOLE
    while left:
        if last[left] < 0:
            left -= 1
        else:
            counts[last[left]] += 1
            left -= int(sizes[last[left]])
    return counts
