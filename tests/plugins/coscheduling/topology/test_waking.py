"""Which events pods of gangs wait for."""

import pytest

from koordsched.cluster.events import NODE
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
