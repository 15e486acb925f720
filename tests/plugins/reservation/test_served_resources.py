"""Extended resources that devices serve (dra spec 3.10): nodes have none of them, and are not short of them."""

import pytest

from tests.plugins.dynamicresources.extended.objects import device_class, resource_slice
from tests.plugins.objects import container, pod
from tests.plugins.reservation.running import ReservationCluster, configuration, scheduling
from tests.virtualtime import run

GPU = "x.io/gpu"


def cluster_with_devices(*, served=True):
    cluster = ReservationCluster()
    cluster.create(device_class("a", GPU if served else None))
    cluster.create(resource_slice("s", ["d0", "d1"], nodeName="n1"))
    return cluster


@pytest.mark.parametrize("served", [True, False])
def test_an_owner_that_requests_one_uses_its_reservation(served):
    async def main():
        cluster = cluster_with_devices(served=served)
        async with scheduling(cluster, configuration()):
            cluster.available(allocateOnce=False, allocatePolicy="Aligned")
            wanted = pod("p", container(cpu=2, **{GPU: 1}), labels={"app": "web"})
            wanted["spec"]["containers"][0]["resources"]["limits"] = {GPU: "1"}
            cluster.create(wanted)
            if not served:
                await cluster.until(lambda: cluster.get("Pod", "p")["status"].get("conditions"), limit=5)
                assert "nodeName" not in cluster.get("Pod", "p")["spec"]
                return
            await cluster.until(lambda: cluster.get("Pod", "p")["spec"].get("nodeName") == "n1", limit=5)
            await cluster.until(lambda: cluster.owners() == ["p"], limit=5)

    run(main())


@pytest.mark.parametrize("served", [True, False])
def test_a_reservation_of_one_takes_over_a_running_pod(served):
    async def main():
        cluster = cluster_with_devices(served=served)
        cluster.pod("p", "n1", {"cpu": "20"}, labels={"app": "web"})
        async with scheduling(cluster, configuration()):
            cluster.reservation(
                requests={"cpu": "20", GPU: "1"}, allocateOnce=False, preAllocation=True, allocatePolicy="Restricted"
            )
            await cluster.until(lambda: cluster.condition("Scheduled") is not None, limit=5)
            assert cluster.phase() == ("Available" if served else "Pending")
            if served:
                await cluster.until(lambda: cluster.owners() == ["p"], limit=5)

    run(main())
