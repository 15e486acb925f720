"""plugin_execution_duration_seconds: what one plugin costs on one node, measured in a tenth of the cycles.

Upstream times a plugin's call for a node. Here calls cover many nodes or none at all (kept verdicts), so a
sampled cycle asks every plugin that took part once more, about the node that was chosen.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from koordsched.cluster.nodetable import NodeTable
from koordsched.framework.filtering import Verdicts
from koordsched.framework.interface import CycleState
from koordsched.observability.instruments import Histogram
from koordsched.observability.metrics import Metrics

EVERY = 10
"""One cycle in so many is sampled."""


class PluginSampling:
    """Decides which cycles are sampled, and samples them. `clock`: seconds fit for durations."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._clock = clock
        self._cycles = 0
        self._bound: dict[tuple[str, str], Histogram] = {}

    def placed(self, cycle: CycleState, table: NodeTable, verdicts: Verdicts, row: int, scored: bool) -> None:
        """A cycle chose a node; `scored`: scores were compared. To be called before the pod is assumed there."""
        self._cycles += 1
        if self._cycles % EVERY:
            return
        plan, pod, clock = verdicts.plan, cycle.pod, self._clock
        one, rows = slice(row, row + 1), np.array([row], dtype=np.intp)
        for _, node_filter in plan.node_filters:
            started = clock()
            node_filter.filter_rows(plan.shape, table, one)
            self._of(node_filter.name, "Filter").observe(clock() - started)
        for _, pod_filter in plan.pod_filters:
            if pod_filter.name not in cycle.skipped and not pod_filter.skips(pod):
                started = clock()
                pod_filter.filter(cycle, pod, table, rows)
                self._of(pod_filter.name, "Filter").observe(clock() - started)
        if not scored:
            return
        for scorer, _ in plan.node_scores:
            started = clock()
            scorer.score_rows(plan.shape, table, one)
            self._of(scorer.name, "Score").observe(clock() - started)

    def _of(self, plugin: str, point: str) -> Histogram:
        found = self._bound.get((plugin, point))
        if found is None:
            found = self._bound[plugin, point] = self._metrics.plugin(plugin, point)
        return found
