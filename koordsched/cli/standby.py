"""A scheduler that only watches, as a replica that does not lead: its state follows the cluster, it writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from koordsched.cli.objectfiles import InputError
from koordsched.client.clock import Clock
from koordsched.client.errors import ClientError, raise_for_status
from koordsched.client.lanes import Lanes
from koordsched.client.readonly import ReadOnlyTransport
from koordsched.client.transport import Transport
from koordsched.cluster.builtinkinds import NODES, PODS
from koordsched.config import Resolved
from koordsched.extender.tls import ExtenderConfigError
from koordsched.framework.profile import ProfileError
from koordsched.observability.metrics import Metrics
from koordsched.plugins import IN_TREE
from koordsched.scheduling.recording import NOT_RECORDING, Recorder
from koordsched.scheduling.reporter import Reporter
from koordsched.scheduling.scheduler import Scheduler

_TICK = 1.0
"""Seconds between two looks at deadlines."""


@asynccontextmanager
async def standby(
    transport: Transport, resolved: Resolved, clock: Clock, rng: Random, recorder: Recorder = NOT_RECORDING
) -> AsyncIterator[Scheduler]:
    """The scheduler, as soon as it has seen the cluster. `recorder` sees all objects on their way into its state.

    Raises InputError if the profiles cannot be built, or if nodes and pods cannot be listed now: later failures are
    retried, as by any scheduler.
    """
    await _check_access(transport)
    transport = ReadOnlyTransport(transport)
    lanes = Lanes(transport, clock, rng, fence=lambda: False)
    try:
        try:
            scheduler = Scheduler(
                resolved,
                IN_TREE,
                transport=transport,
                lanes=lanes,
                clock=clock,
                rng=rng,
                metrics=Metrics(process_metrics=False),
                hostname="",
                fence=lambda: False,
                recorder=recorder,
                reporter=Reporter(),
            )
        except (ProfileError, ExtenderConfigError) as error:
            raise InputError(str(error)) from error
        scheduler.start()
        ticking = asyncio.get_running_loop().create_task(_follow_time(scheduler), name="timers")
        try:
            await scheduler.wait_synced()
            yield scheduler
        finally:
            ticking.cancel()
            await scheduler.stop()
    finally:
        await lanes.close()


async def _follow_time(scheduler: Scheduler) -> None:
    """Results age, as those of a scheduler that runs."""
    while True:
        await asyncio.sleep(_TICK)
        scheduler.run_timers()


async def _check_access(transport: Transport) -> None:
    for kind in (NODES, PODS):
        try:
            raise_for_status(await transport.request("GET", kind.path, query={"limit": "1"}))
        except ClientError as error:
            raise InputError(f"{kind.plural} cannot be listed: {error}") from error
