"""What users see of a job that waits."""

from koordsched.config.feature_gates import NETWORK_TOPOLOGY_MANAGER
from koordsched.plugins.coscheduling.topology.explanation import explained
from koordsched.plugins.coscheduling.topology.gathering import Gathering
from koordsched.plugins.coscheduling.topology.offers import Offers
from koordsched.plugins.coscheduling.topology.picture import lines
from koordsched.plugins.coscheduling.topology.service import network_topology
from tests.plugins.coscheduling.topology.objects import SPINES_AND_BLOCKS, labelled, topology
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, pod

PLACES = {"n1": ("s1", "b1"), "n2": ("s1", "b2"), "n3": ("s2", "b3"), "n4": (None, None)}


def shown(members, gathering, features=(NETWORK_TOPOLOGY_MANAGER,)):
    """The lines about members of 8 CPUs; n1 is full."""
    offline = scheduler([])
    found = network_topology(offline.cluster, features)
    for name, place in PLACES.items():
        offline.add(labelled(name, place))
    offline.add(topology(*SPINES_AND_BLOCKS))
    offline.add(pod("full", container(cpu="16"), on="n1"))
    pods = [offline.add(pod(f"m{at}", container(cpu="8"))) for at in range(members)]
    handle = offline.profiles["default-scheduler"].handle
    answer = explained(handle, found, Offers(handle), gathering, pods)
    return None if answer is None else lines(answer)


def test_a_job_that_waits():
    assert shown(3, Gathering(("SpineLayer",))) == [
        "3 members, in one domain of SpineLayer",
        "ClusterTopologyLayer, 3 nodes, room for 4",
        "  SpineLayer s1, 2 nodes, room for 2",
        "    BlockLayer b1, 1 node, room for 0",
        "      NodeTopologyLayer n1, room for 0, Insufficient cpu",
        "    BlockLayer b2, 1 node, room for 2",
        "      NodeTopologyLayer n2, room for 2, Insufficient cpu",
        "  SpineLayer s2, 1 node, room for 2",
        "    BlockLayer b3, 1 node, room for 2",
        "      NodeTopologyLayer n3, room for 2, Insufficient cpu",
        "1 node lacks labels and is not in the tree",
    ]


def test_a_job_that_would_go_somewhere():
    found = shown(2, Gathering())
    assert found[0] == "2 members"
    assert [line.strip() for line in found if "gets" in line] == [
        "ClusterTopologyLayer, 3 nodes, room for 4, gets 2",
        "SpineLayer s1, 2 nodes, room for 2, gets 2",
        "BlockLayer b2, 1 node, room for 2, gets 2",
        "NodeTopologyLayer n2, room for 2, gets 2",
    ]


def test_a_job_of_one():
    found = shown(1, Gathering())
    assert found[0] == "1 member"
    assert sum("NodeTopologyLayer" in line and line.endswith("gets 1") for line in found) == 1


def test_no_tree_or_no_members():
    assert shown(2, Gathering(), features=()) is None
    assert shown(0, Gathering()) is None
