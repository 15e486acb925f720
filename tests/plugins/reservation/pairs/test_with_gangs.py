"""Reservations and gangs: Reservations as members, and members that use Reservations."""

import asyncio

from tests.plugins.coscheduling.running import API as POD_GROUPS
from tests.plugins.coscheduling.running import LABEL
from tests.plugins.reservation.pairs.cluster import AFFINITY, CPUS, PairCluster, configuration, profile, template
from tests.plugins.reservation.running import API, scheduling
from tests.virtualtime import run

CONFIG = configuration(profile("Reservation", "Coscheduling"))
PREEMPTS = configuration(profile("Reservation", "Coscheduling", args={"Coscheduling": {"enablePreemption": True}}))
MEMBER = {LABEL: "g"}
GROUP, COUNT = (
    "internal.scheduling.koordinator.sh/bind-gang-group-id",
    "internal.scheduling.koordinator.sh/bind-gang-member-count",
)


class Cluster(PairCluster):
    """With a gang of two."""

    def group(self, minimum=2):
        self.insert(
            {"apiVersion": POD_GROUPS, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"minMember": minimum}}
        )

    def member(self, name, requests=CPUS, **more):
        """A Reservation that is a member, in the namespace `default` as the PodGroup."""
        return self.reservation(name, template=template(requests, metadata={"labels": MEMBER}), **more)

    def annotations(self, name):
        return self.get("Reservation", name, api_version=API)["metadata"].get("annotations") or {}


def playing(scenario, nodes=("n1",), cpu="10", config=CONFIG):
    async def played():
        there = Cluster(nodes, cpu=cpu)
        async with scheduling(there, config):
            await scenario(there)

    run(played())


def test_reservations_as_members_become_available_together():
    async def scenario(there):
        there.group()
        there.member("a")
        await asyncio.sleep(30)
        assert there.phase("a") == "Pending"
        there.member("b")
        await there.until(lambda: there.phase("a") == there.phase("b") == "Available")
        for name in ("a", "b"):
            written = there.annotations(name)
            assert (written[GROUP], written[COUNT]) == ("default/g", "2")

    playing(scenario)


def test_reservations_without_room_for_all_take_none():
    async def scenario(there):
        there.group()
        there.member("a", {"cpu": "6", "memory": "1Gi"})
        there.member("b", {"cpu": "6", "memory": "1Gi"})
        await there.until(lambda: there.told("a") or there.told("b"))
        await asyncio.sleep(30)
        assert (there.phase("a"), there.phase("b")) == ("Pending", "Pending")
        there.put("stranger", labels={}, requests={"cpu": "10", "memory": "1Gi"})
        await there.until(lambda: there.where("stranger"))
        there.node("n2", "20")
        await there.until(lambda: there.phase("a") == there.phase("b") == "Available", limit=120)

    playing(scenario)


def test_a_reservation_and_a_pod_in_one_gang():
    async def scenario(there):
        there.group()
        there.put("pod", labels=MEMBER)
        await asyncio.sleep(10)
        assert there.where("pod") == ""
        there.member("a")
        await there.until(lambda: there.phase("a") == "Available" and there.where("pod"))

    playing(scenario)


def test_a_member_that_is_deleted_is_missing():
    async def scenario(there):
        there.group()
        there.member("a")
        there.delete("Reservation", "a", api_version=API)
        await asyncio.sleep(1)
        there.member("b")
        await asyncio.sleep(30)
        assert there.phase("b") == "Pending"

    playing(scenario)


def test_a_gang_whose_members_use_reservations():
    async def scenario(there):
        for name in ("a", "b"):
            there.reservation(name, template=template({"cpu": "5", "memory": "1Gi"}))
        await there.until(lambda: there.phase("a") == there.phase("b") == "Available")
        there.group()
        for name in ("one", "two"):
            there.put(
                name, requests={"cpu": "5", "memory": "1Gi"}, labels={"app": "web", **MEMBER}, annotations=AFFINITY
            )
        await there.until(lambda: there.phase("a") == there.phase("b") == "Succeeded")
        assert {*there.owners("a"), *there.owners("b")} == {"one", "two"}

    playing(scenario)


