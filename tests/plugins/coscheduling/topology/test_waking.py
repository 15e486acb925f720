"""Which events pods of gangs wait for."""

from types import SimpleNamespace

import pytest

from koordsched.cluster.events import NODE
from koordsched.plugins.coscheduling.topology.kinds import NETWORK_TOPOLOGY
from koordsched.plugins.coscheduling.topology.waking import registrations
from koordsched.queue.hints import QueueingHint
from tests.plugins.coscheduling.running import GangCluster, configuration, scheduling
from tests.virtualtime import run


@pytest.mark.parametrize("aware", [False, True])
def test_nodes_are_looked_at_only_where_gangs_are_gathered(aware):
    """Each gang is asked for itself, about each node."""

    async def main():
        gates = ("NetworkTopologyManager=true",) if aware else ()
        async with scheduling(GangCluster(), configuration(awareNetworkTopology=aware), gates=gates) as running:
            plugin = running.scheduler.profiles["default-scheduler"].plugins["Coscheduling"]
            return {registration.event.resource for registration in plugin.events_to_register()}

    assert (NODE in run(main())) is aware


@pytest.mark.parametrize(
    ("old", "new", "woken"),
    [(None, 1, True), (1, 2, True), (1, None, True), (1, 1, False)],
    ids=["it comes", "it changes", "it goes", "its status changes"],
)
def test_gangs_that_are_gathered_wait_for_another_topology(old, new, woken):
    (registration, _) = registrations("Coscheduling", lambda pod: pod == "gathered", str)
    assert registration.event.resource == NETWORK_TOPOLOGY
    old, new = (spec and SimpleNamespace(spec=spec) for spec in (old, new))
    assert registration.fn("gathered", old, new) is (QueueingHint.QUEUE if woken else QueueingHint.SKIP)
    assert registration.fn("other", old, new) is QueueingHint.SKIP
