"""The metrics of upstream that users rely on (STABLE and BETA there): names, types, labels, buckets."""

from __future__ import annotations

import asyncio

import pytest

from koordsched.cluster.state import ClusterState
from koordsched.observability.component import observe_build, observe_features, observe_registry
from koordsched.observability.exposition import render
from koordsched.observability.health import HealthResults
from koordsched.observability.instruments import Family, HistogramFamily
from koordsched.observability.metric_options import MetricOptions
from koordsched.observability.metrics import Metrics

SECONDS_15 = tuple(0.001 * 2**n for n in range(15))

UPSTREAM = {
    # name: (stability, type, labels, buckets); Kubernetes 1.36 `test/instrumentation/testdata/stable-metrics-list.yaml`
    "scheduler_framework_extension_point_duration_seconds": (
        "STABLE",
        "histogram",
        {"extension_point", "profile", "status"},
        tuple(0.0001 * 2**n for n in range(12)),
    ),
    "scheduler_pending_pods": ("STABLE", "gauge", {"queue"}, None),
    "scheduler_pod_scheduling_attempts": ("STABLE", "histogram", set(), (1, 2, 4, 8, 16)),
    "scheduler_preemption_attempts_total": ("STABLE", "counter", set(), None),
    "scheduler_preemption_victims": ("STABLE", "histogram", set(), (1, 2, 4, 8, 16, 32, 64)),
    "scheduler_queue_incoming_pods_total": ("STABLE", "counter", {"event", "queue"}, None),
    "scheduler_schedule_attempts_total": ("STABLE", "counter", {"profile", "result"}, None),
    "scheduler_scheduling_attempt_duration_seconds": ("STABLE", "histogram", {"profile", "result"}, SECONDS_15),
    "kubernetes_healthcheck": ("STABLE", "gauge", {"name", "type"}, None),
    "kubernetes_healthchecks_total": ("STABLE", "counter", {"name", "status", "type"}, None),
    "scheduler_goroutines": ("BETA", "gauge", {"operation"}, None),
    "scheduler_permit_wait_duration_seconds": ("BETA", "histogram", {"result"}, SECONDS_15),
    "scheduler_plugin_evaluation_total": ("BETA", "counter", {"extension_point", "plugin", "profile"}, None),
    "scheduler_pod_scheduling_sli_duration_seconds": (
        "BETA",
        "histogram",
        {"attempts"},
        tuple(0.01 * 2**n for n in range(20)),
    ),
    "scheduler_unschedulable_pods": ("BETA", "gauge", {"plugin", "profile"}, None),
    "kubernetes_build_info": (
        "BETA",
        "gauge",
        {
            *("major", "minor", "git_version", "git_commit", "git_tree_state"),
            *("build_date", "go_version", "compiler", "platform"),
        },
        None,
    ),
    "kubernetes_feature_enabled": ("BETA", "gauge", {"name", "stage"}, None),
    "registered_metrics_total": ("BETA", "counter", {"deprecated_version", "stability_level"}, None),
    "disabled_metrics_total": ("BETA", "counter", set(), None),
    "hidden_metrics_total": ("BETA", "counter", set(), None),
}


class Queue:
    incoming = unschedulable = {("a", "b"): 1}

    @property
    def counters(self) -> Queue:
        return self

    def pending(self) -> dict[str, int]:
        return {"active": 0}

    def in_flight_events(self) -> dict[str, int]:
        return {}


def make(options: MetricOptions | None = None) -> Metrics:
    metrics = Metrics(options, process_metrics=False)
    metrics.observe_queue(Queue())
    metrics.observe_cluster(ClusterState())
    observe_build(metrics, "0.1.0", "1.36")
    observe_features(metrics, [("GangScheduling", "ALPHA", False), ("DRAAdminAccess", "", True)])
    observe_registry(metrics)
    return metrics


@pytest.mark.parametrize("name", UPSTREAM)
def test_as_upstream(name: str) -> None:
    families: dict[str, Family] = {f.name: f for f in (*make().families(), *HealthResults().metrics.families())}
    family = families[name]
    stability, kind, labels, buckets = UPSTREAM[name]
    assert (family.stability, family.kind, set(family.label_names)) == (stability, kind, labels)
    if buckets is not None:
        assert isinstance(family, HistogramFamily)
        assert family.labels(*labels).bounds == pytest.approx(buckets)


def test_build_features_and_the_metrics_themselves() -> None:
    metrics = make(MetricOptions(disabled=frozenset({"scheduler_goroutines", "no_such_metric"})))
    lines = asyncio.run(render(metrics, monotonic=lambda: 0.0)).decode().splitlines()
    (build,) = [line for line in lines if line.startswith("kubernetes_build_info{")]
    assert 'git_version="v1.36.0+koordsched-0.1.0"' in build
    assert 'major="1",minor="36"' in build
    assert build.endswith(" 1.0")
    assert [line for line in lines if line.startswith("kubernetes_feature_enabled{")] == [
        'kubernetes_feature_enabled{name="DRAAdminAccess",stage=""} 1.0',
        'kubernetes_feature_enabled{name="GangScheduling",stage="ALPHA"} 0.0',
    ]
    stable = sum(family.stability == "STABLE" for family in metrics.families())
    assert f'registered_metrics_total{{deprecated_version="",stability_level="STABLE"}} {float(stable)}' in lines
    assert {"disabled_metrics_total 1.0", "hidden_metrics_total 0.0"} <= set(lines)
