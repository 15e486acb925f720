"""A cluster without nodes."""

import pytest

from tests.plugins.deviceshare.machines import pod
from tests.plugins.deviceshare.world import World


@pytest.mark.parametrize("wanted", [{"gpu": 50}, {"nvidia": 2}, {"rdma": 1}, {"gpu": 100, "rdma": 1, "fpga": 50}])
@pytest.mark.parametrize("numa", [True, False])
def test_pods_wait_while_there_is_no_node(wanted, numa):
    world = World(numa=numa)
    assert world.verdicts(pod(**wanted)) == {}
    explanation = world.explain(pod(**wanted))
    assert (explanation.nodes, explanation.rejected_by) == ([], "")
    assert explanation.message.startswith("no nodes available")
