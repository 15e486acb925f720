"""What runs while the scheduler leads: breakers are written on their nodes."""

from __future__ import annotations

import asyncio
import logging

from koordsched.cluster.builtinkinds import NODES
from koordsched.framework.controller import ControllerHandle
from koordsched.framework.handle import WriteFailed
from koordsched.plugins.nodecircuitbreaker.args import NodeCircuitBreakerArgs
from koordsched.plugins.nodecircuitbreaker.plugin import NodeCircuitBreaker
from koordsched.plugins.nodecircuitbreaker.record import ANNOTATION

_log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between checks."""

WRITES_PER_LOOK = 100


class CircuitBreakerController:
    """Writes the annotation of nodes whose breaker is not what they say; has the metrics."""

    def __init__(self, plugin: NodeCircuitBreaker, args: NodeCircuitBreakerArgs, handle: ControllerHandle) -> None:
        self._breakers = breakers = plugin.breakers
        self._table = handle.cluster.table
        self._writes = handle.writes
        handle.metrics.read(
            "koordsched_circuit_breakers",
            "Nodes whose circuit breaker is open or half-open, or held closed because too many of their zone are not.",
            breakers.count,
            ("state",),
            of_leader=True,
        )
        handle.metrics.read(
            "koordsched_circuit_breaker_transitions_total",
            "Changes of circuit breakers, by the state they changed to.",
            lambda: {state: float(count) for state, count in breakers.transitions.items()},
            ("to",),
        )

    async def run(self) -> None:
        """Checks and writes until cancelled."""
        # What was written before may be in doubt, or was never written.
        self._breakers.unwritten |= {self._table.names[row]: None for row in self._breakers.records}
        while True:
            await self.look()
            await asyncio.sleep(INTERVAL)

    async def look(self) -> None:
        """Writes what is not written yet; what fails is tried again at the next check."""
        breakers = self._breakers
        for node in list(breakers.unwritten)[:WRITES_PER_LOOK]:
            row = self._table.row_of.get(node)
            found = self._table.nodes[row] if row is not None else None
            breakers.unwritten.pop(node, None)
            if row is None or found is None or (text := breakers.text_on(row)) == breakers.shown_on(row):
                continue
            try:
                await self._writes.merge(
                    NODES, found.metadata, {"metadata": {"annotations": {ANNOTATION: text or None}}}
                )
            except WriteFailed as error:
                _log.warning("circuit breaker of node %s: not written: %s", node, error)
                breakers.unwritten[node] = None
