"""The metrics that plugins declare."""

from __future__ import annotations

from collections.abc import Mapping

from koordsched.framework.profile import Profile
from koordsched.observability.metric_registry import MetricRegistry
from koordsched.plugins import DECLARED


def observe_plugins(metrics: MetricRegistry, profiles: Mapping[str, Profile]) -> None:
    """Shows those of all plugins that a profile enables."""
    for declared in DECLARED:
        plugin = declared.plugin_in(profiles)
        if declared.observe is not None and plugin is not None:
            declared.observe(plugin, metrics)
