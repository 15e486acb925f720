"""What SIGUSR2 writes to the log: cache against API server, the nodes as the scheduler sees them, the queue."""

from __future__ import annotations

import asyncio
import logging
from itertools import islice

from koordsched.api.decoding import DecodeError
from koordsched.client.errors import ClientError
from koordsched.client.transport import Transport
from koordsched.scheduling.comparison import compare, dump_nodes, dump_queue
from koordsched.scheduling.scheduler import Scheduler

_log = logging.getLogger(__name__)

_NODES_AT_ONCE = 100
"""Nodes in one record of the log."""


async def write_dump(scheduler: Scheduler, transport: Transport) -> None:
    """Writes the dump; if the API server cannot be asked, the dump says so."""
    try:
        differences = await compare(scheduler.cluster, transport)
        _log.info("Cache comparison: %s", "; ".join(differences.lines()))
    except (ClientError, DecodeError) as error:
        _log.warning("Cache comparison: the API server cannot be asked: %s", error)
    found = scheduler.cluster.overcommitments
    crowded = [f"{name}: {', '.join(map(str, found.on(name)))}" for name in sorted(found.nodes())]
    _log.info("Over-committed nodes: %d", len(crowded), extra={"trace": "\n".join(crowded)})
    blocks = iter(list(dump_nodes(scheduler.cluster, scheduler.queue)))
    while some := list(islice(blocks, _NODES_AT_ONCE)):
        _log.info("Dump of cached NodeInfo", extra={"trace": "\n".join(some)})
        await asyncio.sleep(0)
    _log.info("Dump of scheduling queue: %s", scheduler.queue.summary(), extra={"trace": dump_queue(scheduler.queue)})
