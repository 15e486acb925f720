"""Layers and trees: what objects and labels come to, and that of all orders the same."""

from random import Random

import numpy as np
import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.config.feature_gates import NETWORK_TOPOLOGY_MANAGER
from koordsched.plugins.coscheduling.topology.kinds import (
    CLUSTER_LAYER,
    CLUSTER_NETWORK_TOPOLOGIES,
    NODE_LAYER,
    ClusterNetworkTopology,
)
from koordsched.plugins.coscheduling.topology.layers import MOST_LAYERS, MalformedTopology, layers_of
from koordsched.plugins.coscheduling.topology.service import MISSING, OFF, network_topology
from koordsched.plugins.coscheduling.topology.tree import build
from tests.plugins.coscheduling.topology.objects import (
    BLOCK,
    SPINE,
    SPINES_AND_BLOCKS,
    T8,
    cluster_of,
    entry,
    labelled,
    layers,
    topology,
    tree_of,
)
from tests.plugins.objects import node


def shown(tree):
    """Per level (path of the domain, its leaves)."""
    names = tree.levels[-1].names
    return [
        [
            (tree.path(at, position), [names[leaf] for leaf in np.flatnonzero(level.of_leaf == position)])
            for position in range(len(level))
        ]
        for at, level in enumerate(tree.levels)
    ]


# --- layers --------------------------------------------------------------------------------------------


def test_layers_go_from_the_root_to_the_nodes():
    found = layers(*reversed(SPINES_AND_BLOCKS))
    assert found.names == (CLUSTER_LAYER, "SpineLayer", "BlockLayer", NODE_LAYER)
    assert found.keys == ((), (SPINE,), (BLOCK,), ())
    assert found.warnings == ()


@pytest.mark.parametrize("parent", ["", CLUSTER_LAYER])
def test_the_topmost_layer_is_below_the_root(parent):
    assert layers(entry("A", parent, "a"), entry(NODE_LAYER, "A")).warnings == ()
    found = layers(entry(CLUSTER_LAYER), entry("A", parent, "a"), entry(NODE_LAYER, "A"))
    assert found == layers(entry("A", "", "a"), entry(NODE_LAYER, "A"))


def test_nodes_alone():
    assert layers(entry(NODE_LAYER)).names == (CLUSTER_LAYER, NODE_LAYER)
    assert layers(entry(NODE_LAYER, "", "ignored")).keys == ((), ())


@pytest.mark.parametrize(
    ("entries", "warning"),
    [
        (
            [entry("A", "Gone", "a"), entry(NODE_LAYER, "A")],
            'topology layer "A" is the topmost: its parent "Gone" is no layer here',
        ),
        ([entry("A"), entry(NODE_LAYER, "A")], 'topology layer "A" has no labelKey'),
        (
            [entry(CLUSTER_LAYER, "Earth"), entry(NODE_LAYER, CLUSTER_LAYER)],
            '"ClusterTopologyLayer" has no parent: "Earth" is ignored',
        ),
    ],
)
def test_what_works_but_is_hardly_meant(entries, warning):
    assert layers(*entries).warnings == (warning,)


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([], 'topology layer "NodeTopologyLayer" not found in spec'),
        ([entry("A", "", "a")], 'topology layer "NodeTopologyLayer" not found in spec'),
        ([entry(NODE_LAYER), entry("A", "", "a")], 'topology layer "" not found in spec, which leaves out A'),
        ([entry(NODE_LAYER, "B"), entry("A", "", "a")], 'topology layer "B" not found in spec, which leaves out A'),
        ([entry(NODE_LAYER, "A"), entry("A", "A", "a")], 'topology layer "A" is a parent of itself'),
        (
            [entry(NODE_LAYER, "A"), entry("A", "B", "a"), entry("B", "A", "b"), entry("C", "", "c")],
            'topology layer "A" is a parent of itself',
        ),
        ([entry(NODE_LAYER, NODE_LAYER)], 'topology layer "NodeTopologyLayer" is a parent of itself'),
        ([entry(NODE_LAYER), entry(NODE_LAYER)], 'topology layer "NodeTopologyLayer" is there twice'),
        (
            [entry(NODE_LAYER, "A"), entry("A", "B", "a"), entry("A", "B", "b")],
            'topology layer "A" is there twice',
        ),
        (
            [entry(f"L{number}", f"L{number + 1}", "a") for number in range(1000)],
            f"1000 topology layers, {MOST_LAYERS} are the most",
        ),
        (["A"], "spec.networkTopologySpec: Expected `object`, got `str` - at `$[0]`"),
        ([{"topologyLayer": 5}], "spec.networkTopologySpec: Expected `str`, got `int` - at `$[0].topologyLayer`"),
        (
            [entry(NODE_LAYER) | {"labelKey": "a"}],
            "spec.networkTopologySpec: Expected `array`, got `str` - at `$[0].labelKey`",
        ),
    ],
)
def test_what_is_no_topology(entries, problem):
    with pytest.raises(MalformedTopology) as error:
        layers(*entries)
    assert str(error.value) == problem


