"""What users see of the tree."""

import msgspec
import numpy as np

from koordsched.framework.status import Code, ReasonTable
from koordsched.plugins.coscheduling.topology import picture as pictures
from koordsched.plugins.coscheduling.topology.gathering import Gathering
from koordsched.plugins.coscheduling.topology.picture import TopologyPicture, lines, picture
from koordsched.plugins.coscheduling.topology.solver import solve
from tests.plugins.coscheduling.topology.objects import T8, amounts, tree_of


def drawn(places=T8, *, full=(), desired=0, gathering=None, existing=None, **more):
    """The picture of nodes that offer one place each, but for full ones."""
    table, tree = tree_of(places)
    offers = amounts(table, {name: int(name not in full) for name in places})
    reasons = ReasonTable()
    code = reasons.intern("NodeResourcesFit", Code.UNSCHEDULABLE, "Insufficient cpu")
    codes = np.where(offers == 0, np.int32(code), np.int32(0)).astype(np.int32)
    solution = solve(tree, gathering or Gathering(), desired, offers) if desired else None
    return picture(
        tree,
        gathering=gathering,
        desired=desired,
        offers=offers,
        existing=amounts(table, existing) if existing else None,
        solution=solution,
        codes=codes,
        reasons=reasons,
        **more,
    )


def test_a_job_that_has_a_place():
    shown = drawn(
        full=["node-1"], desired=3, gathering=Gathering(("SpineLayer",), {"BlockLayer": 1}), existing={"node-8": 2}
    )
    assert lines(shown) == [
        "3 members, in one domain of SpineLayer, a multiple of 1 per BlockLayer",
        "ClusterTopologyLayer, 8 nodes, room for 7, 2 with the selector, gets 3",
        "  SpineLayer s1, 4 nodes, room for 3, 2 with the selector, gets 3",
        "    BlockLayer b1, 2 nodes, room for 1, 2 with the selector, gets 1",
        "      NodeTopologyLayer node-1, room for 0, Insufficient cpu",
        "      NodeTopologyLayer node-8, room for 1, 2 with the selector, gets 1",
        "    BlockLayer b2, 2 nodes, room for 2, gets 2",
        "      NodeTopologyLayer node-2, room for 1, gets 1",
        "      NodeTopologyLayer node-7, room for 1, gets 1",
        "  SpineLayer s2, 4 nodes, room for 4",
        "    BlockLayer b3, 2 nodes, room for 2",
        "      NodeTopologyLayer node-3, room for 1",
        "      NodeTopologyLayer node-6, room for 1",
        "    BlockLayer b4, 2 nodes, room for 2",
        "      NodeTopologyLayer node-4, room for 1",
        "      NodeTopologyLayer node-5, room for 1",
    ]


def test_without_nodes():
    shown = drawn(full=["node-1"], gathering=Gathering((), {"BlockLayer": 2}), with_nodes=False)
    assert lines(shown) == [
        "a multiple of 2 per BlockLayer",
        "ClusterTopologyLayer, 8 nodes, room for 6",
        "  SpineLayer s1, 4 nodes, room for 2",
        "    BlockLayer b1, 2 nodes, room for 0",
        "    BlockLayer b2, 2 nodes, room for 2",
        "  SpineLayer s2, 4 nodes, room for 4",
        "    BlockLayer b3, 2 nodes, room for 2",
        "    BlockLayer b4, 2 nodes, room for 2",
    ]


def test_the_tree_alone():
    _, tree = tree_of({"n1": ("s", "b"), "n2": (None, "b")})
    assert lines(picture(tree)) == [
        "ClusterTopologyLayer, 1 node",
        "  SpineLayer s, 1 node",
        "    BlockLayer b, 1 node",
        "      NodeTopologyLayer n1",
        "1 node lacks labels and is not in the tree",
    ]


def test_many_children_are_cut_short(monkeypatch):
    monkeypatch.setattr(pictures, "MOST_CHILDREN", 1)
    assert lines(drawn()) == [
        "ClusterTopologyLayer, 8 nodes, room for 8",
        "  SpineLayer s1, 4 nodes, room for 4",
        "    BlockLayer b1, 2 nodes, room for 2",
        "      NodeTopologyLayer node-1, room for 1",
        "      and 1 more",
        "    and 1 more",
        "  and 1 more",
    ]


def test_an_unknown_layer():
    assert drawn(gathering=Gathering(("RackLayer",))).must_gather == "RackLayer"


def test_it_is_json():
    shown = drawn(full=["node-1"], desired=3, gathering=Gathering(("SpineLayer",)))
    assert msgspec.json.decode(msgspec.json.encode(shown), type=TopologyPicture) == shown
