"""Reservations that users change while they are on a node, or on their way to one."""

import asyncio

import pytest

from koordsched.client.errors import Ambiguous
from koordsched.framework.interface import Permit, PreBind
from koordsched.framework.status import SUCCESS, Code, Status
from tests.plugins.reservation.running import ReservationCluster, scheduling
from tests.virtualtime import run


class Annotating(PreBind):
    """Writes something on what is bound, as plugins that allocate do."""

    name = "Annotating"

    def __init__(self, args, handle):
        pass

    def pre_bind_pre_flight(self, cycle, pod, node):
        return SUCCESS

    async def pre_bind(self, cycle, pod, node):
        cycle.patch.annotate("example.com/given", node)
        return SUCCESS


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


@pytest.mark.parametrize("annotated", [False, True])
def test_one_that_ends_while_it_is_bound_has_ended(annotated):
    """What is written of its node says no word against what has been written meanwhile."""

    async def main():
        cluster = ReservationCluster()
        held, sent = asyncio.Event(), asyncio.Event()

        async def fault(call, proceed):
            if call.path.endswith("/reservations/r/status") and not held.is_set():
                sent.set()
                await held.wait()
            return await proceed()

        async with scheduling(cluster, fault=fault, plugins=(Annotating,) if annotated else ()) as running:
            cluster.reservation()
            await sent.wait()
            assert cpus(running) == 10_000
            cluster.patch("Reservation", "r", {"status": {"phase": "Failed"}}, subresource="status")
            held.set()
            await cluster.until(lambda: cpus(running) == 0, limit=5)
            assert cluster.phase() == "Failed"

    run(main())


@pytest.mark.parametrize("annotated", [False, True])
def test_one_that_is_changed_while_it_is_bound_gets_its_node_in_the_end(annotated):
    async def main():
        cluster = ReservationCluster()
        held, sent = asyncio.Event(), asyncio.Event()

        async def fault(call, proceed):
            if call.path.endswith("/reservations/r/status") and not held.is_set():
                sent.set()
                await held.wait()
            return await proceed()

        async with scheduling(cluster, fault=fault, plugins=(Annotating,) if annotated else ()) as running:
            cluster.reservation()
            await sent.wait()
            cluster.patch("Reservation", "r", {"metadata": {"labels": {"new": "label"}}})
            held.set()
            await cluster.until(lambda: cluster.phase() == "Available", limit=20)
            assert cpus(running) == 10_000

    run(main())


def test_a_binding_whose_response_is_lost_is_no_failure():
    async def main():
        cluster = ReservationCluster()
        lost = []

        async def fault(call, proceed):
            if call.path.endswith("/reservations/r/status") and not lost:
                lost.append(call)
                await proceed()
                raise Ambiguous("lost")
            return await proceed()

        async with scheduling(cluster, fault=fault) as running:
            cluster.reservation()
            await cluster.until(lambda: cluster.phase() == "Available", limit=5)
            await asyncio.sleep(1)
            assert not [event for event in cluster.events() if event["reason"] == "FailedScheduling"]
            assert cpus(running) == 10_000

    run(main())


class Holding(Permit):
    """Lets pods wait."""

    name = "Holding"

    def __init__(self, args, handle):
        pass

    def permit(self, cycle, pod, row):
        return Status(Code.WAIT), 60.0


def test_one_that_ends_while_it_waits_to_be_bound_leaves_nothing():
    async def main():
        cluster = ReservationCluster()
        async with scheduling(cluster, plugins=(Holding,)) as running:
            cluster.reservation()
            await cluster.until(lambda: cpus(running) == 10_000, limit=5)
            cache = running.scheduler.profiles["default-scheduler"].plugins["Reservation"].cache
            assert [info.name for info in cache.on(0)] == ["r"]
            cluster.patch("Reservation", "r", {"status": {"phase": "Failed"}}, subresource="status")
            await cluster.until(lambda: cpus(running) == 0, limit=5)
            assert list(cache.on(0)) == []

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
