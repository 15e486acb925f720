"""The recorded placements of koord-scheduler by network topology: offers, solver and message, put together."""

import json
from itertools import chain
from random import Random

import msgspec
import numpy as np
import pytest

from koordsched.config.feature_gates import NETWORK_TOPOLOGY_MANAGER, FeatureGates
from koordsched.config.loading import load
from koordsched.config.resolving import resolve
from koordsched.plugins import CATALOG, IN_TREE
from koordsched.plugins.coscheduling.kinds import NETWORK_TOPOLOGY_SPEC
from koordsched.plugins.coscheduling.topology.gathering import gathering_of
from koordsched.plugins.coscheduling.topology.members import assign, in_order, member_of
from koordsched.plugins.coscheduling.topology.offers import Offers
from koordsched.plugins.coscheduling.topology.refusal import message
from koordsched.plugins.coscheduling.topology.service import network_topology
from koordsched.plugins.coscheduling.topology.solver import solve
from koordsched.scheduling.offline import OfflineScheduler
from tests.parity.koord import GOLDEN
from tests.plugins.harness import StoppedClock

NAMES = sorted(
    path.stem
    for path in GOLDEN.glob("gang-net-*.json")
    if path.stem not in ("gang-net-status", "gang-net-manager-off", "gang-net-preempt")
)


def with_topology(config):
    """An offline scheduler with the network topology manager."""
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    gates = FeatureGates.parse([f"{NETWORK_TOPOLOGY_MANAGER}=true"])
    loaded = load(msgspec.json.encode(kind | config), catalog=CATALOG, gates=gates)
    resolved = resolve(loaded, catalog=CATALOG, gates=gates)
    return OfflineScheduler(resolved, IN_TREE, [], clock=StoppedClock(), rng=Random(7))


def planned(record):
    """member -> node, or the message."""
    created = chain(record["objects"], *(step.get("create", ()) for step in record["steps"]))
    things = {(thing["kind"], thing["metadata"]["name"]): thing for thing in created}
    wanted = [thing for (kind, _), thing in things.items() if kind == "Pod"]
    offline = with_topology(record["config"])
    topology = network_topology(offline.cluster, (NETWORK_TOPOLOGY_MANAGER,))
    for thing in things.values():
        if thing["kind"] in ("Node", "ClusterNetworkTopology"):
            offline.add(thing)
    for number, thing in enumerate(wanted):
        thing["metadata"]["uid"] = f"uid-{number}"
    group = things.get(("PodGroup", "job"), wanted[0])
    gathering = gathering_of(group["metadata"]["annotations"][NETWORK_TOPOLOGY_SPEC])
    pods = [offline.add(thing) for thing in reversed(wanted)]
    members = [member_of(pod) for pod in pods]
    handle, table = offline.profiles["koord-scheduler"].handle, offline.cluster.table
    rows = np.arange(table.size)
    counted = Offers(handle, frozenset({"Coscheduling"})).count([pods[at] for at in in_order(members)], rows)
    tree = topology.tree()
    solution = solve(tree, gathering, len(pods), counted.offers)
    if solution is None:
        return message(tree, gathering, len(pods), counted.offers, counted.codes, rows, handle.reasons)
    return {pods[at].key: table.names[row] for at, row in assign(members, solution.rows)}


@pytest.mark.parametrize("name", NAMES)
def test_the_recorded_places(name):
    record = json.loads((GOLDEN / f"{name}.json").read_text())
    expected = {key: pod for key, pod in record["expected"].items() if key.startswith("works/")}
    found = planned(record)
    if all(pod["bound"] for pod in expected.values()):
        assert found == {key: pod["bound"] for key, pod in expected.items()}
        return
    for pod in expected.values():
        texts = pod["condition"]["messageAnyOf"]
        assert any(f"nodes are available: {found}. preemption" in text for text in texts)
        assert any(f'{found}.\\", already' in text or f'{found}.", already' in text for text in texts)


def test_there_are_records():
    assert len(NAMES) == 9
