"""Metrics of what is known of nodes. Upstream has none (loadaware spec 5)."""

from __future__ import annotations

from koordsched.observability.metric_registry import MetricRegistry
from koordsched.plugins.loadaware.plugin import LoadAwareScheduling


def observe_reports(plugin: LoadAwareScheduling, metrics: MetricRegistry) -> None:
    """Shows how many nodes have reports, and how many reports came."""
    states = plugin.loads.states
    metrics.read(
        "koordsched_node_reports",
        "Nodes by their newest NodeMetric: fresh, expired, or none.",
        states.counts,
        ("state",),
        of_leader=True,
    )
    metrics.read("koordsched_node_reports_taken_total", "NodeMetrics processed.", lambda: states.taken)
