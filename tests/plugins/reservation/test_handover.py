"""A new leader whose watches are behind: what its predecessor gave a Reservation is kept."""

import asyncio

from koordsched.plugins.reservation.kinds import RESERVATIONS
from tests.plugins.reservation.running import ReservationCluster, scheduling
from tests.virtualtime import run


async def late(call, proceed):
    """A fault: watches of Reservations show nothing for an hour."""
    reply = await proceed()
    if call.path != RESERVATIONS.path or "watch" not in call.query:
        return reply
    status, headers, body = reply

    async def later():
        await asyncio.sleep(3600)
        async for chunk in body:
            yield chunk

    return status, headers, later()


def test_a_new_leader_knows_which_reservations_have_a_node():
    async def main():
        cluster = ReservationCluster()
        async with scheduling(cluster, fault=late) as running:
            # As a predecessor writes it at the last moment.
            cluster.available(requests={"cpu": "10", "memory": "10Gi"})
            await running.scheduler.catch_up()
            cluster.pod("large", requests={"cpu": "30"})
            cluster.pod("small", requests={"cpu": "20"})
            await cluster.until(lambda: cluster.get("Pod", "small")["spec"].get("nodeName") == "n1", limit=10)
            assert "nodeName" not in cluster.get("Pod", "large")["spec"]

    run(main())


def test_a_new_leader_does_not_wait_for_reservations_that_the_server_does_not_have():
    async def main():
        cluster = ReservationCluster()
        cluster.delete(
            "CustomResourceDefinition", "reservations.scheduling.koordinator.sh", None, "apiextensions.k8s.io/v1"
        )
        async with scheduling(cluster) as running:
            async with asyncio.timeout(5):
                await running.scheduler.catch_up()
            cluster.pod("p")
            await cluster.until(lambda: cluster.get("Pod", "p")["spec"].get("nodeName") == "n1", limit=10)

    run(main())
