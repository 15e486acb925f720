"""On random full clusters the scheduler preempts as the naive reference: whom, where, and in which words."""

from datetime import UTC, datetime
from random import Random

import pytest

from tests.embedded import DEFAULT_CONFIG
from tests.parity.comparing import bind, decided_alike, key
from tests.parity.fresh import fresh_seeds
from tests.parity.replay import play
from tests.plugins.harness import scheduler
from tests.reference.evaluation import evaluate, priority
from tests.reference.postfilter import post_filter
from tests.reference.profile import profiles_of
from tests.reference.randompreemption import RandomFullCluster
from tests.reference.world import World
from tests.virtualtime import WALL_EPOCH, run

NARROW = {"pluginConfig": [{"name": "DefaultPreemption", "args": {"minCandidateNodesAbsolute": 2}}]}


class Sequence:
    """A cluster that both sides see, and preemptors one after the other, each with what came of those before."""

    def __init__(self, seed, config=None):
        self.rng = rng = Random(seed)
        self.state = RandomFullCluster(rng)
        objects, self.names = self.state.full_cluster(rng.randint(2, 7))
        self.profile = profiles_of({"profiles": [config or {}]})["default-scheduler"]
        self.world = World(objects)
        self.offline = scheduler(objects, config)
        self.nominated = []
        self.kinds = []
        for i in range(rng.choice([0, 0, 1, 2])):
            self.promise(self.state.nominated(f"held-{i}", self.names))

    def promise(self, pod):
        """The pod is nominated on both sides."""
        self.offline.add(pod)
        self.nominated.append((pod, pod["status"]["nominatedNodeName"]))

    def something_happens(self):
        """A pod goes, a node changes, or a budget does; mostly nothing."""
        what, rng = self.rng.random(), self.rng
        if what < 0.15 and self.world.placed:
            gone = rng.choice(self.world.placed)
            self.world.placed.remove(gone)
            self.offline.cluster.remove_pod(gone["metadata"]["uid"])
        elif what < 0.3:
            self.replace(self.state.node(rng.choice(self.names)))
        elif what < 0.45 and self.world.kind("PodDisruptionBudget"):
            budget = rng.choice(self.world.kind("PodDisruptionBudget"))
            status = {**budget["status"], "disruptionsAllowed": rng.choice([0, 1, 3])}
            self.replace({**budget, "status": status})

    def replace(self, item):
        """The object of that name is now this one, on both sides."""
        self.offline.add(item)
        self.world.replace(item)

    def preemptor(self, name):
        """A new kind of pod, or the equivalent pod of an earlier one, for which much is known already."""
        if self.kinds and self.rng.random() < 0.5:
            kind = self.rng.choice(self.kinds)
            metadata = {**kind["metadata"], "name": name, "uid": f"{kind['metadata']['namespace']}/{name}"}
            return {**kind, "metadata": metadata, "status": {}}
        self.kinds.append(self.state.preemptor(name, self.names))
        return self.kinds[-1]

    def decide(self, name):
        """One more preemptor: the same answer on both sides."""
        self.something_happens()
        pod = self.preemptor(name)
        self.offline.add(pod)
        outcome, expected, found = decided_alike(self.offline, pod, self.world, self.profile, self.nominated)
        if outcome.feasible:
            bind(self.offline, key(pod), min(outcome.any_of))
            self.world.place(pod, min(outcome.any_of))
            return
        if expected.status is not None:
            assert (found.victims, found.nominated_node) == ([], "" if expected.cleared else None)
            self.keep_or_clear(pod, expected.cleared)
            return
        assert found.nominated_node in expected.best
        victims, _ = expected.candidates[found.nominated_node]
        assert sorted(found.victims) == sorted(map(key, victims))
        self.preempt(pod, found.nominated_node, victims)

    def keep_or_clear(self, pod, cleared):
        """What becomes of the nomination that the pod brought with it."""
        if cleared:
            self.offline.nominator.delete(pod["metadata"]["uid"])
        elif "nominatedNodeName" in pod["status"]:
            self.nominated.append((pod, pod["status"]["nominatedNodeName"]))

    def preempt(self, pod, node, victims):
        """The preemption happens: victims terminate, and less important pods lose the promise of the node."""
        remaining = [victim for victim in victims if "deletionTimestamp" not in victim["metadata"]]
        for victim in remaining:
            self.offline.add(self.state.terminating(victim, preempted=True))
        for other, promised in list(self.nominated):
            if remaining and promised == node and priority(other) < priority(pod):
                self.nominated.remove((other, promised))
                self.offline.nominator.delete(other["metadata"]["uid"])
        pod["status"]["nominatedNodeName"] = node
        self.promise(pod)


@pytest.mark.parametrize("seed", fresh_seeds("preemption", 200))
def test_preemptors_one_after_the_other(seed):
    sequence = Sequence(seed)
    for i in range(6):
        sequence.decide(f"p{i}")


@pytest.mark.parametrize("seed", fresh_seeds("preemption among a few candidates", 60))
def test_only_as_many_candidates_as_wanted_are_compared(seed):
    sequence = Sequence(seed, NARROW)
    for i in range(2):
        sequence.decide(f"p{i}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", fresh_seeds("more preemption", 2000))
def test_many_more_preemptors(seed):
    test_preemptors_one_after_the_other(seed)


@pytest.mark.parametrize("seed", fresh_seeds("preemption over the API", 40))
def test_preemption_over_the_api(seed):
    """The same decisions seen from outside: the condition, the nomination, who terminates, who is told."""
    rng = Random(seed)
    state = RandomFullCluster(rng)
    objects, names = state.full_cluster(rng.randint(2, 6))
    held = [state.nominated(f"held-{i}", names) for i in range(rng.choice([0, 1, 2]))]
    pod = state.preemptor("p", names)
    pod["status"].pop("nominatedNodeName", None)  # when it changes, the pod is woken for another attempt
    world, profile = World(objects), profiles_of({})["default-scheduler"]
    nominated = [(other, other["status"]["nominatedNodeName"]) for other in held]
    outcome = evaluate(pod, world, profile, nominated)
    seen = run(play({"config": DEFAULT_CONFIG, "objects": [*objects, *held, pod]}))
    shown = seen.pod(key(pod))
    if outcome.feasible:
        assert shown["spec"]["nodeName"] in outcome.any_of
        return
    now = datetime.fromtimestamp(WALL_EPOCH, UTC)
    message, expected = post_filter(pod, world, profile, outcome, nominated, now)
    (condition,) = shown["status"]["conditions"]
    assert condition["message"] == message
    node = shown["status"].get("nominatedNodeName")
    leaving = {other for other in map(key, world.placed) if "deletionTimestamp" in seen.pod(other)["metadata"]}
    before = {key(other) for other in world.placed if "deletionTimestamp" in other["metadata"]}
    told = {event[4] for event in seen.events() if event[1] == "Preempted"}
    if expected.status is not None:
        assert (node, leaving, told) == (None, before, set())
        return
    assert node in expected.best
    victims = {key(victim) for victim in expected.candidates[node][0]}
    assert leaving == before | victims
    assert told == victims - before
    for other, promised in nominated:
        lost = promised == node and priority(other) < priority(pod) and bool(victims - before)
        assert (seen.pod(key(other))["status"].get("nominatedNodeName") is None) == lost
