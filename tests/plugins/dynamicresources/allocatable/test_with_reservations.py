"""What devices take of a node, and Reservations there: their pods may have it of what is reserved (dra spec 3.11)."""

import asyncio

import pytest

from tests.parity.koord import custom_resources
from tests.plugins.dynamicresources.allocatable.test_over_the_api import GATES, requested, shown, taking, using
from tests.plugins.dynamicresources.deviceworld import claim, device_class, slice_of, world
from tests.plugins.dynamicresources.pairs.test_with_reservations import ALLOCATED, available, reservation
from tests.plugins.objects import container, node, pod
from tests.plugins.reservation.pairs.cluster import AFFINITY, configuration, profile
from tests.virtualtime import run


def play(steps, *objects):
    async def work():
        settings = configuration(profile("Reservation"))
        async with world(*custom_resources(), *objects, configuration=settings, gates=GATES) as there:
            await steps(there)

    run(work())


def owner(name, *claims):
    made = using(name, *claims, labels={"app": "web"})
    made["metadata"]["annotations"] = AFFINITY
    return made


@pytest.mark.parametrize("takes", ["500m", "2"])
def test_pods_have_it_of_what_is_reserved_for_them(takes):
    """Two CPUs, of which one is reserved and one in use."""

    async def steps(there):
        there.embedded.insert(using("other", "c"))
        await asyncio.sleep(3)
        # Not reserved for this one.
        assert there.where("other") is None
        assert "1 Insufficient cpu" in there.message("other")
        there.embedded.insert(owner("p", "c"))
        await asyncio.sleep(3)
        if takes == "2":
            assert there.where("p") is None
            assert "Insufficient cpu" in there.message("p")
            return
        assert there.where("p") == "n1"
        assert shown(there, "p")[0]["resources"] == {"cpu": "500m"}
        # It takes from the Reservation, of which the rest stays reserved.
        assert ALLOCATED in there.embedded.get("Pod", "p")["metadata"]["annotations"]
        assert requested(there) == 2000

    there = node("n1", "2"), pod("v", container(cpu="1"), nodeName="n1")
    play(steps, *there, device_class(), slice_of("n1", taking(cpu=takes)), reservation(available("n1")), claim())
