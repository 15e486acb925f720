"""The plugin's arguments: fields, defaults, rules.

Source: koordinator `pkg/scheduler/apis/config/{types.go,v1/defaults.go,validation}`; loadaware spec 2.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from koordsched.config.decoding import Int64
from koordsched.config.duration import Duration
from koordsched.config.errors import invalid, not_found, unsupported
from koordsched.config.feature_gates import FeatureGates
from koordsched.config.plugin_args import PluginArgs

AGGREGATION_TYPES = ("avg", "p50", "p90", "p95", "p99")

Percentages = Mapping[str, Int64]
"""Resource name -> percent."""

_WEIGHTS = {"cpu": 1, "memory": 1}
_THRESHOLDS = {"cpu": 65, "memory": 95}
_SCALING_FACTORS = {"cpu": 85, "memory": 70}


class Aggregated(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which statistic of a node's usage is compared with thresholds, and which one is scored, instead of the mean.

    A duration of 0 stands for the longest period that is reported.
    """

    usage_thresholds: Percentages = {}
    usage_aggregation_type: str = ""
    usage_aggregated_duration: Duration = Duration.of(0)
    score_aggregation_type: str = ""
    score_aggregated_duration: Duration = Duration.of(0)


class LoadAwareSchedulingArgs(PluginArgs, frozen=True, kw_only=True):
    """Loadaware spec 2.1."""

    filter_expired_node_metrics: bool = True
    node_metric_expiration_seconds: Int64 = 180
    enable_schedule_when_node_metrics_expired: bool = False
    resource_weights: Percentages = {}
    dominant_resource_weight: Int64 = 0
    usage_thresholds: Percentages = {}
    prod_usage_thresholds: Percentages = {}
    prod_usage_include_sys: bool = False
    score_according_prod_usage: bool = False
    estimator: str = ""
    estimated_scaling_factors: Percentages = {}
    estimated_seconds_after_pod_scheduled: Int64 | None = None
    estimated_seconds_after_initialized: Int64 | None = None
    allow_customize_estimation: bool = False
    aggregated: Aggregated | None = None
    supported_resources: tuple[str, ...] = ()


def with_defaults(given: LoadAwareSchedulingArgs, gates: FeatureGates) -> LoadAwareSchedulingArgs:
    """Weights, unless the dominant resource has one; thresholds; the factors of CPU and memory if they are missing."""
    weights = given.resource_weights
    if not weights and not given.dominant_resource_weight:
        weights = _WEIGHTS
    return msgspec.structs.replace(
        given,
        resource_weights=weights,
        usage_thresholds=given.usage_thresholds or _THRESHOLDS,
        estimated_scaling_factors={**_SCALING_FACTORS, **given.estimated_scaling_factors},
    )


def validate(given: LoadAwareSchedulingArgs, path: str, gates: FeatureGates) -> list[str]:
    """Upstream asks this in the plugin's constructor; its paths begin at the arguments."""
    complaints = []
    if given.node_metric_expiration_seconds <= 0:
        name = "nodeMetricExpiredSeconds"
        complaints.append(invalid(name, given.node_metric_expiration_seconds, f"{name} should be a positive value"))
    complaints += _in_range("resourceWeights", given.resource_weights, 1, "resource Weight")
    dominant = given.dominant_resource_weight
    if not 0 <= dominant <= 100:
        problem = "should not be a negative value" if dominant < 0 else "should be less than 100"
        complaints.append(invalid("dominantResourceWeight", dominant, f"dominantResourceWeight {problem}"))
    complaints += _in_range("usageThresholds", given.usage_thresholds, 0, "resource Threshold")
    factors = given.estimated_scaling_factors
    complaints += _in_range("estimatedScalingFactors", factors, 1, "estimated resource ScalingFactor")
    missing = [name for name in sorted(given.resource_weights) if name not in factors]
    complaints += [not_found("estimatedScalingFactors", name) for name in missing[:1]]
    return complaints + (_aggregated_errors(given.aggregated) if given.aggregated is not None else [])


def _aggregated_errors(given: Aggregated) -> list[str]:
    complaints = _in_range("aggregated.usageThresholds", given.usage_thresholds, 0, "resource Threshold")
    for purpose, kind, duration in (
        ("usage", given.usage_aggregation_type, given.usage_aggregated_duration),
        ("score", given.score_aggregation_type, given.score_aggregated_duration),
    ):
        if kind and kind not in AGGREGATION_TYPES:
            complaints.append(unsupported(f"aggregated.{purpose}AggregationType", kind, AGGREGATION_TYPES))
        if duration < 0:
            complaints.append(invalid(f"aggregated.{purpose}AggregatedDuration", duration, "duration must be >= 0"))
    return complaints


def advise(given: LoadAwareSchedulingArgs) -> Iterator[str]:
    """What upstream accepts silently and never uses."""
    if given.estimator not in ("", "defaultEstimator"):
        yield f'estimator: "{given.estimator}" has no effect: there is no estimator but defaultEstimator'
    aggregated = given.aggregated
    if aggregated is None:
        return
    if aggregated.usage_thresholds and not aggregated.usage_aggregation_type:
        yield "aggregated.usageThresholds has no effect without aggregated.usageAggregationType"
    if aggregated.usage_aggregation_type and not aggregated.usage_thresholds:
        yield "aggregated.usageAggregationType has no effect without aggregated.usageThresholds"


def _in_range(path: str, numbers: Percentages, lowest: int, what: str) -> list[str]:
    """At most one complaint about numbers that must be from `lowest` to 100, as upstream has it."""
    for name, number in sorted(numbers.items()):
        if not lowest <= number <= 100:
            problem = "be a positive value" if number < lowest else "be less than 100"
            return [invalid(path, dict(numbers), f"{what} of {name} should {problem}, got {number}")]
    return []
