"""The solver: the cases of the specification, and the same answers as the naive one on random trees."""

from random import Random

import numpy as np
import pytest

from koordsched.framework.status import Code, ReasonTable
from koordsched.plugins.coscheduling.topology.gathering import Gathering
from koordsched.plugins.coscheduling.topology.kinds import CLUSTER_LAYER, NODE_LAYER
from koordsched.plugins.coscheduling.topology.layers import Layers
from koordsched.plugins.coscheduling.topology.members import Member, assign, in_order
from koordsched.plugins.coscheduling.topology.refusal import MOST_DOMAINS, message
from koordsched.plugins.coscheduling.topology.solver import constrained, multiples_of, solve
from koordsched.plugins.coscheduling.topology.tree import build
from tests.depth import examples
from tests.plugins.coscheduling.topology import naive
from tests.plugins.coscheduling.topology.objects import T4, T4_OFFERS, T8, amounts, cluster_of, tree_of
from tests.plugins.objects import node

ANYWHERE = Gathering()
SPINES = Gathering(must=("SpineLayer",))


def placed(places, offers, desired, gathering=ANYWHERE, **more):
    """The nodes that the members go to, in order."""
    table, tree = tree_of(places)
    more = {key: amounts(table, by_name) for key, by_name in more.items()}
    found = solve(tree, gathering, desired, amounts(table, offers), **more)
    return None if found is None else [table.names[row] for row in found.rows.tolist()]


def refusal(places, offers, desired, gathering, texts=("Insufficient cpu",)):
    """The message; nodes that offer less than desired have a reason."""
    table, tree = tree_of(places)
    reasons = ReasonTable()
    code = reasons.intern("NodeResourcesFit", Code.UNSCHEDULABLE, *texts)
    found = amounts(table, offers)
    codes = np.where(found < desired, np.int32(code), np.int32(0)).astype(np.int32)
    return message(tree, gathering, desired, found, codes, np.arange(table.size), reasons)


def each(number, *without):
    """What the nodes of T8 offer."""
    return {name: 0 if name in without else number for name in T8}


def multiples(**of_layers):
    return Gathering(multiples=of_layers)


@pytest.mark.parametrize(
    ("offer", "desired", "nodes"),
    [
        (1, 4, "node-1 node-8 node-2 node-7"),
        (2, 2, "node-1 node-1"),
        (1, 6, "node-1 node-8 node-2 node-7 node-3 node-6"),
    ],
)
def test_coscheduling_case_15_as_deep_as_it_fits(offer, desired, nodes):
    assert placed(T8, each(offer), desired) == nodes.split()


def test_coscheduling_case_15_members_go_by_name():
    table, tree = tree_of(T8)
    found = solve(tree, Gathering(), 4, amounts(table, each(1)))
    members = [Member(f"p{number}", "default") for number in (3, 1, 4, 2)]
    pairs = [(members[at].name, table.names[row]) for at, row in assign(members, found.rows)]
    assert pairs == [("p1", "node-1"), ("p2", "node-8"), ("p3", "node-2"), ("p4", "node-7")]


def test_coscheduling_case_16_no_spine_has_room():
    offers = each(1, "node-1", "node-4")
    assert placed(T8, offers, 4, SPINES) is None
    assert refusal(T8, offers, 4, SPINES) == (
        "no candidate topology nodes can accommodate job, desiredOfferSlot: 4, topology topologyNode SpineLayer/s1: 3;"
        "topology topologyNode SpineLayer/s2: 3, 0/8 nodes are available: 8 Insufficient cpu."
    )


@pytest.mark.parametrize(
    ("desired", "nodes"),
    [
        (2, "node-2 node-7"),
        (3, "node-2 node-7 node-8"),
        (1, "node-8"),
        (4, "node-3 node-6 node-4 node-5"),
    ],
)
def test_coscheduling_case_17_the_least_room_that_is_enough(desired, nodes):
    assert placed(T8, each(1, "node-1"), desired) == nodes.split()


@pytest.mark.parametrize(
    ("desired", "nodes"),
    [
        (15, {"n2": 7, "n1": 5, "n3": 3}),
        (10, {"n3": 6, "n4": 4}),
        (12, {"n2": 7, "n1": 5}),
    ],
)
def test_coscheduling_case_18_without_multiples(desired, nodes):
    assert placed(T4, T4_OFFERS, desired) == [name for name, number in nodes.items() for _ in range(number)]


@pytest.mark.parametrize(
    ("gathering", "nodes", "blocks", "spine"),
    [
        (multiples(NodeTopologyLayer=4), [4, 4, 4, 4], [8, 8], 16),
        (multiples(BlockLayer=8), [5, 7, 6, 4], [8, 8], 16),
        (multiples(NodeTopologyLayer=2, BlockLayer=8), [4, 6, 6, 4], [8, 8], 16),
        (multiples(BlockLayer=4), [5, 7, 6, 4], [12, 8], 20),
    ],
)
def test_coscheduling_case_18_room_by_multiples(gathering, nodes, blocks, spine):
    table, tree = tree_of(T4)
    room = constrained(tree, multiples_of(tree, gathering), amounts(table, T4_OFFERS))
    assert [level.tolist() for level in room] == [[spine], [spine], blocks, nodes]


