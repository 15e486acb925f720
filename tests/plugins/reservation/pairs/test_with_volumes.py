"""Reservations and volumes: claims are those of the pods; a Reservation binds and provisions none."""

import asyncio

from tests.plugins.reservation.pairs.cluster import AFFINITY, PairCluster, configuration, profile, template
from tests.plugins.reservation.running import scheduling
from tests.virtualtime import run

CONFIG = configuration(profile("Reservation"))
HOSTNAME = "kubernetes.io/hostname"
CLAIM = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


class Cluster(PairCluster):
    """With local volumes, which are bound when a pod is placed."""

    def __init__(self, volumes, mode="ReadWriteOnce"):
        super().__init__(("n1", "n2"))
        self.create(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": "local"},
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            }
        )
        for node in volumes:
            term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]}
            self.create(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": f"volume-{node}"},
                    "spec": {
                        "capacity": {"storage": "1Gi"},
                        "accessModes": [mode],
                        "storageClassName": "local",
                        "local": {"path": "/data"},
                        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
                    },
                    "status": {"phase": "Available"},
                }
            )
        self.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "data"},
                "spec": {
                    "accessModes": [mode],
                    "storageClassName": "local",
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }
        )

    def node(self, name, cpu="10", memory="64Gi", **spec):
        super().node(name, cpu, memory, **spec)
        self.patch("Node", name, {"metadata": {"labels": {HOSTNAME: name}}}, api_version="v1")

    def volume(self, node):
        """Which claim the volume is bound to."""
        return self.get("PersistentVolume", f"volume-{node}")["spec"].get("claimRef", {}).get("name")


def playing(scenario, *volumes, **more):
    async def played():
        there = Cluster(volumes, **more)
        async with scheduling(there, CONFIG):
            await scenario(there)

    run(played())


def test_an_owner_gets_the_volume_on_the_node_of_its_reservation():
    async def scenario(there):
        there.reservation(template=template(nodeName="n2"))
        await there.until(lambda: there.phase() == "Available")
        there.put("owner", volumes=CLAIM)
        await there.until(lambda: there.volume("n2") == "data")
        assert there.volume("n1") is None

    playing(scenario, "n1", "n2")


def test_an_owner_whose_volume_is_elsewhere():
    async def scenario(there):
        there.reservation(template=template(nodeName="n2"))
        await there.until(lambda: there.phase() == "Available")
        there.put("must", volumes=CLAIM, annotations=AFFINITY)
        await there.until(lambda: there.said("must"))
        assert there.volume("n1") is None
        assert "didn't find available persistent volumes to bind" in there.said("must")
        there.delete("Pod", "must", "default")
        there.put("may", volumes=CLAIM)
        await there.until(lambda: there.volume("n1") == "data")
        assert there.owners() == []

    playing(scenario, "n1")


def test_a_reservation_with_a_claim_binds_no_volume_and_leaves_it_to_its_owner():
    async def scenario(there):
        there.reservation(template=template(volumes=CLAIM), allocateOnce=False)
        await there.until(lambda: there.phase() == "Available")
        assert there.status()["nodeName"] == "n2"
        await asyncio.sleep(60)
        assert there.volume("n2") is None
        there.put("owner", volumes=CLAIM)
        await there.until(lambda: there.volume("n2") == "data")

    playing(scenario, "n2")


def test_a_volume_that_a_reservation_looked_at_is_free_for_others():
    async def scenario(there):
        there.reservation(template=template(volumes=CLAIM), allocateOnce=False)
        await there.until(lambda: there.phase() == "Available")
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "other"}}
        claim["spec"] = there.get("PersistentVolumeClaim", "data")["spec"]
        there.create(claim)
        there.put("other", labels={}, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "other"}}])
        await there.until(lambda: there.volume("n2") == "other")

    playing(scenario, "n2")


def test_a_claim_for_one_pod_is_the_owners_though_its_reservation_names_it():
    async def scenario(there):
        there.reservation(template=template(volumes=CLAIM), allocateOnce=False)
        await there.until(lambda: there.phase() == "Available")
        there.put("owner", volumes=CLAIM)
        await there.until(lambda: there.volume("n2") == "data")

    playing(scenario, "n2", mode="ReadWriteOncePod")
