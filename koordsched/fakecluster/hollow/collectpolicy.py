"""`spec.metricCollectPolicy` of a NodeMetric: how a node measures and reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from koordsched.fakecluster.hollow.duration import parse_duration

KEPT_SECONDS = 7200.0
"""Nothing older is remembered."""
_LEAST_INTERVAL, _LONGEST_INTERVAL = 30.0, 86400.0
_LEAST_WINDOW = 60.0
_DURATIONS = ["5m0s", "10m0s", "30m0s"]


class CollectPolicy(NamedTuple):
    """Times are in seconds; the floors are koordlet's."""

    interval: float
    """Between two reports."""
    window: float
    """Plain usages are averages over it."""
    durations: tuple[tuple[str, float], ...]
    """Of the aggregated usages, as written and in seconds."""


def default_spec(interval_seconds: int | None) -> dict[str, Any]:
    """The spec of a new NodeMetric, as koord-manager makes it by default."""
    return {
        "metricCollectPolicy": {
            "aggregateDurationSeconds": 300,
            "reportIntervalSeconds": interval_seconds or 60,
            "nodeAggregatePolicy": {"durations": list(_DURATIONS)},
            "nodeMemoryCollectPolicy": "usageWithoutPageCache",
        }
    }


def collect_policy(spec: Mapping[str, Any]) -> CollectPolicy:
    """What a spec asks for; what it leaves out, or what is invalid, has its default; invalid durations are left out."""
    policy = spec.get("metricCollectPolicy") or {}
    texts = (policy.get("nodeAggregatePolicy") or {}).get("durations", _DURATIONS)
    durations = {}
    for text in texts or ():
        try:
            seconds = parse_duration(text)
        except ValueError:
            continue
        if seconds > 0:
            durations[text] = seconds
    return CollectPolicy(
        _within(policy.get("reportIntervalSeconds"), 60, _LEAST_INTERVAL, _LONGEST_INTERVAL),
        _within(policy.get("aggregateDurationSeconds"), 300, _LEAST_WINDOW, KEPT_SECONDS),
        tuple(durations.items()),
    )


def _within(seconds: int | None, otherwise: float, least: float, most: float) -> float:
    return min(max(float(otherwise if seconds is None else seconds), least), most)
