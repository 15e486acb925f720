"""Many seeds, in chunks that test workers can share out; `make verify` runs more than `make test`, and
`make simulate SEEDS=1000` still more."""

import os
import subprocess
import sys

import pytest

from tests.depth import quick_first
from tests.simulation import simulation

SEEDS, QUICK, CHUNK = 300, 5, 5
RESERVED = 100
"""Seeds of worlds that have Reservations in any case."""
GANGED = 100
"""Seeds of worlds that have gangs in any case; of the first ones without that, every fourth has."""
CLAIMED = 100
"""Seeds of worlds whose pods claim devices in any case."""
FOUND = [3102, 3029, "305+reservations", "534+reservations"]
"""Seeds that found something which nothing else shows as directly."""
SAME = [[1], [60_009, 60_014], *(list(range(first, first + 4)) for first in (0, 4, 60_009, 60_013))]


@pytest.mark.parametrize("first", quick_first(range(0, SEEDS, CHUNK), QUICK // CHUNK))
def test_invariants_hold_under_faults(first):
    bindings = 0
    for seed in range(first, first + CHUNK):
        outcome = simulation.run(seed)
        assert not outcome.failed, outcome.report()
        bindings += outcome.bindings
    assert bindings > CHUNK  # something happened


@pytest.mark.parametrize("first", quick_first(range(0, RESERVED, 2), 1))
def test_invariants_hold_where_room_is_reserved(first):
    for seed in range(first, first + 2):
        outcome = simulation.run(f"{seed}+reservations")
        assert not outcome.failed, outcome.report()


@pytest.mark.parametrize("first", quick_first(range(0, GANGED, CHUNK), 0))
def test_invariants_hold_where_pods_are_placed_together(first):
    for seed in range(first, first + CHUNK):
        outcome = simulation.run(f"{seed}+gangs")
        assert not outcome.failed, outcome.report()


@pytest.mark.parametrize("first", quick_first(range(0, CLAIMED, CHUNK), 0))
def test_invariants_hold_where_devices_are_claimed(first):
    for seed in range(first, first + CHUNK):
        outcome = simulation.run(f"{seed}+claims")
        assert not outcome.failed, outcome.report()


@pytest.mark.parametrize("seed", quick_first(FOUND, 1))
def test_what_was_found_once_stays_cured(seed):
    outcome = simulation.run(seed)
    assert not outcome.failed, outcome.report()


@pytest.mark.parametrize("seeds", quick_first(SAME, 1))
def test_a_seed_takes_the_same_steps_whatever_the_hash_seed(seeds):
    """No decision depends on the order of a set: two interpreters with other hashes agree on every step."""
    program = f"from tests.simulation import simulation; print([simulation.run(seed).digest for seed in {seeds}])"
    digests = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert digests[0] == digests[1] != ""
    assert digests[0].strip() == str([simulation.run(seed).digest for seed in seeds])
