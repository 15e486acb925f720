"""plugin_execution_duration_seconds: how long the calls of plugins take, measured in a tenth of the cycles.

Upstream times a plugin's call for a node. Here a call covers many nodes, and there is none where verdicts are kept:
what is measured are the calls that a sampled cycle really makes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from koordsched.framework.interface import CycleState
from koordsched.observability.instruments import Histogram
from koordsched.observability.metrics import Metrics

EVERY = 10
"""One in this many cycles is sampled."""

A = TypeVar("A")


class PluginSampling:
    """Decides which cycles are sampled, and measures them. `clock`: seconds fit for durations."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._clock = clock
        self._cycles = 0
        self._bound: dict[tuple[str, str], Histogram] = {}

    def begin(self, cycle: CycleState) -> None:
        """A cycle begins; if it is sampled, its calls are timed."""
        self._cycles += 1
        if self._cycles % EVERY == 0:
            cycle.timed = self.timed

    def timed(self, plugin: str, point: str, call: Callable[[], A]) -> A:
        """What the call answers."""
        found = self._bound.get((plugin, point))
        if found is None:
            found = self._bound[plugin, point] = self._metrics.plugin(plugin, point)
        started = self._clock()
        answer = call()
        found.observe(self._clock() - started)
        return answer
