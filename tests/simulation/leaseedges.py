"""The edges of leases: renewals answered so late that the lease is half over, writes sent as it ends and slow to
arrive, and processes that stop between the fence and the request.
"""

import asyncio
from random import Random

from tests.simulation.apiserver import call_later

LEASES = "/apis/coordination.k8s.io/"


class LeaseEdges:
    """Of one process, until the faults end."""

    def __init__(self, process):
        self._process = process
        self.rng = Random(f"{process.plan.seed} edges of leases {process.name}")
        self._lost_until = 0.0
        """Until when requests about leases are not sent."""

    def _is_over(self):
        return self._process.simulation.weather.is_clear

    def _tell(self, text):
        self._process.trace(f"{self._process.name} {text}")

    def loses(self, call):
        """Whether a request is not sent."""
        return (
            call.path.startswith(LEASES)
            and call.query.get("watch") != "1"
            and asyncio.get_running_loop().time() < self._lost_until
            and not self._is_over()
        )

    def delay(self, call):
        """Seconds that a request travels at least: where the lease is not renewed any more, many take long."""
        plan, rng = self._process.plan, self.rng
        if call.method == "GET" or call.path.startswith(LEASES) or self._is_over():
            return 0.0
        if asyncio.get_running_loop().time() >= self._lost_until or rng.random() < 0.5:
            return 0.0
        self._tell("write slow at the end of a lease")
        return plan.latest * rng.uniform(0.5, 1)

    def delay_of_answer(self, call):
        """Seconds for which the answer is held back: that of a renewal, up to the time that is waited for it."""
        rng, (_, renew_deadline, _) = self.rng, self._process.plan.lease
        if call.method == "GET" or not call.path.startswith(LEASES) or self._is_over() or rng.random() > 0.2:
            return 0.0
        delay = renew_deadline / 2 * rng.uniform(0.85, 1.02)
        self._tell("lease write answered late")
        if rng.random() < 0.7:
            self._tell("lease is not renewed any more")
            self._lost_until = asyncio.get_running_loop().time() + 1.7 * renew_deadline
        return delay

    def passed(self):
        """The fence has let a write pass: the process may stop before it does anything else."""
        rng, lease_duration = self.rng, self._process.plan.lease[0]
        if self._is_over() or rng.random() > 0.01:
            return
        loop, length = asyncio.get_running_loop(), lease_duration * rng.uniform(0.3, 1.5)
        self._tell(f"stops behind the fence for {length:.3f}")
        loop.stop_process(self._process.name)
        call_later(length, self._resume)

    def _resume(self):
        self._tell("resumed behind the fence")
        asyncio.get_running_loop().resume_process(self._process.name)
