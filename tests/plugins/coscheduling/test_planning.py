"""Plans of a group by network topology."""

import numpy as np
import pytest

from koordsched.config.feature_gates import NETWORK_TOPOLOGY_MANAGER
from koordsched.plugins.coscheduling.args import CoschedulingArgs
from koordsched.plugins.coscheduling.kinds import NETWORK_TOPOLOGY_INDEX, NETWORK_TOPOLOGY_SELECTOR
from koordsched.plugins.coscheduling.planning import TopologyPlans
from koordsched.plugins.coscheduling.topology.gathering import Gathering
from koordsched.plugins.coscheduling.topology.service import network_topology
from tests.plugins.coscheduling.topology.objects import SPINES_AND_BLOCKS, T8, labelled, topology
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, pod


def eight_nodes():
    """(a scheduler that knows T8, its handle, and the network)."""
    offline = scheduler([])
    found = network_topology(offline.cluster, (NETWORK_TOPOLOGY_MANAGER,))
    for name, place in T8.items():
        offline.add(labelled(name, place))
    offline.add(topology(*SPINES_AND_BLOCKS))
    return offline, offline.profiles["default-scheduler"].handle, found


@pytest.mark.parametrize(("selector", "nodes"), [("", ["node-1", "node-8"]), ("x", ["node-4", "node-5"])])
def test_plans_for_preemption_mind_the_selector(selector, nodes):
    offline, handle, found = eight_nodes()

    def with_selector(made):
        made["metadata"]["annotations"] = {NETWORK_TOPOLOGY_SELECTOR: selector} if selector else {}
        return offline.add(made)

    with_selector(pod("there", container(cpu="0"), on="node-5"))
    pods = [with_selector(pod(f"m{at}", container(cpu="16"))) for at in range(2)]
    plans = TopologyPlans("Coscheduling", handle, found, CoschedulingArgs(aware_network_topology=True))
    size = offline.cluster.table.size
    spread, _ = plans.spread(Gathering(("BlockLayer",)), pods, np.arange(size), np.zeros(size, dtype=np.int64))
    assert sorted(offline.cluster.table.names[row] for row in spread) == nodes


@pytest.mark.parametrize(
    ("by_index", "placed"),
    [(False, {"node-1": ["m0"], "node-8": ["m1"]}), (True, {"node-1": ["m1"], "node-8": ["m0"]})],
)
def test_members_go_by_name_or_by_index(by_index, placed):
    offline, handle, found = eight_nodes()
    pods = []
    for at in range(2):
        made = pod(f"m{at}", container(cpu="16"))
        made["metadata"]["annotations"] = {NETWORK_TOPOLOGY_INDEX: str(1 - at)}
        pods.append(offline.add(made))
    args = CoschedulingArgs(aware_network_topology=True, place_by_index=by_index)
    plans = TopologyPlans("Coscheduling", handle, found, args)
    size = offline.cluster.table.size
    spread, _ = plans.spread(Gathering(("BlockLayer",)), pods, np.arange(size), np.zeros(size, dtype=np.int64))
    names = offline.cluster.table.names
    assert {names[row]: [each.name for each in members] for row, members in spread.items()} == placed
