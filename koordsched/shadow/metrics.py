"""The metrics of a trial."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client.process_collector import ProcessCollector

from koordsched.observability.instruments import exponential_buckets
from koordsched.observability.metric_registry import MetricRegistry
from koordsched.shadow.judgement import Judgement


class ShadowMetrics(MetricRegistry):
    """What a trial shows to Prometheus."""

    def __init__(self, *, process_metrics: bool = True) -> None:
        super().__init__()
        if process_metrics:
            self.add_collector(ProcessCollector(registry=None))
        self._decisions = self.counters(
            "koordsched_shadow_decisions_total",
            "Decisions of the other scheduler by what they would have been here, and by the plugin that differs.",
            ("result", "plugin"),
        )
        self._deciding = self.histograms(
            "koordsched_shadow_decision_duration_seconds",
            "Time of a decision here.",
            (),
            exponential_buckets(0.00005, 2, 14),
        ).labels()
        self._binding = self.histograms(
            "koordsched_shadow_binding_duration_seconds",
            "Time from a pod's appearance to its binding by the other scheduler.",
            (),
            exponential_buckets(0.001, 2, 20),
        ).labels()

    def judged(self, judgement: Judgement, deciding: float, binding: float | None) -> None:
        """A decision, and how long it took here and there, in seconds."""
        self._decisions.labels(judgement.kind, judgement.plugin).inc()
        self._deciding.observe(deciding)
        if binding is not None:
            self._binding.observe(binding)

    def observe_waiting(self, waiting: Callable[[], int], placeable: Callable[[], int]) -> None:
        """Shows how many pods wait, and for how many of them there was a node."""
        self.read("koordsched_shadow_waiting_pods", "Pods that wait for the other scheduler.", waiting)
        self.read(
            "koordsched_shadow_placeable_pods",
            "Pods that wait for the other scheduler although there was a node for them here.",
            placeable,
        )
