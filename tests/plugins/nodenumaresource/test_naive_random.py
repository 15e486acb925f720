"""The naive model on random states: what it hands out holds together, and the states reach every verdict."""

from collections import Counter
from functools import cache

import pytest

from tests.plugins.nodenumaresource.naive import ERROR, SINGLE, SUCCESS, UAU, Attempt, Naive, U
from tests.plugins.nodenumaresource.naivemachine import Machine
from tests.plugins.nodenumaresource.naivepick import keeps_policy
from tests.plugins.nodenumaresource.randomstates import random_state

SEEDS = range(24)
PLACES = ("cpus", "numa", "both", "neither", "nothing recorded")


@cache
def answers(seed):
    return list(every_answer(seed))


def every_answer(seed):
    """(Asked, Machine, filter's Verdict, reserve's Verdict, Allocation) of every pod on every node of a state."""
    state = random_state(seed)
    model = Naive(state.args)
    machines = state.machines()
    for pod in state.pending:
        verdict, asked = model.pre_filter(pod)
        if asked is None:
            assert not verdict.passed
            continue
        for machine in machines.values():
            filtered = model.filter(asked, machine)
            reserved, allocation = model.reserve(asked, machine) if filtered.passed else (None, None)
            yield model, asked, machine, filtered, reserved, allocation


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_handed_out_holds_together(seed):
    for model, asked, machine, filtered, _, allocation in answers(seed):
        if not filtered.passed:
            continue
        assert 0 <= model.score(asked, machine) <= 100
        if allocation is None:
            continue
        attempt = Attempt(model, asked, machine)
        if asked.designated is None:
            free, _ = machine.free_cpus()
            assert allocation.cpus <= free
            for numa, zone in allocation.numa.items():
                left = machine.available({})[numa]
                assert all(amount <= left[name] for name, amount in zone.items())
        assert len(allocation.cpus) == (asked.cpu // 1000 if attempt.bind else 0)
        assert not attempt.is_required or keeps_policy(machine, allocation.cpus, attempt.policy)
        assert attempt.merged != SINGLE or len(allocation.numa) <= 1
        if allocation.numa:
            zoned = {name for zone in machine.zones.values() for name in zone} & set(asked.requests)
            sums = {name: sum(zone.get(name, 0) for zone in allocation.numa.values()) for name in zoned}
            assert sums == {name: asked.requests[name] for name in zoned}
            on = Counter(machine.cpus[cpu].numa for cpu in allocation.cpus)
            assert all(zone.get("cpu", 0) == 1000 * on[numa] for numa, zone in allocation.numa.items() if on)


def test_a_pod_that_was_placed_is_read_back_from_its_annotations():
    placed = 0
    for model, asked, machine, _, _, allocation in (answer for seed in range(4) for answer in answers(seed)):
        if allocation is None or not (allocation.cpus or allocation.numa):
            continue
        meta = asked.pod["metadata"]
        annotations = {**meta["annotations"], **model.written(asked, machine, allocation)}
        pod = {**asked.pod, "metadata": {**meta, "annotations": annotations}}
        after = Machine(machine.node, machine.topology, [*machine.pods, pod])
        if after.valid:
            placed += 1
            _, held = after.held[-1]
            assert (held.cpus, held.numa) == (allocation.cpus, allocation.numa)
    assert placed > 10


def test_random_states_reach_every_verdict():
    texts, kinds, codes = set(), Counter(), Counter()
    for seed in SEEDS:
        for _, _, _, filtered, reserved, allocation in answers(seed):
            for verdict in (filtered, reserved):
                if verdict is not None:
                    codes[verdict.code] += 1
                    texts |= {reason.partition(" cause ")[0] for reason in verdict.reasons}
            if reserved is not None and reserved.passed:
                kinds[kind_of(allocation)] += 1
    assert texts >= {
        "node(s) NUMA Topology policy not match",
        "the requested CPUs must be integer",
        "node(s) invalid CPU amplification ratio",
        "node(s) invalid CPU Topology",
        "Insufficient amplified cpu",
        "node(s) requested cpus not multiple cpus per core",
        "node(s) cpu bind policy conflicts with pod's required cpu bind policy",
        "not enough cpus available to satisfy request",
        "node(s) missing NUMA resources",
        "Unaligned NUMA Hint",
        "Unsatisfied NUMA cpu",
        "Unsatisfied NUMA memory",
        "Insufficient NUMA cpu",
    }
    assert set(codes) >= {SUCCESS, U, UAU, ERROR}
    assert all(kinds[place] > 10 for place in PLACES), kinds


def kind_of(allocation):
    if allocation is None:
        return "nothing recorded"
    if allocation.cpus and allocation.numa:
        return "both"
    return "cpus" if allocation.cpus else "numa" if allocation.numa else "neither"
