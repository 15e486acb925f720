"""What counting offers and solving cost: nothing that grows with the number of nodes, or of members beyond a node's."""

import numpy as np
import pytest

from koordsched.plugins.coscheduling.topology.gathering import Gathering
from koordsched.plugins.coscheduling.topology.offers import Offers
from koordsched.plugins.coscheduling.topology.solver import solve
from tests.plugins.coscheduling.topology.objects import amounts, tree_of
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, node, pod
from tests.steps import counted

LABELS = {"app": "a"}
SPREAD = {
    "topologySpreadConstraints": [
        {
            "topologyKey": "kubernetes.io/hostname",
            "maxSkew": 2,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": LABELS},
        }
    ]
}


def steps_of_offers(nodes, members, spec):
    """The steps that a second count takes, when shapes and columns are known; every node takes two."""
    offline = scheduler([node(f"n{number:04}", "4") for number in range(nodes)])
    pods = [offline.add(pod(f"m{number:04}", container(cpu="2"), labels=LABELS, **spec)) for number in range(members)]
    offers = Offers(offline.profiles["default-scheduler"].handle)
    rows = np.arange(nodes)
    offers.count(pods, rows)
    with counted() as steps:
        found = offers.count(pods, rows)
    assert set(found.offers.tolist()) == {2}
    return steps.count


@pytest.mark.parametrize("spec", [{}, SPREAD], ids=["plain", "spread"])
def test_offers_of_many_nodes_take_no_more_steps(spec):
    few, many = steps_of_offers(30, 8, spec), steps_of_offers(600, 8, spec)
    assert many <= few * 1.1


def test_offers_for_many_members_take_no_more_steps():
    assert steps_of_offers(30, 500, {}) <= steps_of_offers(30, 8, {}) * 1.1


def steps_of_solving(blocks, multiples):
    """The steps that a solution takes for as many members as there are blocks, one in each."""
    places = {f"n{number:04}": (f"s{number % 5}", f"b{number}") for number in range(blocks)}
    table, tree = tree_of(places)
    offers = amounts(table, dict.fromkeys(places, 2))
    with counted() as steps:
        assert len(solve(tree, Gathering((), multiples), 2 * blocks, offers).rows) == 2 * blocks
    return steps.count


@pytest.mark.parametrize("multiples", [{}, {"NodeTopologyLayer": 2, "BlockLayer": 2}])
def test_solutions_with_many_domains_take_no_more_steps(multiples):
    assert steps_of_solving(1000, multiples) <= steps_of_solving(20, multiples) * 1.1
