"""Whoever has the highest total is chosen, each with the same chance, whatever is remembered."""

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordsched.framework.bestrows import BestRows

INFEASIBLE = -1
DRAWS = 8_000


@pytest.mark.parametrize(
    "totals",
    [
        pytest.param([7] * 8, id="all alike"),
        pytest.param([INFEASIBLE, 3, 9, 9, 3, 9, 9, INFEASIBLE], id="half of them"),
        pytest.param([0, 5, *[0] * 96, 5, 4], id="two of a hundred"),
        pytest.param([INFEASIBLE, INFEASIBLE, 0], id="one"),
    ],
)
@pytest.mark.parametrize("pods_before", [0, 1, 2])
def test_every_leader_has_the_same_chance(totals, pods_before):
    totals, rng = np.array(totals, dtype=np.int16), Random(4711)
    best_rows, drawn = BestRows(), Counter()
    for _ in range(DRAWS):
        best_rows.forget()
        for _ in range(pods_before):
            best_rows.pick(totals, rng)
        drawn[best_rows.pick(totals, rng)] += 1
    best = np.flatnonzero(totals == totals.max()).tolist()
    assert sorted(drawn) == best
    share = DRAWS / len(best)
    assert all(abs(count - share) < 5 * share**0.5 for count in drawn.values())


changes = st.one_of(
    st.tuples(st.just("one row"), st.integers(0, 19), st.integers(INFEASIBLE, 4)),
    st.tuples(st.just("all rows"), st.lists(st.integers(INFEASIBLE, 4), min_size=20, max_size=20)),
)


@given(st.integers(0, 2**32), st.lists(changes, max_size=40))
@settings(max_examples=200, deadline=None)
def test_the_one_chosen_always_has_the_highest_total(seed, happening):
    rng, best_rows = Random(seed), BestRows()
    totals = np.zeros(20, dtype=np.int16)
    for what, *change in happening:
        if what == "all rows":
            totals = np.array(change[0], dtype=np.int16)
            best_rows.forget()
        else:
            row, total = change
            if total > totals[row]:
                best_rows.rises_to(total)
            totals[row] = total
        for _ in range(rng.randrange(4)):
            assert totals[best_rows.pick(totals, rng)] == totals.max()


def test_one_that_fell_behind_is_not_listed_again():
    totals, rng, best_rows = np.array([5, 5, 5, 1], dtype=np.int16), Random(1), BestRows()
    placed = []
    for _ in range(3):
        row = best_rows.pick(totals, rng)
        totals[row] = 2
        placed.append(row)
    assert sorted(placed) == [0, 1, 2]
    assert best_rows.pick(totals, rng) in (0, 1, 2)
