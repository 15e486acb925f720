"""Reservations whose placement is taken back, on a node where pods say already that they use them."""

import asyncio
import json
from contextlib import asynccontextmanager

from koordsched.cluster.resources import CPU
from tests.plugins.objects import container, pod
from tests.plugins.reservation.running import API, ReservationCluster, scheduling
from tests.virtualtime import run

FORBIDDEN = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden"}


@asynccontextmanager
async def being_bound(requests, used):
    """A Reservation whose binding to its node is under way, and a pod there that uses it. Gives the cluster, the
    scheduler and `refuse`, by which the binding fails. That it failed is written late."""
    cluster = ReservationCluster(nodes=())
    cluster.node("n1", cpu="8")
    sent, refused = asyncio.Event(), asyncio.Event()

    async def fault(call, proceed):
        if call.method != "PATCH" or not call.path.endswith("/reservations/r/status"):
            return await proceed()
        if sent.is_set():
            await asyncio.sleep(20)
            return await proceed()
        sent.set()
        await refused.wait()
        return 403, {"content-type": "application/json"}, json.dumps(FORBIDDEN).encode()

    async with scheduling(cluster, fault=fault) as running:
        uid = cluster.reservation(requests={"cpu": requests}, allocateOnce=False)
        await cluster.until(sent.is_set, limit=10)
        cluster.owner("user", uid, requests={"cpu": used}, labels={"app": "web"})
        await asyncio.sleep(1)
        yield cluster, running, refused.set


def test_a_pod_that_uses_one_that_ends_before_it_is_bound_can_be_preempted():
    async def main():
        async with being_bound("2", used="6") as (cluster, _, refuse):
            cluster.insert(pod("urgent", container(cpu="8"), priority=1000))
            await asyncio.sleep(5)
            refuse()
            await asyncio.sleep(1)
            cluster.delete("Reservation", "r", None, API)
            await cluster.until(lambda: cluster.get("Pod", "urgent")["spec"].get("nodeName") == "n1", limit=60)

    run(main())


def test_one_that_is_taken_back_waits_for_all_its_room():
    """It may be nominated to a node next, and keeps others from that room."""

    async def main():
        async with being_bound("8", used="6") as (cluster, running, refuse):
            (counted,) = running.scheduler.cluster.assumed.values()
            assert dict(counted.requests.amounts) == {CPU: 2000}
            refuse()
            await asyncio.sleep(1)
            waiting = running.scheduler.pending_pod(cluster.uid())
            assert dict(waiting.requests.amounts) == {CPU: 8000}

    run(main())