def test_a_gang_that_is_too_large_gives_its_reservation_back():
    async def scenario(there):
        there.reservation(template=template({"cpu": "5", "memory": "1Gi"}), allocateOnce=False)
        await there.until(lambda: there.phase() == "Available")
        there.group(3)
        for name in ("one", "two", "three"):
            there.put(name, requests={"cpu": "5", "memory": "1Gi"}, labels={"app": "web", **MEMBER})
        await there.until(lambda: there.said("one") or there.said("two") or there.said("three"))
        there.put("single", requests={"cpu": "5", "memory": "1Gi"})
        await there.until(lambda: there.owners() == ["single"])
        # Two of the gang need what is left of the node and a Reservation more.
        assert {there.where(name) for name in ("one", "two", "three")} == {""}
        there.delete("Pod", "single", "default")
        there.node("n2", "5")
        await there.until(lambda: all(there.where(name) for name in ("one", "two", "three")), limit=120)

    playing(scenario)


def test_a_gang_evicts_no_reservation():
    async def scenario(there):
        there.reservation(template=template({"cpu": "8", "memory": "1Gi"}, priority=-5))
        await there.until(lambda: there.phase() == "Available")
        there.group()
        for name in ("one", "two"):
            there.put(name, requests={"cpu": "4", "memory": "1Gi"}, labels=MEMBER, priority=1000)
        there.put("bare", requests={"cpu": "8", "memory": "1Gi"}, labels={}, priority=1000)
        await there.until(lambda: there.said("bare") and (there.said("one") or there.said("two")))
        await asyncio.sleep(30)
        assert there.phase() == "Available"
        assert [there.where(name) for name in ("one", "two", "bare")] == ["", "", ""]
        for name in ("one", "two", "bare"):
            assert "nominatedNodeName" not in there.get("Pod", name)["status"]

    playing(scenario, config=PREEMPTS)


def test_a_gang_evicts_the_owner_of_a_reservation_only_for_room_that_it_gets():
    async def scenario(there):
        there.reservation(template=template({"cpu": "8", "memory": "1Gi"}), allocateOnce=False)
        await there.until(lambda: there.phase() == "Available")
        there.put("owner", requests={"cpu": "8", "memory": "1Gi"}, priority=0)
        await there.until(lambda: there.owners() == ["owner"])
        there.group()
        for name in ("one", "two"):
            there.put(name, requests={"cpu": "4", "memory": "1Gi"}, labels=MEMBER, priority=1000)
        await there.until(lambda: there.said("one") or there.said("two"))
        await asyncio.sleep(30)
        assert there.where("owner") == "n1"

    playing(scenario, config=PREEMPTS)


def test_job_preemption_makes_room_for_reservations():
    """For one alone, and for those of a gang together, as for pods."""

    async def scenario(there):
        there.put("small", "n1", {"cpu": "8", "memory": "1Gi"}, labels={}, priority=0)
        there.put("other", "n2", {"cpu": "8", "memory": "1Gi"}, labels={}, priority=0)
        there.reservation(template=template({"cpu": "8", "memory": "1Gi"}, priority=10, nodeName="n1"))
        await there.until(lambda: there.phase() == "Available")
        assert (there.where("small"), there.where("other")) == (None, "n2")
        there.group()
        there.member("a", {"cpu": "5", "memory": "1Gi"})
        there.member("b", {"cpu": "5", "memory": "1Gi"})
        await there.until(lambda: there.phase("a") == there.phase("b") == "Available")
        assert there.where("other") is None

    playing(scenario, nodes=("n1", "n2"), config=PREEMPTS)


def test_job_preemption_makes_room_beside_a_reservation_that_members_may_use():
    """One member uses the Reservation, the other what is left of the node without its less important pod."""

    async def scenario(there):
        there.put("small", "n1", {"cpu": "8", "memory": "1Gi"}, labels={}, priority=0)
        there.put("other", "n2", {"cpu": "8", "memory": "1Gi"}, labels={}, priority=0)
        there.reservation(template=template({"cpu": "2", "memory": "1Gi"}, priority=2000, nodeName="n1"))
        await there.until(lambda: there.phase() == "Available")
        there.group()
        for name in ("one", "two"):
            there.put(name, requests={"cpu": "5", "memory": "1Gi"}, labels={"app": "web", **MEMBER}, priority=1000)
        await there.until(lambda: there.where("one") == there.where("two") == "n1")
        assert (there.where("small"), there.where("other")) == (None, "n2")
        assert there.phase() == "Succeeded"

    playing(scenario, nodes=("n1", "n2"), config=PREEMPTS)


def test_members_that_are_available_count_after_a_restart():
    async def played():
        there = Cluster()
        async with scheduling(there, CONFIG):
            there.group()
            there.member("a")
            there.member("b")
            await there.until(lambda: there.phase("a") == there.phase("b") == "Available")
        async with scheduling(there, CONFIG):
            # The gang was placed once, so a third one goes alone.
            there.member("late")
            await there.until(lambda: there.phase("late") == "Available")

    run(played())
