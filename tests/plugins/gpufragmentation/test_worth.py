"""The worth of parts of GPUs: known cases, what must always hold, the best packing by trying everything."""

from random import Random

import numpy as np
import pytest

from koordsched.plugins.gpufragmentation.worth import worth
from tests.depth import quick_first
from tests.plugins.gpufragmentation.naive import fewest_gpus


def of(tasks):
    counts = np.zeros(101)
    for size, number in tasks.items():
        counts[size] = number
    return worth(counts)


def steps(tasks):
    """Where the worth rises, and to what."""
    found = of(tasks)
    return {at: round(found[at], 3) for at in range(1, 101) if found[at] > found[at - 1] + 1e-9}


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ({}, {100: 1}),
        ({100: 5}, {100: 1}),
        ({50: 3}, {50: 0.5, 100: 1}),
        ({81: 7}, {81: 1}),
        ({33: 2}, {33: 0.333, 66: 0.667, 99: 1}),
        # What is left beside 81 is worth something if there are enough to fill it, and to fill other GPUs.
        ({81: 10, 19: 100}, {19: 0.2, 38: 0.4, 57: 0.6, 76: 0.8, 95: 1}),
        ({81: 100, 19: 10}, {81: 1}),
        ({47: 10, 81: 10}, {47: 0.5, 81: 1}),
        ({38: 8, 57: 9}, {57: 1}),
        ({38: 9, 57: 8}, {38: 0.5, 76: 1}),
    ],
)
def test_known_cases(tasks, expected):
    assert steps(tasks) == expected


@pytest.mark.parametrize("seed", quick_first(range(20), 6))
def test_prices_are_those_of_the_best_packing(seed):
    rng = Random(seed)
    tasks = {size: rng.randint(1, 30) for size in rng.sample(range(20, 101), k=rng.randint(1, 3))}
    found = of(tasks)
    # Strong duality: no packing is better than what all tasks are worth together, and the best one is as good.
    assert sum(number * found[size] for size, number in tasks.items()) == pytest.approx(fewest_gpus(tasks))


@pytest.mark.parametrize("seed", quick_first(range(20), 6))
def test_more_is_worth_more_and_two_parts_no_more_than_the_whole(seed):
    rng = Random(seed)
    found = of({rng.randint(1, 100): rng.randint(1, 10_000) for _ in range(rng.randint(1, 60))})
    assert found[0] == 0
    assert found[100] == pytest.approx(1)
    assert (np.diff(found) >= 0).all()
    for part in range(1, 100):
        assert (found[part] + found[: 101 - part] <= found[part:] + 1e-6).all()
