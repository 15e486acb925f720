"""The plugin's arguments.

Source: koordinator `pkg/scheduler/apis/config/types.go`.
"""

from __future__ import annotations

from koordsched.config.plugin_args import PluginArgs


class ScarceResourceAvoidanceArgs(PluginArgs, frozen=True, kw_only=True):
    """Loadaware spec B: the names of the scarce resources."""

    resources: tuple[str, ...] = ()
