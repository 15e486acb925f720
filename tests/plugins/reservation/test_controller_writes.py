"""How the controller writes: never over what others wrote, again after a refusal, and not without need."""

import asyncio
import json

import pytest

from koordsched.client.errors import Ambiguous, NotSent
from koordsched.plugins.reservation.controller.reconciler import Reconciler
from koordsched.plugins.reservation.kinds import RESERVATION_ALLOCATED, RESERVATIONS
from tests.plugins.reservation.running import ReservationCluster, configuration, scheduling
from tests.virtualtime import run

REFUSALS = {
    "conflict": (409, "Conflict", "the object has been modified"),
    "busy": (429, "TooManyRequests", "slow down"),
    "internal": (500, "InternalError", "oops"),
    "forbidden": (403, "Forbidden", "no"),
}


def is_deletion(call):
    return call.method == "DELETE" and "/reservations/" in call.path


def is_status_write(call):
    return call.method == "PATCH" and call.path.endswith("/status") and "/reservations/" in call.path


def refusal(code, reason, message):
    status = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return code, {"content-type": "application/json"}, json.dumps(status).encode()


@pytest.mark.parametrize("how", [*REFUSALS, "lost", "not sent"])
def test_writes_that_fail_are_made_up_for(how):
    """The first three writes of each Reservation fail, some though they were carried out."""

    async def main():
        tries = {}

        async def fault(call, proceed):
            if is_status_write(call):
                tries[call.path] = tries.get(call.path, 0) + 1
                if tries[call.path] <= 3:
                    if how == "lost":
                        await proceed()
                        raise Ambiguous("lost")
                    if how == "not sent":
                        raise NotSent("no")
                    return refusal(*REFUSALS[how])
            return await proceed()

        cluster = ReservationCluster()
        async with scheduling(cluster, fault=fault):
            many = cluster.available("many", allocateOnce=False)
            cluster.owner("p", many)
            cluster.owner("q", cluster.available("once"))
            cluster.available("short", ttl="10s")
            await cluster.until(lambda: cluster.owners("many") == ["p"], limit=30)
            await cluster.until(lambda: cluster.phase("once") == "Succeeded", limit=30)
            await cluster.until(lambda: cluster.phase("short") == "Failed", limit=30)
            # What was carried out though the answer was lost is refused when it comes again, and seen by then.
            await asyncio.sleep(5)
            assert len(tries) == 3
            assert all(count > (1 if how == "lost" else 3) for count in tries.values())

    run(main())


def test_what_others_write_meanwhile_stays():
    async def main():
        cluster = ReservationCluster()
        mine = {"type": "Mine", "status": "True", "reason": "Because", "message": "keep"}
        crossed = []

        async def fault(call, proceed):
            if is_status_write(call) and not crossed:
                crossed.append(call)
                conditions = [*cluster.status()["conditions"], mine]
                cluster.patch("Reservation", "r", {"status": {"conditions": conditions}}, subresource="status")
            return await proceed()

        async with scheduling(cluster, fault=fault):
            cluster.owner("p", cluster.available())
            await cluster.until(lambda: cluster.phase() == "Succeeded", limit=5)
            assert crossed
            assert mine in cluster.status()["conditions"]
            assert [each["type"] for each in cluster.status()["conditions"]] == ["Scheduled", "Ready", "Mine"]

    run(main())


def test_no_pod_is_released_while_reservations_cannot_be_read():
    async def main():
        cluster = ReservationCluster()
        readable = False

        async def fault(call, proceed):
            if call.method == "GET" and call.path.endswith("/reservations") and not readable:
                return refusal(*REFUSALS["forbidden"])
            return await proceed()

        def annotated(name):
            return RESERVATION_ALLOCATED in (cluster.get("Pod", name)["metadata"].get("annotations") or {})

        cluster.owner("p", cluster.available(allocateOnce=False))
        cluster.owner("stray", "no-such-uid")
        gates = ("CleanExpiredReservationAllocated=true",)
        async with scheduling(cluster, fault=fault, gates=gates) as running:
            await asyncio.sleep(300)
            assert running.scheduler.cluster.objects.of(RESERVATIONS).hidden
            assert annotated("p")
            assert annotated("stray")
            readable = True
            await cluster.until(lambda: not annotated("stray"), limit=600)
            await cluster.until(lambda: cluster.owners() == ["p"], limit=5)
            assert annotated("p")

    run(main())


def test_only_the_newest_failure_is_written():
    async def main():
        cluster = ReservationCluster()
        written = []
        closed = True

        async def fault(call, proceed):
            if is_status_write(call):
                if closed:
                    return refusal(*REFUSALS["internal"])
                written.append(json.loads(call.body))
            return await proceed()

        async with scheduling(cluster, fault=fault) as running:
            cluster.reservation(requests={"cpu": "100"})
            await asyncio.sleep(5)
            for number in range(3):
                cluster.node(f"m{number}", cpu="128", taints=[{"key": "keep", "effect": "NoSchedule"}])
                await asyncio.sleep(30)
            attempts = dict(running.attempts)
            assert next(iter(attempts.values())) >= 3
            closed = False
            await cluster.until(lambda: cluster.condition("Scheduled") is not None, limit=60)
            [condition] = cluster.status()["conditions"]
            assert condition["message"].startswith("0/4 nodes are available:")
            await asyncio.sleep(60)
            assert len(written) == 1
            assert running.attempts == attempts

    run(main())


def test_nothing_is_looked_at_without_need(monkeypatch):
    async def main():
        cluster = ReservationCluster()
        looks, writes = [], []
        look = Reconciler.look

        async def counted(self, uid):
            looks.append(uid)
            await look(self, uid)

        monkeypatch.setattr(Reconciler, "look", counted)

        async def fault(call, proceed):
            if is_status_write(call):
                writes.append(call.path)
            return await proceed()

        async with scheduling(cluster, configuration(controllerWorkers=4), fault=fault):
            for number in range(200):
                cluster.available(f"r{number}", ttl="1h" if number < 150 else "0", allocateOnce=False)
            await asyncio.sleep(1)
            # Once when each appeared; several changes at a time may be one.
            assert len(looks) <= 200
            looks.clear()
            cluster.pod("foreign", "n1")
            cluster.node("n2")
            await asyncio.sleep(3500)
            assert (looks, writes) == ([], [])
            await asyncio.sleep(200)
            assert sum(cluster.phase(f"r{number}") == "Failed" for number in range(200)) == len(writes) == 150
            # At the deadline, and when what was written came back.
            assert len(looks) <= 300
            looks.clear()
            cluster.delete("Node", "n2")
            await asyncio.sleep(60)
            assert looks == []

    run(main())


def test_a_deletion_that_is_refused_is_tried_again():
    async def main():
        tries = []

        async def fault(call, proceed):
            if is_deletion(call):
                tries.append(call.path)
                if len(tries) < 3:
                    return refusal(*REFUSALS["forbidden"])
            return await proceed()

        cluster = ReservationCluster()
        async with scheduling(cluster, configuration(gcIntervalSeconds=10), fault=fault):
            cluster.available(node="gone")
            await cluster.until(lambda: cluster.status() is None, limit=60)
            assert len(tries) == 3

    run(main())