def test_coscheduling_case_19_multiples_of_a_block():
    nodes = placed(T4, T4_OFFERS, 16, multiples(BlockLayer=8))
    assert nodes == ["n2"] * 7 + ["n1"] + ["n3"] * 6 + ["n4"] * 2


def test_coscheduling_case_19_multiples_of_a_node():
    nodes = placed(T4, T4_OFFERS, 16, multiples(NodeTopologyLayer=4))
    assert nodes == ["n1"] * 4 + ["n2"] * 4 + ["n3"] * 4 + ["n4"] * 4


def test_coscheduling_case_20_a_multiple_makes_a_candidate_fall_short():
    gathering = multiples(BlockLayer=4)
    assert placed(T4, T4_OFFERS, 10, gathering) is None
    assert refusal(T4, T4_OFFERS, 10, gathering).endswith("; podCountMultiple constraints: BlockLayer=4")


@pytest.mark.parametrize(
    ("block", "desired", "nodes"),
    [
        (4, 8, {"n3": 6, "n4": 2}),
        (6, 6, {"n3": 6}),
        (4, 5, None),  # D21
    ],
)
def test_coscheduling_case_20_best_fit(block, desired, nodes):
    found = placed(T4, T4_OFFERS, desired, multiples(BlockLayer=block))
    assert found == (nodes and [name for name, number in nodes.items() for _ in range(number)])


def test_a_multiple_above_the_domain_counts():
    """D21: a spine of 8 members at a time, and 10 of them in one block."""
    offers = dict.fromkeys(T4, 10)
    assert placed(T4, offers, 10, multiples(SpineLayer=8)) is None
    assert placed(T4, offers, 8, multiples(SpineLayer=8)) == ["n1"] * 8


def test_multiples_of_layers_that_do_not_go_together():
    """A block takes 3 members, of which its node has 2 only."""
    gathering = multiples(BlockLayer=3, NodeTopologyLayer=2)
    assert placed(T4, {"n1": 4, "n2": 0, "n3": 4, "n4": 0}, 6, gathering) is None


def test_the_higher_score_decides_only_between_equals():
    costs = {"node-3": -1, "node-1": -2, "node-2": -2, "node-4": -3}
    assert placed(T8, each(1), 2, scores=costs) == ["node-6", "node-3"]
    assert placed(T8, each(1, "node-1"), 1, scores={"node-8": -9}) == ["node-8"]


def test_pods_with_the_selector_come_first():
    existing = {"node-4": 1, "node-1": 3}
    # node-4 and its block have fewer than node-1 and its block.
    assert placed(T8, each(1), 1, existing=existing) == ["node-1"]
    # No node of s1 is free: the spine does not matter before the node does.
    assert placed(T8, each(1, "node-1", "node-8", "node-2", "node-7"), 1, existing=existing) == ["node-4"]
    # Inside of a domain they come first, too.
    assert placed(T8, each(1), 4, existing={"node-4": 1, "node-6": 2}) == ["node-6", "node-3", "node-4", "node-5"]


def test_of_several_must_gather_layers_the_lowest_counts():
    gathering = Gathering(must=("BlockLayer", "SpineLayer"))
    assert placed(T8, each(1), 3, gathering) is None
    assert placed(T8, each(1), 2, gathering) == ["node-1", "node-8"]
    assert placed(T8, each(1), 9, Gathering(must=(CLUSTER_LAYER,))) is None
    assert len(placed(T8, each(1), 8, Gathering(must=(CLUSTER_LAYER,)))) == 8


def test_an_unknown_must_gather_layer_has_no_domains():
    gathering = Gathering(must=("RackLayer",))
    assert placed(T8, each(9), 1, gathering) is None
    assert refusal(T8, each(9), 1, gathering) == (
        "no candidate topology nodes can accommodate job, desiredOfferSlot: 1, , 0/8 nodes are available:"
    )
    assert placed(T8, each(1), 1, Gathering(must=("RackLayer", "BlockLayer"))) == ["node-1"]


def test_unknown_layers_of_multiples_are_said_and_do_nothing():
    gathering = multiples(RackLayer=7, BlockLayer=2)
    assert placed(T8, each(1), 2, gathering) == ["node-1", "node-8"]
    assert refusal(T8, each(0), 2, gathering).endswith("; podCountMultiple constraints: BlockLayer=2, RackLayer=7")


def test_a_long_list_of_domains_is_cut_short():
    places = {f"n{number}": ("s", f"b{number}") for number in range(MOST_DOMAINS + 7)}
    offers = dict.fromkeys(places, 0) | {"n106": 3}
    text = refusal(places, offers, 4, Gathering(must=("BlockLayer",)))
    assert text.count("topologyNode BlockLayer/") == MOST_DOMAINS
    assert "BlockLayer/b106: 3;" in text
    assert ";and 7 more, 0/107 nodes are available: 107 Insufficient cpu." in text


