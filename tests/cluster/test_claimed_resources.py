"""What claims of a pod take of its node, as its status says, counts where it is asked for."""

import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.resources import CPU
from koordsched.cluster.state import ClusterState
from tests.plugins.objects import container, node, pod


@pytest.mark.parametrize(("counted", "milli"), [(False, 1000), (True, 3000)])
def test_what_claims_take_counts_where_it_is_asked_for(counted, milli):
    state = ClusterState()
    if counted:
        state.count_claimed()
    state.upsert_node(convert(node("alder", cpu="8"), core.Node))
    thing = pod("p", container(cpu="1"), on="alder")
    taken = {"resourceClaimName": "c", "containers": ["c"], "resources": {"cpu": "2"}}
    thing["status"]["nodeAllocatableResourceClaimStatuses"] = [taken]
    state.set_pod(state.pods.build(convert(thing, core.Pod)))
    assert state.table.requested[CPU].data[0] == milli
