"""Reservations that take over the room of running pods."""

import asyncio
import json

import pytest

from koordsched.framework.status import Code, Status
from koordsched.plugins.reservation.annotations import Allocated
from koordsched.plugins.reservation.kinds import RESERVATION_ALLOCATED, RESTRICTED_OPTIONS
from koordsched.plugins.reservation.plugin import Reservation
from tests.plugins.reservation.running import ReservationCluster, scheduling
from tests.virtualtime import run


@pytest.mark.parametrize("memory, phase", [("48Gi", "Available"), ("49Gi", "Pending")])
def test_what_restricted_options_leave_out_is_not_freed(memory, phase):
    """Of 64 GiB the pod has 16, which it keeps when it uses CPUs of the Reservation alone."""

    async def main():
        cluster = ReservationCluster()
        cluster.pod("p", "n1", {"cpu": "20", "memory": "16Gi"}, labels={"app": "web"})
        async with scheduling(cluster) as running:
            cluster.reservation(
                requests={"cpu": "20", "memory": memory},
                annotations={RESTRICTED_OPTIONS: json.dumps({"resources": ["cpu"]})},
                allocateOnce=False,
                preAllocation=True,
                allocatePolicy="Restricted",
            )
            await cluster.until(lambda: cluster.condition("Scheduled") is not None, limit=5)
            assert cluster.phase() == phase
            if phase == "Available":
                await cluster.until(lambda: cluster.owners() == ["p"], limit=5)
            used = running.scheduler.cluster.table.requested[1].data[0]
            assert used == (64 << 30 if phase == "Available" else 16 << 30)

    run(main())


def test_a_pod_that_is_annotated_stays_a_user_when_the_binding_fails(monkeypatch):
    """As after a restart, which reads the annotation."""

    failed = []

    async def bind(plugin, cycle, pod, node):
        failed.append(pod.name)
        return Status(Code.ERROR, ("not bound",))

    async def main():
        cluster = ReservationCluster()
        cluster.pod("p", "n1", {"cpu": "20"}, labels={"app": "web"})
        monkeypatch.setattr(Reservation, "bind", bind)
        async with scheduling(cluster) as running:
            cluster.reservation(
                requests={"cpu": "20"}, allocateOnce=False, preAllocation=True, allocatePolicy="Restricted"
            )
            await cluster.until(lambda: failed, limit=5)
            await asyncio.sleep(0.5)
            assert RESERVATION_ALLOCATED in cluster.get("Pod", "p")["metadata"]["annotations"]
            state = running.scheduler.cluster
            [pod] = [pod for pod in state.assigned.values() if pod.name == "p"]
            allocated = running.scheduler.profiles["default-scheduler"].plugins["Reservation"].cache.allocated
            assert allocated.of(pod) == Allocated("r", cluster.uid())
            monkeypatch.undo()
            await cluster.until(lambda: cluster.owners() == ["p"], limit=30)

    run(main())
