"""On random clusters the scheduler decides as the naive reference, plugin by plugin, one pod after the other."""

import time
from random import Random

import pytest

from tests.parity.comparing import bind, decided_alike, key
from tests.parity.fresh import SEED, choose_seed, fresh_seeds, seconds, seed_stream
from tests.plugins.harness import StoppedClock, scheduler
from tests.reference.profile import profiles_of
from tests.reference.randomconfig import random_config
from tests.reference.randomeverything import RandomEverything
from tests.reference.randomloads import RandomLoads
from tests.reference.world import World

NAME, NOW = "LoadAwareScheduling", StoppedClock().wall()
SMALL, MEDIUM, HUNDRED, LARGE = (1, 8), (20, 60), (100, 150), (200, 500)
"""Numbers of nodes. The naive side takes up to a minute for a large cluster."""


def play(seed, size, attempts=5):
    """Equivalent pods of a few pods, so that later ones find what was computed for the first; nodes change in
    between."""
    rng = Random(seed)
    count = rng.randint(*size)
    state = RandomEverything(rng, count)
    config = random_config(rng)
    if rng.random() < 0.5:
        state = WithLoads(rng, state)
        config = state.configured(config)
    kinds = [state.pod(f"kind{i}") for i in range(4)]
    objects = state.cluster(2 * count + 4)
    world, offline = World(objects), scheduler(objects, config)
    profile = profiles_of({"profiles": [config]})["default-scheduler"]
    for pod in [*kinds, *(named(rng.choice(kinds), f"p{i}") for i in range(attempts))]:
        offline.add(pod)
        expected, _, _ = decided_alike(offline, pod, world, profile)
        if expected.feasible:
            bind(offline, key(pod), min(expected.any_of))
            world.place(pod, min(expected.any_of))
            if pod in kinds:
                # As long as a pod has the shape, what was computed for it stays.
                offline.add(named(pod, f"replica-of-{pod['metadata']['name']}"))
        if rng.random() < 0.4:
            changed = state.changed(rng.choice(world.nodes)["metadata"]["name"])
            offline.add(changed)
            world.replace(changed)


class WithLoads:
    """A random cluster whose nodes report what they use."""

    def __init__(self, rng, state):
        self.rng, self.state, self.loads = rng, state, RandomLoads(rng)
        self.pods, self.measured = [], []

    def configured(self, config):
        """The configuration with LoadAwareScheduling."""
        own = {"name": NAME, "args": self.loads.args()}
        scores = {"enabled": [*config["plugins"]["score"]["enabled"], {"name": NAME, "weight": 2}]}
        points = {**config["plugins"], "filter": {"enabled": [{"name": NAME}]}, "score": scores}
        return {**config, "plugins": points, "pluginConfig": [*config["pluginConfig"], own]}

    def pod(self, name):
        return self.loads.on_pod(self.state.pod(name), NOW)

    def node(self, name):
        return self.loads.on_node(self.state.node(name))

    def cluster(self, pods):
        objects = self.state.cluster(pods)
        objects = [self.loads.on_node(thing) if thing["kind"] == "Node" else thing for thing in objects]
        objects = [self.loads.on_pod(thing, NOW) if thing["kind"] == "Pod" else thing for thing in objects]
        self.pods = [thing for thing in objects if thing["kind"] == "Pod"]
        measured = [thing for thing in objects if thing["kind"] == "Node" and self.loads.maybe(0.9)]
        self.measured = [node["metadata"]["name"] for node in measured]
        return objects + [self.metric(node) for node in measured]

    def metric(self, node):
        here = [pod for pod in self.pods if pod["spec"]["nodeName"] == node["metadata"]["name"]]
        return self.loads.metric(node, here, NOW)

    def changed(self, name):
        """The node of this name, or the report about it, as it is from now on."""
        node = self.node(name)
        return self.metric(node) if name in self.measured and self.rng.random() < 0.6 else node


def named(pod, name):
    """The same pod under another name."""
    metadata = {**pod["metadata"], "name": name, "uid": f"uid-{name}"}
    return {**pod, "metadata": metadata}


@pytest.mark.parametrize("seed", fresh_seeds("states", 60))
def test_small_clusters(seed):
    play(seed, SMALL)


@pytest.mark.parametrize("seed", fresh_seeds("medium states", 6))
def test_medium_clusters(seed):
    play(seed, MEDIUM)


@pytest.mark.parametrize("seed", fresh_seeds("states of a hundred nodes", 2))
def test_a_hundred_nodes(seed):
    play(seed, HUNDRED, attempts=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", fresh_seeds("large states", 4))
def test_large_clusters(seed):
    play(seed, LARGE, attempts=2)


@pytest.mark.slow
def test_as_many_clusters_as_there_is_time_for():
    """KOORDSCHED_TEST_SECONDS of them, most of them small."""
    end = time.monotonic() + seconds()
    for number, seed in enumerate(seed_stream("states against the clock")):
        size = MEDIUM if number % 15 == 14 else SMALL
        try:
            play(seed, size)
        except Exception as error:
            error.add_note(f"state {number}: play({seed}, {size}); {SEED}={choose_seed()}")
            raise
        if time.monotonic() >= end:
            return
