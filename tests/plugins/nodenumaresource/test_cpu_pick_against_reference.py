"""Picks on random machines next to a naive one."""

import random

import pytest

from koordsched.plugins.nodenumaresource.cpupick import Taken, take, take_preferring
from koordsched.plugins.nodenumaresource.policies import AllocateStrategy, BindPolicy, ExclusivePolicy
from koordsched.plugins.nodenumaresource.topology import CPUTopology
from koordsched.plugins.shared import cpuset
from tests.depth import quick_first
from tests.plugins.nodenumaresource.naive_cpus import Naive, naive_preferring, random_machine, random_use

EACH = 100
"""Machines per test."""


def a_situation(rng):
    """CPUs of a machine, those available, Taken, and the same for the naive one."""
    cpus = random_machine(rng)
    used = random_use(rng, cpus)
    available = {cpu for cpu, *_ in cpus} - used
    holders = {}
    if rng.random() < 0.2:
        holders = {cpu: rng.randint(1, 3) for cpu in sorted(used)}
        available |= {cpu for cpu, pods in holders.items() if pods < 3}
    policy_of = {cpu: rng.choice(("None", "None", "PCPULevel", "NUMANodeLevel")) for cpu in sorted(used)}
    if rng.random() < 0.3:
        policy_of = {}
    by_policy = {
        policy: {cpu for cpu in policy_of if policy_of[cpu] == policy} for policy in ("PCPULevel", "NUMANodeLevel")
    }
    taken = Taken(
        allocated=cpuset.of(used),
        pcpu_level=cpuset.of(by_policy["PCPULevel"]),
        numa_node_level=cpuset.of(by_policy["NUMANodeLevel"]),
        holders=holders,
    )
    return cpus, available, taken, {"exclusive_by_policy": by_policy, "holders": holders}


def counts(rng, cpus, available):
    """Numbers of CPUs: few, some, about what a NUMA node or socket has, nearly all, one too many."""
    places = len({node for *_, node in cpus}), len({socket for _, _, socket, _ in cpus})
    near = len(cpus) // rng.choice(places) + rng.randint(-2, 6)
    most = len(available)
    return {rng.randint(1, 8), rng.randint(1, max(most, 1)), max(near, 1), max(most - rng.randint(0, 2), 1), most + 1}


@pytest.mark.parametrize("seed", quick_first(range(100), 4))
def test_picks_equal_those_of_a_naive_one(seed):
    rng = random.Random(seed)
    for _ in range(EACH):
        cpus, available, taken, told = a_situation(rng)
        topology = CPUTopology(cpus)
        for count in sorted(counts(rng, cpus, available)):
            bind = rng.choice(list(BindPolicy))
            exclusive = rng.choice(list(ExclusivePolicy))
            strategy = rng.choice(list(AllocateStrategy))
            pick = take(topology, cpuset.of(available), count, bind, exclusive, strategy, taken)
            naive = Naive(cpus, set(available), count, str(bind), str(exclusive), str(strategy), **told)
            assert pick == naive.picked()
            assert len(set(pick) & available) == len(pick) == (count if count <= len(available) else 0)


@pytest.mark.parametrize("seed", quick_first(range(1000, 1010), 2))
def test_preferred_cpus_equal_those_of_a_naive_one(seed):
    rng = random.Random(seed)
    for _ in range(EACH):
        cpus, available, taken, told = a_situation(rng)
        topology = CPUTopology(cpus)
        preferred = {cpu for cpu, *_ in cpus if rng.random() < 0.3}
        for count in sorted(counts(rng, cpus, available)):
            choice = [rng.choice(list(policy)) for policy in (BindPolicy, ExclusivePolicy, AllocateStrategy)]

            def naive(free, n, cpus=cpus, choice=choice, told=told):
                return Naive(cpus, set(free), n, *map(str, choice), **told).picked()

            pick = take_preferring(topology, cpuset.of(available), count, *choice, taken, cpuset.of(preferred))
            assert pick == naive_preferring(preferred, available, count, naive)
