"""The plugin's arguments: fields, defaults, rules."""

from __future__ import annotations

from typing import ClassVar

from koordsched.config.decoding import Int32
from koordsched.config.duration import Duration
from koordsched.config.errors import invalid
from koordsched.config.feature_gates import FeatureGates
from koordsched.config.plugin_args import PluginArgs


class WorkloadQuarantineArgs(PluginArgs, frozen=True, kw_only=True):
    """When a workload counts as bringing nodes down, and for how long it is held back. The same for all profiles."""

    of_cluster: ClassVar[tuple[str, ...]] = ("window", "soon_after", "min_nodes", "significance", "cool_down")

    window: Duration = Duration.of(3600)
    soon_after: Duration = Duration.of(600)
    min_nodes: Int32 = 2
    significance: float = 0.001
    cool_down: Duration = Duration.of(24 * 3600)


def validate(given: WorkloadQuarantineArgs, path: str, gates: FeatureGates) -> list[str]:
    """What is wrong with the arguments; paths below `path`."""
    complaints = []
    for name, duration in (
        ("window", given.window),
        ("soonAfter", given.soon_after),
        ("coolDown", given.cool_down),
    ):
        if duration < Duration.of(1):
            complaints.append(invalid(f"{path}.{name}", duration, "must be at least 1 second"))
    if given.window < given.soon_after:
        complaints.append(invalid(f"{path}.window", given.window, "must not be less than soonAfter"))
    if given.min_nodes < 2:
        complaints.append(invalid(f"{path}.minNodes", given.min_nodes, "must be at least 2: one node may always fail"))
    if not 0.0 < given.significance < 1.0:
        complaints.append(invalid(f"{path}.significance", given.significance, "not in valid range (0, 1)"))
    return complaints
