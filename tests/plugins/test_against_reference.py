"""Every plugin decides as the naive reference on random cluster states, whatever form the rows come in."""

from random import Random
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koordsched.cluster import nodetable
from koordsched.framework.interface import PodFilter, PodScore, PreFilter, PreFilterResult, ShapeFilter, ShapeScore
from koordsched.framework.status import Code
from tests.plugins.harness import Bench, same_scores
from tests.reference.plugins import REGISTRY
from tests.reference.profile import profiles_of
from tests.reference.randomconfig import random_config, reference_args
from tests.reference.randomstate import RandomState
from tests.reference.status import SKIP, Status
from tests.reference.world import World

seeds = st.integers(min_value=0, max_value=2**32 - 1)
unhurried = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@unhurried
@given(seed=seeds)
def test_each_plugin_answers_as_the_reference(seed):
    rng = Random(seed)
    state = RandomState(rng)
    config = random_config(rng)
    objects = state.cluster(rng.randint(1, 8), 12)
    wanted = state.pod("p")
    world = World(objects)
    with mock.patch.object(nodetable, "SMALL_TABLE", rng.choice([0, nodetable.SMALL_TABLE])):
        bench = Bench(*objects)
    reference = profiles_of({"profiles": [config]})["default-scheduler"].plugins
    for name, naive in reference.items():
        plugin = bench.plugin(name, bench.typed_args(name, reference_args(config, name)))
        skipped = False
        if hasattr(naive, "pre_filter") and hasattr(plugin, "pre_filter_shape"):
            skipped = same_pre_filter(plugin.pre_filter_shape(bench.pod(wanted).shape), naive.pre_filter(wanted, world))
        if hasattr(naive, "filter") and isinstance(plugin, (ShapeFilter, PodFilter)) and not skipped:
            verdicts = {node["metadata"]["name"]: naive.filter(wanted, node, world) for node in world.nodes}
            expected = {node: v and (v.code, *v.reasons) for node, v in verdicts.items()}
            if isinstance(plugin, PreFilter) and naive.pre_filter(wanted, world) is SKIP:
                expected = None
            assert bench.filter(plugin, wanted) == expected, name
        if isinstance(plugin, PodScore) and hasattr(naive, "pre_score"):
            nodes = rng.sample(world.nodes, rng.randint(1, len(world.nodes)))
            same_scores(bench, plugin, naive, wanted, world, nodes)
        if isinstance(plugin, ShapeScore):
            skips = hasattr(naive, "pre_score") and naive.pre_score(wanted, world, world.nodes) is SKIP
            raw = {n["metadata"]["name"]: naive.score(wanted, n, world, world.nodes) for n in world.nodes}
            assert bench.score(plugin, wanted) == (None if skips else raw), name


def same_pre_filter(answer, naive):
    """Compares; returns whether both skip."""
    if isinstance(answer, PreFilterResult):
        assert set(answer.node_names) == naive
    elif answer.code is Code.SKIP:
        assert naive is SKIP
        return True
    elif answer.ok:
        assert naive is None
    else:
        assert naive == Status(answer.code.text, answer.reasons)
    return False


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_the_reference_knows_only_plugins_that_exist(name):
    bench = Bench()
    assert bench.plugin(name, bench.typed_args(name, {"kind": f"{name}Args"})).name == name
