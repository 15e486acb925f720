"""Reservations and preemption: which pods may be evicted for which, and Reservations that are nominated."""

import asyncio

import pytest

from tests.plugins.reservation.pairs.cluster import CPUS, PairCluster, configuration, profile, template
from tests.plugins.reservation.running import scheduling
from tests.virtualtime import run

ALL = {"cpu": "8", "memory": "8Gi"}
PLAIN = configuration(profile("Reservation"))
PREEMPTS = configuration(profile("Reservation", args={"Reservation": {"enablePreemption": True}}))


@pytest.mark.parametrize("config", [PLAIN, PREEMPTS], ids=["default preemption", "and the plugin's"])
def test_a_reservation_is_no_victim(config):
    async def playing():
        there = PairCluster(cpu="8")
        async with scheduling(there, config):
            there.reservation(template=template(ALL, priority=-5))
            await there.until(lambda: there.phase() == "Available")
            there.put("important", requests=ALL, labels={}, priority=1000)
            await there.until(lambda: there.said("important"))
            await asyncio.sleep(30)
            assert there.phase() == "Available"
            assert there.where("important") == ""
            assert "nominatedNodeName" not in there.get("Pod", "important")["status"]

    run(playing())


@pytest.mark.parametrize("config, made", [(PLAIN, False), (PREEMPTS, True)], ids=["no", "yes"])
def test_a_reservation_evicts_pods_if_the_plugin_may(config, made):
    async def playing():
        there = PairCluster(cpu="8")
        there.put("small", "n1", ALL, labels={}, priority=0)
        async with scheduling(there, config):
            there.reservation(template=template(ALL, priority=10))
            await there.until(lambda: there.told() or there.phase() == "Available")
            await asyncio.sleep(60)
            assert (there.phase() == "Available", there.where("small") is None) == (made, made)
            if not made:
                assert there.told().startswith("0/1 nodes are available: 1 Insufficient cpu")
                assert "not found" not in there.told()

    run(playing())


def test_an_owner_evicts_a_less_important_owner_and_takes_its_place():
    async def playing():
        there = PairCluster(cpu="8")
        async with scheduling(there, PREEMPTS):
            there.reservation(template=template(ALL), allocateOnce=False, allocatePolicy="Restricted")
            await there.until(lambda: there.phase() == "Available")
            there.put("small", requests=ALL, priority=0)
            await there.until(lambda: there.owners() == ["small"])
            there.put("important", requests=ALL, priority=1000)
            await there.until(lambda: there.owners() == ["important"], limit=60)
            assert there.where("small") is None

    run(playing())


@pytest.mark.parametrize("config", [PLAIN, PREEMPTS], ids=["default preemption", "and the plugin's"])
def test_no_owner_is_evicted_for_a_pod_that_gets_nothing_of_it(config):
    async def playing():
        there = PairCluster(cpu="8")
        async with scheduling(there, config):
            there.reservation(template=template(ALL), allocateOnce=False)
            await there.until(lambda: there.phase() == "Available")
            there.put("owner", requests=ALL, priority=0)
            await there.until(lambda: there.owners() == ["owner"])
            there.put("stranger", requests=CPUS, labels={}, priority=1000)
            await there.until(lambda: there.said("stranger"))
            await asyncio.sleep(30)
            assert there.where("owner") == "n1"
            assert there.where("stranger") == ""

    run(playing())


def test_a_pod_evicts_another_beside_a_reservation():
    async def playing():
        there = PairCluster(cpu="8")
        async with scheduling(there, PLAIN):
            there.reservation(template=template({"cpu": "4", "memory": "4Gi"}), allocateOnce=False)
            await there.until(lambda: there.phase() == "Available")
            there.put("small", "n1", {"cpu": "4", "memory": "4Gi"}, labels={}, priority=0)
            # 4 are reserved for it, and the other 4 it takes from a pod.
            there.put("owner", requests=ALL, priority=1000)
            await there.until(lambda: there.owners() == ["owner"], limit=60)
            assert there.where("small") is None

    run(playing())


def test_what_is_nominated_to_a_pod_no_less_important_reservation_gets():
    async def playing():
        there = PairCluster(cpu="8")
        there.put("small", "n1", ALL, labels={}, priority=0, terminationGracePeriodSeconds=20)
        async with scheduling(there, PLAIN):
            there.put("important", requests=ALL, labels={}, priority=1000)
            await there.until(lambda: there.get("Pod", "important")["status"].get("nominatedNodeName"))
            there.reservation(template=template(CPUS, priority=10))
            await there.until(lambda: there.told())
            there.registry.delete(there.resource("Pod"), "default", "small", grace_period_seconds=0)
            await there.until(lambda: there.where("important"), limit=60)
            assert there.phase() == "Pending"

    run(playing())


def test_what_is_nominated_to_a_reservation_no_less_important_pod_gets():
    async def playing():
        there = PairCluster(cpu="8")
        there.put("small", "n1", ALL, labels={}, priority=0, terminationGracePeriodSeconds=20)
        async with scheduling(there, PREEMPTS):
            there.reservation(template=template(ALL))
            await there.until(lambda: there.get("Pod", "small")["metadata"].get("deletionTimestamp"))
            there.put("other", labels={}, priority=1000)
            await there.until(lambda: there.said("other"))
            there.registry.delete(there.resource("Pod"), "default", "small", grace_period_seconds=0)
            await there.until(lambda: there.phase() == "Available", limit=60)
            assert there.where("other") == ""

    run(playing())