@pytest.mark.parametrize("spec", [None, {}, {"networkTopologySpec": None}, {"networkTopologySpec": "x"}])
def test_no_list_of_layers(spec):
    obj = convert(
        {"metadata": {"name": "default"}, **({"spec": spec} if spec is not None else {})}, ClusterNetworkTopology
    )
    with pytest.raises(MalformedTopology):
        layers_of(obj)


# --- the tree -------------------------------------------------------------------------------------------


def test_the_tree_of_the_specification():
    _, tree = tree_of(T8)
    root, spines, blocks, nodes = shown(tree)
    assert root == [((), ["node-1", "node-8", "node-2", "node-7", "node-3", "node-6", "node-4", "node-5"])]
    assert [path for path, _ in spines] == [("s1",), ("s2",)]
    assert blocks == [
        (("s1", "b1"), ["node-1", "node-8"]),
        (("s1", "b2"), ["node-2", "node-7"]),
        (("s2", "b3"), ["node-3", "node-6"]),
        (("s2", "b4"), ["node-4", "node-5"]),
    ]
    assert nodes[0] == (("s1", "b1", "node-1"), ["node-1"])


def test_names_are_known_by_their_path():
    """D19: block b of spine s1 is not block b of spine s2."""
    _, tree = tree_of({"n1": ("s2", "b"), "n2": ("s1", "b"), "n3": ("s2", "b")})
    assert shown(tree)[2] == [(("s1", "b"), ["n2"]), (("s2", "b"), ["n1", "n3"])]
    assert tree.levels[2].ranks.tolist() == [0, 0]


def test_nodes_that_lack_labels():
    table, tree = tree_of(
        {"n1": ("s1", None), "n2": (None, "b1"), "n3": ("s1", "b1"), "n4": (None, None), "n0": ("s1", "")}
    )
    assert shown(tree)[2] == [(("s1", "b1"), ["n3"]), (("s1", "n0"), ["n0"]), (("s1", "n1"), ["n1"])]
    assert [table.names[row] for row in tree.outside] == ["n2", "n4"]
    assert tree.lacking.tolist() == [1, 1]
    assert tree.domains(1).tolist() == [0, -1, 0, -1, 0]


def test_the_first_label_that_is_not_empty_counts():
    spec = [entry("A", "", "a", "b"), entry("B", "A", "c"), entry(NODE_LAYER, "B")]
    labels = [{"a": "x", "b": "y"}, {"a": "", "b": "y"}, {"b": "x"}, {"b": ""}]
    state = cluster_of(node(f"n{at}", labels=own | {"c": "c"}) for at, own in enumerate(labels))
    tree = build(layers(*spec), state.table)
    assert shown(tree)[1] == [(("x",), ["n0", "n2"]), (("y",), ["n1"])]
    assert len(tree.outside) == 1


def test_no_node_in_the_tree():
    _, tree = tree_of({"n1": (None, "b")})
    assert [len(level) for level in tree.levels] == [1, 0, 0, 0]
    assert [level.tolist() for level in tree.sums(np.zeros(0, dtype=np.int64))] == [[0], [], [], []]


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_nodes_does_not_matter(seed):
    rng = Random(seed)
    places = {
        f"n{number}": (rng.choice(["s1", "s2", "s1", None]), rng.choice(["b1", "b2", "", None])) for number in range(20)
    }
    order = list(places)
    rng.shuffle(order)
    _, one = tree_of(places)
    _, other = tree_of(places, order)
    assert shown(one) == shown(other)


