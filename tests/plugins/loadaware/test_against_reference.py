"""Verdicts, reasons and scores as the naive reference has them, on random nodes, reports and pods."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.depth import examples
from tests.parity.fresh import fresh_seeds
from tests.plugins.loadaware.world import NOW, World
from tests.reference.plugins.loadawarescheduling import LoadAwareScheduling
from tests.reference.randomloads import RandomLoads
from tests.reference.randomstate import RandomState
from tests.reference.world import World as Plain


def a_cluster(rng):
    """(arguments, objects, pods that wait)."""
    loads, state = RandomLoads(rng), RandomState(rng)
    args = loads.args()
    nodes = [loads.on_node(state.node(f"n{i}")) for i in range(rng.randint(1, 6))]
    placed, metrics = [], []
    for node in nodes:
        name = node["metadata"]["name"]
        here = [loads.on_pod(state.pod(f"{name}-{i}", on=name), NOW) for i in range(rng.randint(0, 5))]
        placed += here
        if loads.maybe(0.9):
            metrics.append(loads.metric(node, here, NOW))
    objects = [*nodes, *placed, *metrics]
    rng.shuffle(objects)
    return args, objects, [loads.on_pod(state.pod(f"w{i}"), NOW) for i in range(6)]


def compare(seed):
    """Decides a cluster both ways; returns how many nodes were refused, and scored above 0."""
    args, objects, waiting = a_cluster(Random(seed))
    world, plain, naive = World(*objects, args=args), Plain(objects), LoadAwareScheduling(args)
    refused = scored = 0
    for pod in waiting:
        verdicts = {node["metadata"]["name"]: naive.filter(pod, node, plain) for node in plain.nodes}
        expected = {name: status and status.reasons[0] for name, status in verdicts.items()}
        assert world.estimate(pod) == naive.estimate(pod)
        assert world.refusals(pod) == expected
        scores = {node["metadata"]["name"]: naive.score(pod, node, plain, plain.nodes) for node in plain.nodes}
        assert world.scores(pod) == scores
        refused += sum(reason is not None for reason in expected.values())
        scored += sum(score > 0 for score in scores.values())
    return refused, scored


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32 - 1))
def test_as_the_reference(seed):
    compare(seed)


@pytest.mark.parametrize("seed", fresh_seeds("loads", 20))
def test_as_the_reference_on_fresh_seeds(seed):
    compare(seed)


def test_all_that_can_be_said_is_said():
    """The random clusters are such that much is refused, and much is not."""
    refused, scored = map(sum, zip(*map(compare, range(12)), strict=True))
    assert refused > 20
    assert scored > 20
