"""Reservations and several profiles: what one has placed, all know at once."""

import pytest

from tests.plugins.reservation.pairs.cluster import PairCluster, configuration, profile, template
from tests.plugins.reservation.running import scheduling
from tests.virtualtime import run

ALL = {"cpu": "8", "memory": "8Gi"}
CONFIG = configuration(profile("Reservation"), profile("Reservation", name="second"), profile(name="plain"))


def playing(scenario, nodes=("n1",), config=CONFIG):
    async def played():
        there = PairCluster(nodes, cpu="8")
        async with scheduling(there, config):
            await scenario(there)

    run(played())


@pytest.mark.parametrize("made_by", ["default-scheduler", "second"])
def test_pods_of_either_profile_use_a_reservation(made_by):
    async def scenario(there):
        there.reservation(template=template(ALL, schedulerName=made_by), allocateOnce=False)
        await there.until(lambda: there.phase() == "Available")
        for name, scheduler in (("one", "default-scheduler"), ("other", "second")):
            there.put(name, schedulerName=scheduler)
        await there.until(lambda: sorted(there.owners()) == ["one", "other"])

    playing(scenario)


def test_of_pods_of_two_profiles_at_once_one_gets_it():
    async def scenario(there):
        there.reservation(template=template(ALL))
        await there.until(lambda: there.phase() == "Available")
        there.put("one", requests=ALL)
        there.put("other", requests=ALL, schedulerName="second")
        await there.until(lambda: there.phase() == "Succeeded")
        await there.until(lambda: there.said("one") or there.said("other"))
        assert sorted([there.where("one"), there.where("other")]) == ["", "n1"]

    playing(scenario)


def test_pods_of_a_profile_without_the_plugin_use_none():
    async def scenario(there):
        there.reservation(template=template(ALL), allocateOnce=False)
        await there.until(lambda: there.phase() == "Available")
        there.put("plain", schedulerName="plain")
        await there.until(lambda: there.said("plain"))
        assert there.said("plain").startswith("0/1 nodes are available: 1 Insufficient cpu")

    playing(scenario)


def test_a_reservation_of_no_profile_holds_its_room():
    """Another scheduler has made it; its owners may be ours."""

    async def scenario(there):
        there.available(allocatable=ALL, template=template(ALL, schedulerName="another"), allocateOnce=False)
        there.put("stranger", labels={})
        await there.until(lambda: there.said("stranger"))
        there.put("owner")
        await there.until(lambda: there.owners() == ["owner"])

    playing(scenario)


def test_a_pending_reservation_goes_from_one_profile_to_another():
    async def scenario(there):
        there.reservation(template=template(ALL, schedulerName="another"))
        there.patch("Reservation", "r", {"spec": {"template": {"spec": {"schedulerName": "second"}}}})
        await there.until(lambda: there.phase() == "Available")

    playing(scenario)


def test_a_reservation_of_a_profile_without_the_plugin():
    """Its reserve pod is bound by its writer, not by a plugin of the profile."""

    async def scenario(there):
        there.reservation(template=template(ALL, schedulerName="plain"))
        await there.until(lambda: there.phase() == "Available")

    playing(scenario)
