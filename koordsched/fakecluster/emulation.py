"""A real API server's service times, made with timers instead of work.

Writes leave at most `writes_per_second` (a measured kube-apiserver with etcd on two cores sustains 2,500); each takes a
few milliseconds, many are in flight at once; where too many wait, the server answers 429 as priority and fairness does.
"""

from __future__ import annotations

import asyncio
import random

from koordsched.fakecluster import errors


class Emulation:
    """Delays writes. Times are of the event loop; `median` is the service time of an idle server in seconds."""

    def __init__(
        self, rng: random.Random, writes_per_second: float = 2500.0, median: float = 0.003, queue_limit: int = 10_000
    ) -> None:
        self._rng = rng
        self._interval = 1.0 / writes_per_second
        self._median = median
        self._queue_limit = queue_limit
        self._next_slot = 0.0

    async def serve(self) -> None:
        """Wait until a write that arrives now would be committed. 429 when too many wait already."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        slot = max(now, self._next_slot)
        if slot - now > (self._queue_limit + 0.5) * self._interval:
            raise errors.too_many_requests("The apiserver is currently overloaded, please try again later.", 1)
        self._next_slot = slot + self._interval
        service = self._median * self._rng.lognormvariate(0.0, 0.35)
        await asyncio.sleep(slot - now + service)
