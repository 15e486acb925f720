"""Reservations that take over the room of running pods."""

import json

import pytest

from koordsched.plugins.reservation.kinds import RESTRICTED_OPTIONS
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
