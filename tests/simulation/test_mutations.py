"""The simulation finds deliberate defects (tests/simulation/mutations/), each within 200 seeds."""

import pytest

from tests.simulation import simulation
from tests.simulation.mutations import MUTATIONS, WORLDS, mutated

MOST_SEEDS = 200


def first_caught(name):
    """(seed, what was violated) of the first seed that fails with the defect; None if none does."""
    with mutated(name):
        for number in range(MOST_SEEDS):
            seed = f"{number}+{WORLDS[name]}" if name in WORLDS else number
            outcome = simulation.run(seed)
            if outcome.failed:
                return seed, outcome.violations[0]
    return None


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_defect_is_caught(name):
    caught = first_caught(name)
    assert caught is not None, f"{name} survived {MOST_SEEDS} seeds"
    assert not any(error in caught[1] for error in ("TypeError", "AttributeError")), f"{name} does not fit the code"
    print(f"{name}: seed {caught[0]}: {caught[1]}")


@pytest.mark.parametrize("name", MUTATIONS)
def test_there_is_something_to_spoil(name):
    """Code moves on; its defects have to follow."""
    where, attribute, _ = MUTATIONS[name]
    sound = getattr(where, attribute)
    with mutated(name):
        assert getattr(where, attribute) is not sound
    assert getattr(where, attribute) is sound


def test_the_coarsest_defects_are_caught_at_once():
    for name in ("assumed-twice", "unschedulable-pods-never-woken", "confirmation-of-an-assumed-pod-ignored"):
        with mutated(name):
            assert any(simulation.run(seed).failed for seed in range(10)), name
