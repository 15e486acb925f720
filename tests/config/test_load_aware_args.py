"""The arguments of LoadAwareScheduling as `koordsched check-config` takes them (loadaware spec 2.1)."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from koordsched.cli.check_config import check_config
from koordsched.config import load, resolve
from koordsched.plugins import CATALOG
from koordsched.plugins.loadaware.args import LoadAwareSchedulingArgs
from tests.config.documents import profile
from tests.config.test_check_config import FILES

START = "initializing profiles: creating profile for scheduler name default-scheduler: "
START += 'initializing plugin "LoadAwareScheduling": '


def enabled(**fields: Any) -> str:
    return profile(
        plugins={"filter": {"enabled": [{"name": "LoadAwareScheduling"}]}},
        pluginConfig=[{"name": "LoadAwareScheduling", "args": fields}],
    )


def check(**fields: Any) -> Result:
    return CliRunner().invoke(check_config, ["-"], input=enabled(**fields))


def resolved(**fields: Any) -> LoadAwareSchedulingArgs:
    found = resolve(load(enabled(**fields), catalog=CATALOG), catalog=CATALOG).profiles[0].args["LoadAwareScheduling"]
    assert isinstance(found, LoadAwareSchedulingArgs)
    return found


REFUSED = {
    "expiration": (
        {"nodeMetricExpirationSeconds": 0},
        "nodeMetricExpiredSeconds: Invalid value: 0: nodeMetricExpiredSeconds should be a positive value",
    ),
    "weight of 0": (
        {"resourceWeights": {"cpu": 0}},
        'resourceWeights: Invalid value: {"cpu":0}: resource Weight of cpu should be a positive value, got 0',
    ),
    "weight above 100": (
        {"resourceWeights": {"cpu": 101}},
        'resourceWeights: Invalid value: {"cpu":101}: resource Weight of cpu should be less than 100, got 101',
    ),
    "weight without a factor": (
        {"resourceWeights": {"cpu": 1, "example.com/gpu": 1}},
        'estimatedScalingFactors: Not found: "example.com/gpu"',
    ),
    "negative dominant weight": (
        {"dominantResourceWeight": -1},
        "dominantResourceWeight: Invalid value: -1: dominantResourceWeight should not be a negative value",
    ),
    "dominant weight above 100": (
        {"dominantResourceWeight": 101},
        "dominantResourceWeight: Invalid value: 101: dominantResourceWeight should be less than 100",
    ),
    "negative threshold": (
        {"usageThresholds": {"cpu": -1}},
        'usageThresholds: Invalid value: {"cpu":-1}: resource Threshold of cpu should be a positive value, got -1',
    ),
    "threshold above 100": (
        {"usageThresholds": {"memory": 101}},
        'usageThresholds: Invalid value: {"memory":101}: resource Threshold of memory should be less than 100, got 101',
    ),
    "factor of 0": (
        {"estimatedScalingFactors": {"cpu": 0}},
        'estimatedScalingFactors: Invalid value: {"cpu":0,"memory":70}: '
        "estimated resource ScalingFactor of cpu should be a positive value, got 0",
    ),
    "threshold of a statistic": (
        {"aggregated": {"usageThresholds": {"cpu": 101}}},
        'aggregated.usageThresholds: Invalid value: {"cpu":101}: '
        "resource Threshold of cpu should be less than 100, got 101",
    ),
    "statistics": (
        {"aggregated": {"usageAggregationType": "p80", "scoreAggregationType": "max"}},
        '[aggregated.usageAggregationType: Unsupported value: "p80": '
        'supported values: "avg", "p50", "p90", "p95", "p99", '
        'aggregated.scoreAggregationType: Unsupported value: "max": '
        'supported values: "avg", "p50", "p90", "p95", "p99"]',
    ),
    "periods": (
        {"aggregated": {"usageAggregatedDuration": "-1s", "scoreAggregatedDuration": "-5m"}},
        '[aggregated.usageAggregatedDuration: Invalid value: "-1s": duration must be >= 0, '
        'aggregated.scoreAggregatedDuration: Invalid value: "-5m0s": duration must be >= 0]',
    ),
}


@pytest.mark.parametrize("fields, complaint", REFUSED.values(), ids=REFUSED)
def test_loadaware_case_20_rules(fields: dict[str, Any], complaint: str) -> None:
    result = check(**fields)
    assert (result.exit_code, result.stderr) == (1, f"error: {START}{complaint}\n")


@pytest.mark.parametrize(
    "fields, complaint",
    [
        ({"usageThresholds": {"cpu": "65%"}}, "cannot unmarshal string into Go struct field"),
        ({"usageThresholds": ["cpu"]}, "cannot unmarshal array into Go struct field"),
        ({"usageThresholds": {"cpu": 62.5}}, "cannot unmarshal number 62.5 into Go struct field"),
        ({"nodeMetricExpiredSeconds": 180}, 'unknown field "nodeMetricExpiredSeconds"'),
        ({"aggregated": {"usageAggregatedDuration": "5 minutes"}}, 'unknown unit " minutes" in duration "5 minutes"'),
    ],
)
def test_what_is_no_such_field_or_type(fields: dict[str, Any], complaint: str) -> None:
    result = check(**fields)
    assert result.exit_code == 1
    assert complaint in result.stderr


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"dominantResourceWeight": 100, "usageThresholds": {"cpu": 0, "memory": 100}},
        {"resourceWeights": {"example.com/gpu": 100}, "estimatedScalingFactors": {"example.com/gpu": 1}},
        {"prodUsageThresholds": {"cpu": 55}, "estimator": "defaultEstimator"},
        {"aggregated": {"usageThresholds": {"cpu": 60}, "usageAggregationType": "p95"}},
    ],
)
def test_what_is_accepted(fields: dict[str, Any]) -> None:
    result = check(**fields)
    assert (result.exit_code, result.stderr) == (0, "")


def test_defaults() -> None:
    default = resolved()
    assert (default.resource_weights, default.usage_thresholds, default.estimated_scaling_factors) == (
        {"cpu": 1, "memory": 1},
        {"cpu": 65, "memory": 95},
        {"cpu": 85, "memory": 70},
    )
    assert (default.node_metric_expiration_seconds, default.filter_expired_node_metrics) == (180, True)
    assert resolved(dominantResourceWeight=1).resource_weights == {}
    assert resolved(usageThresholds={"cpu": 0}).usage_thresholds == {"cpu": 0}
    assert resolved(estimatedScalingFactors={"cpu": 50}).estimated_scaling_factors == {"cpu": 50, "memory": 70}


@pytest.mark.parametrize(
    "fields, text",
    [
        (
            {"estimator": "mine"},
            'estimator: "mine" has no effect: there is no estimator but defaultEstimator',
        ),
        (
            {"aggregated": {"usageThresholds": {"cpu": 60}}},
            "aggregated.usageThresholds has no effect without aggregated.usageAggregationType",
        ),
        (
            {"aggregated": {"usageAggregationType": "p95"}},
            "aggregated.usageAggregationType has no effect without aggregated.usageThresholds",
        ),
    ],
)
def test_what_has_no_effect_is_said(fields: dict[str, Any], text: str) -> None:
    result = check(**fields)
    assert (result.exit_code, result.stderr) == (0, f"\nwarning: profiles[0].pluginConfig[0].args.{text}\n")


def test_the_full_file_names_every_argument() -> None:
    """Beyond `test_check_config`, which looks for the plugins alone."""
    (given,) = yaml.safe_load((FILES / "full.yaml").read_text())["profiles"]
    (args,) = [entry["args"] for entry in given["pluginConfig"] if entry["name"] == "LoadAwareScheduling"]
    assert set(args) == set(LoadAwareSchedulingArgs.__struct_encode_fields__)
