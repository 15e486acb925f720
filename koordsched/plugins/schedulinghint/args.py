"""The plugin's arguments: fields, defaults, rules.

Source: koordinator `pkg/scheduler/apis/config/v1/defaults.go`, `apis/config/validation`.
"""

from __future__ import annotations

from koordsched.config.decoding import Int32
from koordsched.config.errors import invalid
from koordsched.config.feature_gates import FeatureGates
from koordsched.config.plugin_args import PluginArgs


class SchedulingHintArgs(PluginArgs, frozen=True, kw_only=True):
    """Loadaware spec D: how many preferred nodes of a pod are looked at."""

    max_hint_nodes: Int32 = 100


def validate(given: SchedulingHintArgs, path: str, gates: FeatureGates) -> list[str]:
    """Upstream asks this in the plugin's constructor."""
    if given.max_hint_nodes <= 0:
        return [invalid("maxHintNodes", given.max_hint_nodes, "must be a positive value")]
    return []