def test_nodes_without_a_reason_are_not_counted():
    text = refusal(T8, each(4, "node-1"), 4, Gathering(must=("NodeTopologyLayer",), multiples={"SpineLayer": 3}))
    assert text.endswith("0/8 nodes are available: 1 Insufficient cpu.; podCountMultiple constraints: SpineLayer=3")


def test_members_are_counted_by_index_and_placed_by_name():
    members = [Member("b", "x", 1), Member("a", "x"), Member("c", "x", 0), Member("a", "w"), Member("d", "x", 1)]
    rows = np.array([5, 5, 7, 7, 9])
    assert in_order(members) == [2, 0, 4, 3, 1]
    assert assign(members, rows) == [(3, 5), (1, 5), (0, 7), (2, 7), (4, 9)]
    assert assign(members, rows, by_index=True) == [(2, 5), (0, 5), (4, 7), (3, 7), (1, 9)]
    with pytest.raises(ValueError, match="4 rows for 5 members"):
        assign(members, rows[1:])


# --- random trees --------------------------------------------------------------------------------------


class RandomTree:
    """Some layers and nodes; names of domains come again under other parents."""

    def __init__(self, rng):
        self.layers = [f"L{number}" for number in range(rng.randint(0, 4))]
        width = rng.randint(1, 4)
        names = [f"n{number:02d}" for number in range(rng.randint(1, 24))]
        rng.shuffle(names)
        self.places = {name: tuple(f"d{rng.randrange(width)}" for _ in self.layers) for name in names}

    def built(self, order=None):
        """(node table, tree) of nodes that are added in an order"""
        nodes = (
            node(
                name, labels={f"ex.com/{each}": part for each, part in zip(self.layers, self.places[name], strict=True)}
            )
            for name in order or self.places
        )
        table = cluster_of(nodes).table
        names = (CLUSTER_LAYER, *self.layers, NODE_LAYER)
        return table, build(Layers(names, ((), *((f"ex.com/{layer}",) for layer in self.layers), ())), table)


def random_question(rng, tree):
    """(gathering, desired, offers, existing, scores)"""
    layers = [CLUSTER_LAYER, *tree.layers, NODE_LAYER, "Unknown"]
    must = tuple(rng.sample(layers, rng.choice([0, 0, 1, 1, 2]) if len(layers) > 2 else 1))
    chosen = rng.sample(layers, rng.choice([0, 0, 1, 1, 2, 3]) if len(layers) > 3 else 0)
    counts = {layer: rng.choice([2, 2, 3, 4, 6]) for layer in chosen}
    top = rng.choice([1, 2, 4, 9])
    offers = {name: rng.randint(0, top) for name in tree.places}
    existing = {name: rng.choice([0, 0, 0, 1, 2]) for name in tree.places} if rng.random() < 0.4 else None
    scores = {name: rng.choice([0, 0, -1, -5]) for name in tree.places} if rng.random() < 0.4 else None
    desired = rng.choice([1, 2, 3, 4, 6, 8, 12, 12, 24, rng.randint(1, max(1, sum(offers.values())))])
    return Gathering(must, counts), desired, offers, existing, scores


@pytest.mark.parametrize("seed", range(examples(30)))
def test_same_as_the_naive_solver(seed):
    rng = Random(seed)
    solved = 0
    for _ in range(100):
        tree = RandomTree(rng)
        table, built = tree.built()
        for _ in range(3):
            gathering, desired, offers, existing, scores = random_question(rng, tree)
            expected = naive.solve(
                tree.layers, tree.places, gathering.must, gathering.multiples, desired, offers, existing, scores
            )
            found = solve(
                built,
                gathering,
                desired,
                amounts(table, offers),
                amounts(table, existing) if existing else None,
                amounts(table, scores) if scores else None,
            )
            names = None if found is None else [table.names[row] for row in found.rows.tolist()]
            assert names == expected, (tree.places, gathering, desired, offers, existing, scores)
            if found is not None:
                solved += 1
                domain = built.domains(found.level)
                assert set(domain[found.rows].tolist()) == {found.position}
    assert solved > 60


@pytest.mark.parametrize("seed", range(5))
def test_the_order_in_which_nodes_came_does_not_matter(seed):
    """A restart, or a replay, decides the same."""
    rng = Random(seed)
    for _ in range(40):
        tree = RandomTree(rng)
        gathering, desired, *by_name = random_question(rng, tree)
        found = []
        for order in (sorted(tree.places), sorted(tree.places, reverse=True)):
            table, built = tree.built(order)
            offers, existing, scores = (amounts(table, each or {}) for each in by_name)
            solution = solve(built, gathering, desired, offers, existing, scores)
            found.append(None if solution is None else [table.names[row] for row in solution.rows.tolist()])
        assert found[0] == found[1]
