"""How full NUMA nodes would be: one by one, and many at once."""

import numpy as np
import pytest

from koordsched.plugins.nodenumaresource.args import LEAST_ALLOCATED, MOST_ALLOCATED, AllocationStrategy
from koordsched.plugins.nodenumaresource.scoring import AllocationScore, Weighed


@pytest.mark.parametrize("kind", [LEAST_ALLOCATED, MOST_ALLOCATED])
@pytest.mark.parametrize("capacity", [0, 1, 2])
def test_one_scores_as_many_do(kind, capacity):
    """A resource of which there is none does not count, whatever else is little."""
    score = AllocationScore(kind, AllocationStrategy())
    used = [(Weighed("cpu", 500, 1), 500, 1000), (Weighed("example.com/card", 1, 3), min(1, capacity), capacity)]
    many = [(weighed, np.array([taken]), np.array([there])) for weighed, taken, there in used]
    assert score.mean_of_one(used) == score.mean(many)
