"""Simulations place Reservations, and owners use them there."""

import pytest

from koordsched.cli.simulation import Simulation
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, node, pod
from tests.plugins.reservation.test_pages import PROFILE, reservation


@pytest.mark.parametrize("uid", [True, False], ids=["from a cluster", "plain manifests"])
def test_owners_use_a_reservation_that_was_placed_before_them(uid):
    wanted = [reservation("a"), reservation("b")]
    for thing in wanted if not uid else ():
        del thing["metadata"]["uid"]
    owners = [pod(f"p{i}", container(cpu="2", memory="1Gi"), labels={"app": "web"}) for i in range(4)]
    other = pod("other", container(cpu="1"))
    offline = scheduler([node("alder", cpu="4"), node("beech", cpu="4"), *wanted, *owners, other], PROFILE)
    outcomes = {outcome.pod: outcome.node for outcome in Simulation(offline).run()}
    assert sorted(node for key, node in outcomes.items() if key.startswith("default/p")) == [
        "alder",
        "alder",
        "beech",
        "beech",
    ]
    assert outcomes["default/other"] == ""
    cache = offline.profiles["default-scheduler"].plugins["Reservation"].cache
    assert [len(info.owners) for info in cache] == [2, 2]
