"""What docs/reliability.md lists as faults comes to pass, and the scheduler notices it, within 200 seeds."""

import pytest

from tests.simulation.occurrences import KINDS, count

MOST_SEEDS = 200


@pytest.mark.slow
def test_every_fault_occurs_and_is_noticed():
    missing = set(KINDS)
    for seed in range(MOST_SEEDS):
        missing -= set(count(seed))
        if not missing:
            break
    assert not missing
