"""What a pick costs on a large machine: nothing in it may take time per pair of CPUs."""

import random
import time

import pytest

from koordsched.plugins.nodenumaresource.cpupick import take
from koordsched.plugins.nodenumaresource.policies import AllocateStrategy, BindPolicy, ExclusivePolicy
from tests.plugins.nodenumaresource.topologies import machine

LIMIT = 100e-6
"""Seconds per pick."""


def occupied(topology, share, rng):
    """CPUs that are available: a share of the cores is in use, some of those with one CPU only."""
    free = topology.cpus
    for core in topology.cores:
        if rng.random() < share:
            free &= ~(core if rng.random() < 0.8 else core & -core)
    return free


@pytest.mark.slow
@pytest.mark.parametrize("linux", [False, True])
@pytest.mark.parametrize("exclusive", list(ExclusivePolicy))
@pytest.mark.parametrize("bind", [BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS])
@pytest.mark.parametrize(("count", "share"), [(4, 0.5), (16, 0.3), (48, 0.1), (7, 0.9), (96, 0.2), (150, 0.1)])
def test_208_cpus(count, share, bind, exclusive, linux):
    rng = random.Random(1)
    topology = machine(2, 2, 26, linux=linux)
    situations = [occupied(topology, share, rng) for _ in range(50)]
    best = float("inf")
    for _ in range(7):
        start = time.process_time()
        for free in situations:
            take(topology, free, count, bind, exclusive, AllocateStrategy.LEAST_ALLOCATED)
        best = min(best, time.process_time() - start)
    assert best / len(situations) < LIMIT
