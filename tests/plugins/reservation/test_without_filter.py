"""Where Filter of the plugin is switched off, Reserve finds the Reservation that a pod uses by itself."""

import pytest

from koordsched.cluster.resources import CPU
from koordsched.plugins.reservation.preallocation import NONE_MEETS, PRE_ALLOCATION_REQUIRED
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, node, pod
from tests.plugins.reservation.test_explained import WEB, asking
from tests.plugins.reservation.test_pages import reservation

UNFILTERED = {
    "plugins": {"multiPoint": {"enabled": [{"name": "Reservation"}]}, "filter": {"disabled": [{"name": "*"}]}},
}


@pytest.mark.parametrize("names", ["r", "rs"])
@pytest.mark.parametrize("required", [True, False])
def test_reserve_finds_one(names, required):
    wanted = asking("1", affinity={}) if required else pod("p", container(cpu="1", memory="1Gi"), labels=WEB)
    offline = scheduler(
        [node("alder", cpu="16", memory="64Gi"), *(reservation(each, "alder") for each in names), wanted], UNFILTERED
    )
    attempt = offline.attempt("default/p")
    assert attempt.filter().feasible == 1
    status, _ = offline.take(attempt, offline.cluster.table.row_of["alder"])
    assert status.ok
    plugin = offline.profiles["default-scheduler"].plugins["Reservation"]
    (placed,) = [each for each in offline.cluster.assigned.values() if each.name == "p"]
    assert plugin.cache.used_by(placed).name == "r"


def test_what_reserve_took_is_given_back():
    """The pod counts inside of the Reservation, and beside it once it uses it no more."""
    wanted = pod("p", container(cpu="1", memory="1Gi"), labels=WEB)
    offline = scheduler([node("alder", cpu="16", memory="64Gi"), reservation("r", "alder"), wanted], UNFILTERED)
    attempt, row = offline.attempt("default/p"), offline.cluster.table.row_of["alder"]
    attempt.filter()
    assert offline.take(attempt, row)[0].ok
    assert offline.cluster.table.requested[CPU].data.item(row) == 4000
    attempt.profile.run_unreserve(attempt.cycle, attempt.pod, row)
    assert offline.cluster.table.requested[CPU].data.item(row) == 5000


def test_a_reservation_that_has_to_take_a_pod_takes_none():
    """Filter would have chosen one."""
    waiting = reservation("r", preAllocation=True, allocatePolicy="Restricted")
    waiting["metadata"]["labels"] = {PRE_ALLOCATION_REQUIRED: "true"}
    running = pod("p", container(cpu="4", memory="8Gi"), on="alder", labels=WEB)
    offline = scheduler([node("alder", cpu="16", memory="64Gi"), running, waiting], UNFILTERED)
    (reserve_pod,) = offline.pending
    attempt = offline.attempt(reserve_pod)
    assert attempt.filter().feasible == 1
    status, _ = offline.take(attempt, 0)
    assert status.reasons == (NONE_MEETS,)
