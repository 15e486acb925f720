"""Reservations that users change while they are on a node, or on their way to one."""

import asyncio

from tests.plugins.reservation.running import ReservationCluster, scheduling
from tests.virtualtime import run


def cpus(running):
    """Milli-CPUs that count on the first node."""
    return int(running.scheduler.cluster.table.requested[0].data[0])


def test_one_whose_node_was_taken_away_is_scheduled_anew():
    async def main():
        cluster = ReservationCluster()
        async with scheduling(cluster) as running:
            cluster.reservation(allocateOnce=False)
            await cluster.until(lambda: cluster.phase() == "Available", limit=5)
            cluster.pod("p", labels={"app": "web"})
            await cluster.until(lambda: cluster.owners() == ["p"], limit=5)
            assert cpus(running) == 10_000
            lost = {"phase": "Pending", "nodeName": None, "allocatable": None}
            cluster.patch("Reservation", "r", {"status": lost}, subresource="status")
            await cluster.until(lambda: cluster.phase() == "Available", limit=5)
            assert cpus(running) == 10_000
            assert cluster.owners() == ["p"]
            cluster.delete("Pod", "p", "default")
            await cluster.until(lambda: not cluster.owners(), limit=5)
            assert cpus(running) == 10_000

    run(main())


def test_pods_taken_over_stay_owners_when_it_changes_before_it_is_bound():
    async def main():
        cluster = ReservationCluster()
        held = asyncio.Event()

        async def fault(call, proceed):
            if call.path.endswith("/reservations/r/status") and not held.is_set():
                await held.wait()
            return await proceed()

        async with scheduling(cluster, fault=fault) as running:
            requests = {"cpu": "20"}
            cluster.pod("p", "n1", requests, labels={"app": "web"})
            await asyncio.sleep(1)
            uid = cluster.reservation(
                requests=requests, allocateOnce=False, preAllocation=True, allocatePolicy="Restricted"
            )
            await asyncio.sleep(1)
            info = running.scheduler.profiles["default-scheduler"].plugins["Reservation"].cache.get(uid)
            assert [pod.name for pod in info.owners.values()] == ["p"]
            cluster.patch("Reservation", "r", {"metadata": {"labels": {"new": "label"}}})
            await asyncio.sleep(1)
            assert info.reservation.metadata.labels == {"new": "label"}
            assert [pod.name for pod in info.owners.values()] == ["p"]
            assert cpus(running) == 20_000
            held.set()
            await cluster.until(lambda: cluster.owners() == ["p"], limit=10)
            assert cpus(running) == 20_000

    run(main())
