"""Pods with the same selector are drawn to each other."""

from functools import cmp_to_key
from random import Random

import numpy as np
import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.config.feature_gates import NETWORK_TOPOLOGY_MANAGER
from koordsched.framework.interface import CycleState
from koordsched.framework.status import SKIP, SUCCESS
from koordsched.plugins.coscheduling.kinds import NETWORK_TOPOLOGY_SELECTOR
from koordsched.plugins.coscheduling.topology.kinds import (
    CLUSTER_NETWORK_TOPOLOGIES,
    ClusterNetworkTopology,
)
from koordsched.plugins.coscheduling.topology.selectorscore import SelectorScore, places
from koordsched.plugins.coscheduling.topology.service import network_topology
from tests.plugins.coscheduling.topology import naive
from tests.plugins.coscheduling.topology.objects import SPINES_AND_BLOCKS, T8, amounts, cluster_of, labelled, topology
from tests.plugins.coscheduling.topology.test_solver import RandomTree
from tests.plugins.objects import pod


class Scored:
    """T8, some of its nodes perhaps without labels."""

    def __init__(self, *, features=(NETWORK_TOPOLOGY_MANAGER,), unlabelled=()):
        self.state = cluster_of([])
        self.topology = network_topology(self.state, features)
        self.score = SelectorScore(self.topology)
        if features:
            thing = convert(topology(*SPINES_AND_BLOCKS), ClusterNetworkTopology)
            self.state.objects.of(CLUSTER_NETWORK_TOPOLOGIES).upsert(thing)
        for name, place in T8.items():
            place = (None, None) if name in unlabelled else place
            self.state.upsert_node(convert(labelled(name, place), core.Node))

    def pod(self, name, selector, on=None):
        made = pod(name, on=on)
        made["metadata"]["annotations"] = {NETWORK_TOPOLOGY_SELECTOR: selector} if selector else {}
        return self.state.pods.build(convert(made, core.Pod))

    def running(self, *on, selector="x"):
        for number, name in enumerate(on):
            self.state.set_pod(self.pod(f"{selector}-{number}-{name}", selector, on=name))

    def scores(self, selector, nodes):
        """The nodes from the best to the worst with their scores; None if the pod is skipped."""
        wanted = self.pod("p", selector)
        cycle = CycleState(wanted)
        rows = np.array(sorted(self.state.table.row_of[name] for name in nodes), dtype=np.intp)
        status = self.score.pre_score(cycle, wanted, rows)
        assert (status == SKIP) == self.score.abstains(cycle, wanted)
        if status == SKIP:
            return None
        assert status == SUCCESS
        raw = self.score.score(cycle, wanted, self.state.table, rows)
        found = self.score.normalize(cycle, wanted, raw)
        found = np.broadcast_to(found, len(rows)).tolist()
        order = sorted(range(len(rows)), key=lambda at: int(raw[at]))
        return {self.state.table.names[rows[at]]: found[at] for at in order}


def test_the_nodes_closest_to_others_are_best():
    made = Scored()
    made.running("node-7", "node-3")
    found = made.scores("x", T8)
    # The node itself, its block, its spine; of equals the name.
    assert list(found) == ["node-3", "node-7", "node-2", "node-6", "node-1", "node-4", "node-5", "node-8"]
    assert list(found.values()) == [100, 86, 72, 58, 43, 29, 15, 0]


def test_of_domains_with_as_many_pods_the_one_with_less_room_is_better():
    made = Scored()
    made.running("node-1", "node-4")
    assert next(iter(made.scores("x", ["node-2", "node-7", "node-3"]))) == "node-3"


def test_one_candidate_gets_everything():
    made = Scored()
    made.running("node-1")
    assert made.scores("x", ["node-5"]) == {"node-5": 100}


@pytest.mark.parametrize("selector", ["", None])
def test_other_pods_are_skipped(selector):
    assert Scored().scores(selector, T8) is None


def test_without_a_tree_all_are_skipped():
    """D14."""
    assert Scored(features=()).scores("x", T8) is None
    made = Scored()
    made.state.objects.of(CLUSTER_NETWORK_TOPOLOGIES).delete("", "default")
    assert made.scores("x", T8) is None


def test_nodes_outside_the_tree_are_last():
    """D14."""
    made = Scored(unlabelled=("node-7", "node-1"))
    made.running("node-7")
    assert list(made.scores("x", ["node-1", "node-2", "node-7"])) == ["node-2", "node-1", "node-7"]


def test_pods_come_and_go():
    made = Scored()
    made.running("node-5")
    made.running("node-2", selector="y")
    assert next(iter(made.scores("x", T8))) == "node-5"
    assumed = made.pod("a", "x")
    made.state.assume(assumed, made.state.table.row_of["node-8"])
    made.running("node-8")
    assert next(iter(made.scores("x", T8))) == "node-8"
    made.state.remove_node("node-8")
    assert next(iter(made.scores("x", made.state.table.row_of))) == "node-5"
    made.state.remove_pod("uid-default-x-0-node-5")
    assert made.topology.existing("x").sum() == 0
    assert made.topology.existing("y").sum() == 1


def naive_places(tree, candidates, existing):
    """The candidates in order."""
    root = naive.tree(tree.layers, tree.places)
    offers = {name: int(name in candidates) for name in tree.places}
    naive.fill(root, offers, existing, {}, {})
    leaves = [domain for domain in root.walk() if domain.layer == naive.NODES and domain.name in candidates]
    return [leaf.name for leaf in sorted(leaves, key=cmp_to_key(lambda a, b: naive.compared(a, b, 1)))]


@pytest.mark.parametrize("seed", range(10))
def test_same_as_the_naive_order(seed):
    rng = Random(seed)
    for _ in range(50):
        tree = RandomTree(rng)
        table, built = tree.built()
        existing = {name: rng.choice([0, 0, 0, 1, 2]) for name in tree.places}
        candidates = [name for name in sorted(tree.places) if rng.random() < 0.6]
        rows = np.array([table.row_of[name] for name in candidates], dtype=np.intp)
        found = places(built, amounts(table, existing), np.sort(rows), table.names)
        order = sorted(candidates, key=lambda name: int(found[table.row_of[name]]))
        assert order == naive_places(tree, candidates, existing)
        assert sorted(found[rows].tolist()) == list(range(len(rows)))
