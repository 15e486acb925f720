"""What the numbers of quotas depend on besides the cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Of the plugin's arguments and the feature gates."""

    default_max: tuple[tuple[str, int], ...] = ()
    system_max: tuple[tuple[str, int], ...] = ()
    scales_mins: bool = True
    guarantees: bool = False
    multiple_trees: bool = False
    default_quota: bool = True
    pod_overhead: bool = True
    ignores_overdue: bool = False
    """Terminating pods count until they should be gone (gate ElasticQuotaIgnoreTerminatingPod)."""
    ignores_terminating: bool = False
    """They stop counting at once (gate ElasticQuotaImmediateIgnoreTerminatingPod)."""
