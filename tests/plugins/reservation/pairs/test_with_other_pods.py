"""Reservations, topology spread and inter-pod affinity: a reserve pod is a pod, but not to its owners."""

import asyncio

from tests.plugins.reservation.pairs.cluster import PairCluster, configuration, profile, template
from tests.plugins.reservation.running import scheduling
from tests.virtualtime import run

CONFIG = configuration(profile("Reservation"))
HOSTNAME = "kubernetes.io/hostname"
WEB = {"matchLabels": {"app": "web"}}
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": WEB, "topologyKey": HOSTNAME}]
    }
}
NEAR = {
    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": WEB, "topologyKey": HOSTNAME}]}
}
EVEN = {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}
BY_NAME = [{"object": {"name": "owner"}}, {"object": {"name": "second"}}]


class Cluster(PairCluster):
    """With a Reservation for the pods `owner` and `second`, labelled app=web, on n1."""

    def node(self, name, cpu="10", memory="64Gi", **spec):
        super().node(name, cpu, memory, **spec)
        self.patch("Node", name, {"metadata": {"labels": {HOSTNAME: name}}}, api_version="v1")

    async def reserved(self, **spec):
        meta = {"labels": {"app": "web"}}
        self.reservation(
            template=template(metadata=meta, nodeSelector={HOSTNAME: "n1"}, **spec), owners=BY_NAME, allocateOnce=False
        )
        await self.until(lambda: self.phase() == "Available")


def playing(scenario, nodes=("n1", "n2")):
    async def played():
        there = Cluster(nodes)
        async with scheduling(there, CONFIG):
            await scenario(there)

    run(played())


def test_a_pod_keeps_away_from_a_reservation_and_an_owner_does_not():
    async def scenario(there):
        await there.reserved(affinity=APART)
        there.put("stranger", affinity=APART)
        await there.until(lambda: there.where("stranger"))
        assert there.where("stranger") == "n2"
        there.put("owner", affinity=APART)
        await there.until(lambda: there.where("owner"))
        assert there.where("owner") == "n1"
        await there.until(lambda: there.owners() == ["owner"])
        # The first owner is there, which the second one must not be near.
        there.put("second", affinity=APART)
        await there.until(lambda: there.said("second"))
        assert there.said("second").startswith(
            "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules"
        )

    playing(scenario)


def test_a_pod_with_a_label_keeps_away_from_a_reservation_that_keeps_away():
    async def scenario(there):
        await there.reserved(affinity=APART)
        there.put("stranger", nodeSelector={HOSTNAME: "n1"})
        await there.until(lambda: there.said("stranger"))
        assert "1 node(s) didn't satisfy existing pods anti-affinity rules" in there.said("stranger")
        there.put("owner", nodeSelector={HOSTNAME: "n1"})
        await there.until(lambda: there.owners() == ["owner"])
        there.delete("Pod", "owner", "default")
        there.delete("Reservation", "r", api_version="scheduling.koordinator.sh/v1alpha1")
        await there.until(lambda: there.where("stranger") == "n1", limit=60)

    playing(scenario)


def test_a_pod_goes_near_a_reservation():
    async def scenario(there):
        there.put("follower", labels={}, affinity=NEAR)
        await there.until(lambda: there.said("follower"))
        await there.reserved()
        await there.until(lambda: there.where("follower") == "n1", limit=60)

    playing(scenario)


def test_a_reservation_counts_in_a_spread_but_not_for_its_owner():
    async def scenario(there):
        await there.reserved()
        there.put("stranger", topologySpreadConstraints=[EVEN])
        await there.until(lambda: there.where("stranger"))
        assert there.where("stranger") == "n2"
        # For the owner there is a pod on n2 and none on n1.
        there.put("owner", topologySpreadConstraints=[EVEN])
        await there.until(lambda: there.owners() == ["owner"])
        # With the owner and what is left of the Reservation, n1 has two.
        there.put("another", topologySpreadConstraints=[EVEN])
        await there.until(lambda: there.where("another"))
        assert there.where("another") == "n2"

    playing(scenario)


def test_a_spread_that_keeps_an_owner_from_its_reservation():
    async def scenario(there):
        there.put("here", "n1")
        there.put("there", "n1")
        await there.reserved()
        there.put("owner", topologySpreadConstraints=[EVEN])
        await there.until(lambda: there.where("owner"))
        await asyncio.sleep(1)
        assert there.where("owner") == "n2"
        assert there.owners() == []

    playing(scenario)
