"""Reservations and quotas: a Reservation is asked for room in its quota, and uses none; its owners do."""

import asyncio

from tests.plugins.elasticquota.objects import PREFIX, quota
from tests.plugins.reservation.pairs.cluster import CPUS, PairCluster, configuration, profile, template
from tests.plugins.reservation.running import scheduling
from tests.virtualtime import run

QUOTA = {PREFIX + "name": "team"}
CONFIG = configuration(profile("Reservation", "ElasticQuota"))


def cluster(**labels):
    """With a quota of 4 CPUs, which lends nothing."""
    found = PairCluster(cpu="6")
    for name in ("quotas", "koordinator-system"):
        found.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    amounts = {"cpu": 4, "memory": "64Gi"}
    found.insert(quota("team", amounts, amounts, **{"allow_lent_resource": "false", **labels}))
    return found


def test_owners_are_charged_and_reservations_are_not():
    async def playing():
        there = cluster()
        async with scheduling(there, CONFIG):
            there.reservation(
                template=template({"cpu": "3", "memory": "3Gi"}, metadata={"labels": QUOTA}), allocateOnce=False
            )
            await there.until(lambda: there.phase() == "Available")
            # 4 CPUs may be used. The Reservation has 3, which are the owner's to use.
            there.put("owner", requests={"cpu": "3", "memory": "3Gi"}, labels={"app": "web", **QUOTA})
            await there.until(lambda: there.where("owner"))
            await there.until(lambda: there.owners() == ["owner"])
            there.put("second", labels={"app": "other", **QUOTA}, requests=CPUS)
            await there.until(lambda: there.said("second"))
            assert "Insufficient quotas" in there.said("second")
            there.put("third", labels={"app": "other", **QUOTA}, requests={"cpu": "1", "memory": "1Gi"})
            await there.until(lambda: there.where("third"))

    run(playing())


def test_a_reservation_that_is_too_large_for_its_quota_says_so():
    async def playing():
        there = cluster()
        async with scheduling(there, CONFIG):
            there.reservation(template=template({"cpu": "5", "memory": "1Gi"}, metadata={"labels": QUOTA}))
            await there.until(lambda: there.told())
            await asyncio.sleep(30)
            assert there.phase() == "Pending"
            assert "Insufficient quotas" in there.told()
            assert "not found" not in there.told()

    run(playing())


def test_a_quota_that_lends_gives_a_reservation_what_its_pods_request():
    """As upstream: what it requests itself does not count. Pods that come make room within five minutes."""

    async def playing():
        there = cluster(allow_lent_resource="true")
        async with scheduling(there, CONFIG):
            there.reservation(template=template(CPUS, metadata={"labels": QUOTA}))
            await there.until(lambda: there.told())
            assert "Insufficient quotas, quotaName: team, runtime: cpu:0," in there.told()
            there.put("waits", requests=CPUS, labels=QUOTA, schedulerName="another")
            await there.until(lambda: there.phase() == "Available", limit=400)

    run(playing())


def test_the_quota_of_a_reservation_has_room_later():
    async def playing():
        there = cluster()
        async with scheduling(there, CONFIG):
            there.put("first", requests={"cpu": "3", "memory": "1Gi"}, labels=QUOTA)
            await there.until(lambda: there.where("first"))
            there.reservation(template=template(CPUS, metadata={"labels": QUOTA}))
            await there.until(lambda: there.told())
            there.delete("Pod", "first", "default")
            await there.until(lambda: there.phase() == "Available", limit=60)

    run(playing())


def test_a_quota_that_is_full_keeps_owners_out_of_their_reservation():
    async def playing():
        there = cluster()
        async with scheduling(there, CONFIG):
            there.reservation(template=template({"cpu": "3", "memory": "3Gi"}), allocateOnce=False)
            await there.until(lambda: there.phase() == "Available")
            there.put("first", requests={"cpu": "3", "memory": "1Gi"}, labels=QUOTA)
            await there.until(lambda: there.where("first"))
            there.put("owner", labels={"app": "web", **QUOTA})
            await there.until(lambda: there.said("owner"))
            assert "Insufficient quotas" in there.said("owner")
            assert there.owners() == []
            there.delete("Pod", "first", "default")
            await there.until(lambda: there.owners() == ["owner"], limit=60)

    run(playing())
