"""Seeds for random states: fresh ones in every run of `make verify`, always the same ones in `make test`.

A run that decides whether a change lands must not fail for what the change did not touch. KOORDSCHED_TEST_SEED fixes
the seed of the run; it is printed in the header, and the seed of a state in the name of its test.
KOORDSCHED_TEST_SECONDS is how long the tests with a time budget look for a state that is decided wrongly.
"""

import os
from random import Random, SystemRandom

from tests import depth

SEED, SECONDS = "KOORDSCHED_TEST_SEED", "KOORDSCHED_TEST_SECONDS"
QUICK_SEED = 20300101


def choose_seed():
    """Settles the seed of this run, also for processes started from here; returns it."""
    chosen = QUICK_SEED if depth.quick else SystemRandom().randrange(2**32)
    return int(os.environ.setdefault(SEED, str(chosen)))


def seconds():
    """The time budget."""
    return float(os.environ.get(SECONDS, 60.0))


def seed_stream(name):
    """The seeds of this run for the tests of that name, without end."""
    rng = Random(f"{choose_seed()} {name}")
    while True:
        yield rng.randrange(2**32)


def fresh_seeds(name, count):
    """The first of them; half as many in a quick run, in which they are the same every time."""
    count = (count + 1) // 2 if depth.quick else count
    return [seed for seed, _ in zip(seed_stream(name), range(count), strict=False)]
