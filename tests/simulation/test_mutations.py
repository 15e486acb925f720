"""The simulation finds deliberate defects (tests/simulation/mutations/), each within 200 seeds."""

import inspect

import pytest

from tests.simulation import simulation
from tests.simulation.mutations import MUTATIONS, WORLDS, mutated

MOST_SEEDS = 200
FUNCTIONS = [name for name, (where, attribute, _) in MUTATIONS.items() if inspect.isfunction(getattr(where, attribute))]


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


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_defect_is_called_as_the_sound_code_is(name):
    """One that raises a TypeError instead looks as if it were caught."""
    where, attribute, make = MUTATIONS[name]
    sound = getattr(where, attribute)
    spoiled = make(sound)
    assert inspect.iscoroutinefunction(spoiled) == inspect.iscoroutinefunction(sound)
    takes = inspect.signature(spoiled)
    for args, kwargs in ways_to_call(sound):
        takes.bind(*args, **kwargs)


def ways_to_call(function):
    """(positional arguments, keyword arguments): with those alone that have no default, and with all."""
    parameters = [
        each
        for each in inspect.signature(function).parameters.values()
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    for chosen in ([each for each in parameters if each.default is each.empty], parameters):
        by_name = [each.name for each in chosen if each.kind is each.KEYWORD_ONLY]
        yield [None] * (len(chosen) - len(by_name)), dict.fromkeys(by_name)


COARSEST = ("assumed-twice", "unschedulable-pods-never-woken", "confirmation-of-an-assumed-pod-ignored")


@pytest.mark.parametrize("name", COARSEST)
def test_the_coarsest_defects_are_caught_at_once(name):
    short_ones_first = (3, 2, 5, 9, 4, 1, 7, 8, 0, 6)
    with mutated(name):
        assert any(simulation.run(seed).failed for seed in short_ones_first)
