"""The volume plugins, one by one, decide as the naive reference on random cluster states."""

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koordsched.framework.interface import CycleState
from koordsched.framework.status import Code
from tests.plugins.harness import Bench
from tests.reference.plugins import REGISTRY
from tests.reference.randomvolumes import RandomVolumes
from tests.reference.status import SKIP, Status
from tests.reference.world import World

PLUGINS = ("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone")

seeds = st.integers(min_value=0, max_value=2**32 - 1)
unhurried = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def shuffled_bench(rng, objects, late):
    """Objects in any order, before or after the plugins exist: what they keep must not depend on it."""
    order = list(objects)
    rng.shuffle(order)
    bench = Bench(*order[: 0 if late else len(order)])
    plugins = {name: bench.plugin(name) for name in PLUGINS}
    for item in order if late else ():
        bench.add(item)
    return bench, plugins


@unhurried
@given(seed=seeds)
def test_each_plugin_answers_as_the_reference(seed):
    rng = Random(seed)
    state = RandomVolumes(rng, rng.randint(1, 7))
    placed = state.cluster(8)
    wanted = state.pod("p")
    objects = [*placed, *(item for item in state.objects if item not in placed)]
    world = World(objects)
    bench, plugins = shuffled_bench(rng, objects, late=rng.random() < 0.5)
    for name, plugin in plugins.items():
        naive = REGISTRY[name]({})
        expected = naive.pre_filter(wanted, world)
        pod = bench.pod(wanted)
        answer = plugin.pre_filter(CycleState(pod), pod)
        if expected is SKIP:
            assert answer.code is Code.SKIP, name
        elif isinstance(expected, Status):
            assert Status(answer.code.text, answer.reasons) == expected, name
        else:
            assert answer.ok, (name, answer)
            verdicts = {node["metadata"]["name"]: naive.filter(wanted, node, world) for node in world.nodes}
            assert bench.filter(plugin, wanted) == {n: v and (v.code, *v.reasons) for n, v in verdicts.items()}, name
