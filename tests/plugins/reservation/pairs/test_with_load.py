"""Reservations and load: reserve pods are no load, owners are."""

from tests.plugins.loadaware.objects import metric
from tests.plugins.reservation.pairs.cluster import PairCluster, configuration, profile, template
from tests.plugins.reservation.running import scheduling
from tests.virtualtime import run

CONFIG = configuration(profile("Reservation", "LoadAwareScheduling"))


def playing(scenario, used="1"):
    async def played():
        there = PairCluster(cpu="10")
        there.insert(metric("n1", of_node=(used, "1Gi"), at=there.clock.wall()))
        async with scheduling(there, CONFIG):
            await scenario(there)

    run(played())


def test_a_reservation_is_no_load_and_its_owner_is():
    async def scenario(there):
        # 65 % of 10 CPUs is the threshold.
        there.reservation(template=template({"cpu": "6", "memory": "1Gi"}), allocateOnce=False)
        await there.until(lambda: there.phase() == "Available")
        there.put("stranger", labels={}, requests={"cpu": "3", "memory": "1Gi"})
        await there.until(lambda: there.where("stranger"))
        there.put("owner", requests={"cpu": "6", "memory": "1Gi"})
        await there.until(lambda: there.said("owner"))
        assert "cpu usage exceed threshold" in there.said("owner")
        there.put("small", requests={"cpu": "1", "memory": "1Gi"})
        await there.until(lambda: there.owners() == ["small"])

    playing(scenario)


def test_a_reservation_keeps_off_a_node_that_is_busy():
    async def scenario(there):
        there.reservation(template=template({"cpu": "1", "memory": "1Gi"}))
        await there.until(lambda: there.told())
        assert "cpu usage exceed threshold" in there.told()

    playing(scenario, used="9")
