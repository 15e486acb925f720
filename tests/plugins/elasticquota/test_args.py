"""ElasticQuotaArgs: defaults and rules (elasticquota spec 2.4)."""

import pytest

from koordsched.config.decoding import DecodingErrors, decode
from koordsched.config.duration import Duration
from koordsched.config.feature_gates import FeatureGates
from koordsched.plugins.elasticquota.args import UNBOUNDED, ElasticQuotaArgs, validate, with_defaults

GATES = FeatureGates.parse([])


def read(**fields: object) -> ElasticQuotaArgs:
    errors = DecodingErrors()
    found = decode(ElasticQuotaArgs, dict(fields), errors)
    assert (errors.strict, errors.fatal) == ([], [])
    return found


def test_defaults():
    args = with_defaults(read(), GATES)
    assert args.default_quota_group_max == args.system_quota_group_max == {"cpu": UNBOUNDED, "memory": UNBOUNDED}
    assert (args.delay_evict_time, args.revoke_pod_interval) == (Duration.of(120), Duration.of(1))
    assert validate(args, "", GATES) == []


@pytest.mark.parametrize("field", ["defaultQuotaGroupMax", "systemQuotaGroupMax"])
def test_bounds_that_are_given_stay(field):
    args = with_defaults(read(**{field: {"cpu": "0"}}), GATES)
    bounds = {"defaultQuotaGroupMax": args.default_quota_group_max, "systemQuotaGroupMax": args.system_quota_group_max}
    assert bounds.pop(field) == {"cpu": "0"}
    assert list(bounds.values()) == [{"cpu": UNBOUNDED, "memory": UNBOUNDED}]
    assert validate(args, "", GATES) == []


@pytest.mark.parametrize(
    "fields, complaint",
    [
        (
            {"defaultQuotaGroupMax": {"cpu": "1", "memory": "-1"}},
            "defaultQuotaGroupMax should be a positive value, resourceName:memory, got -1",
        ),
        (
            {"systemQuotaGroupMax": {"cpu": "-5m"}},
            "systemQuotaGroupMax should be a positive value, resourceName:cpu, got -5m",
        ),
        ({"delayEvictTime": "-1s"}, "DelayEvictTime should be a positive value"),
        ({"revokePodInterval": "-1s"}, "RevokePodCycle should be a positive value"),
        ({"delayEvictTime": "-1s", "revokePodInterval": "-1s"}, "DelayEvictTime should be a positive value"),
        ({"hookPlugins": [{"key": "k"}]}, "hookPlugins need a key and a factoryKey"),
        ({"hookPlugins": [{"factoryKey": "f"}]}, "hookPlugins need a key and a factoryKey"),
        ({"hookPlugins": [{"key": "k", "factoryKey": "f"}]}, "hook plugin k: there is no factory f"),
    ],
)
def test_illegal_arguments_are_refused_for_the_first_reason(fields, complaint):
    assert validate(read(**fields), "", GATES) == [f"elasticQuotaArgs error, {complaint}"]


@pytest.mark.parametrize("fields", [{"delayEvictTime": "0s"}, {"revokePodInterval": "0s"}])
def test_zero_is_accepted(fields):
    assert validate(read(**fields), "", GATES) == []