# --- kept up to date ------------------------------------------------------------------------------------


class Followed:
    """A cluster with its topology."""

    def __init__(self, *features):
        self.state = cluster_of([])
        self.topology = network_topology(self.state, features)

    def object(self, *entries, name="default"):
        """The object appears or changes."""
        thing = convert(topology(*entries, name=name), ClusterNetworkTopology)
        self.state.objects.of(CLUSTER_NETWORK_TOPOLOGIES).upsert(thing)

    def node(self, name, place, **more):
        """A node appears or changes."""
        self.state.upsert_node(convert(labelled(name, place, **more), core.Node))

    def blocks(self):
        """block -> nodes, as the tree has it; compared with one that is made anew."""
        tree = self.topology.tree()
        assert shown(tree) == shown(build(layers(*SPINES_AND_BLOCKS), self.state.table))
        return {path[-1]: nodes for path, nodes in shown(tree)[2]}


def followed():
    made = Followed(NETWORK_TOPOLOGY_MANAGER)
    made.object(*SPINES_AND_BLOCKS)
    made.node("n1", ("s", "b1"))
    made.node("n2", ("s", "b2"))
    return made


def test_without_the_flag_there_is_no_tree():
    made = Followed()
    assert (made.topology.tree(), made.topology.problem) == (None, OFF)
    assert made.state.objects.wanted() == []
    assert made.topology.existing("x") is None


def test_without_the_object_there_is_no_tree():
    made = Followed(NETWORK_TOPOLOGY_MANAGER)
    made.object(*SPINES_AND_BLOCKS, name="other")
    assert (made.topology.tree(), made.topology.problem) == (None, MISSING)
    assert made.state.objects.of(CLUSTER_NETWORK_TOPOLOGIES).only == ("", "default")


def test_the_tree_follows_nodes_labels_and_the_object():
    made = followed()
    assert made.blocks() == {"b1": ["n1"], "b2": ["n2"]}
    made.node("n2", ("s", "b1"))
    assert made.blocks() == {"b1": ["n1", "n2"]}
    made.state.remove_node("n1")
    assert made.blocks() == {"b1": ["n2"]}
    made.node("n3", ("s", "b1"))  # on the row of n1
    assert made.blocks() == {"b1": ["n2", "n3"]}
    made.object(entry("SpineLayer", "", SPINE))
    assert made.topology.tree() is None
    assert made.topology.problem == 'topology layer "NodeTopologyLayer" not found in spec'
    made.object(*SPINES_AND_BLOCKS)
    assert made.blocks() == {"b1": ["n2", "n3"]}
    made.state.objects.of(CLUSTER_NETWORK_TOPOLOGIES).delete("", "default")
    assert (made.topology.tree(), made.topology.problem) == (None, MISSING)


def test_numbers_of_values_that_are_given_out_again():
    """A value that no node has any more gives its number to the next one."""
    made = followed()
    made.blocks()
    made.node("n2", ("s", "b3"))
    made.node("n2", ("s", "b4"))
    assert made.blocks() == {"b1": ["n1"], "b4": ["n2"]}
    for value in (None, "b5"):
        made.node("n1", ("s", value))
        made.node("n2", ("s", value))
    assert made.blocks() == {"b5": ["n1", "n2"]}


def test_the_tree_stays_the_same_as_long_as_nothing_of_it_changes():
    made = followed()
    tree, version = made.topology.tree(), made.topology.version
    made.node("n1", ("s", "b1"), cpu="3")
    made.state.upsert_node(convert(node("n1", labels={SPINE: "s", BLOCK: "b1", "other": "x"}), core.Node))
    made.object(*SPINES_AND_BLOCKS)
    assert made.topology.tree() is tree
    assert made.topology.version == version
    made.node("n1", ("s", "b9"))
    assert made.topology.tree() is not tree
    assert made.topology.version > version


@pytest.mark.parametrize("seed", range(10))
def test_random_histories(seed):
    rng = Random(seed)
    made = followed()
    for _ in range(150):
        name = f"n{rng.randrange(8)}"
        if rng.random() < 0.3:
            made.state.remove_node(name)
        else:
            made.node(name, (rng.choice(["s", "t", None]), rng.choice(["b1", "b2", "b3", "", None])))
        if rng.random() < 0.5:
            made.blocks()
