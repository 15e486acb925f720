"""What every Kubernetes component reports about itself: its build, its feature gates, its metrics.

Source: component-base `metrics/{legacyregistry,prometheus/feature,version}`; these are BETA there.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Mapping

from koordsched.observability.instruments import LabelValues
from koordsched.observability.metric_registry import MetricRegistry

_BUILD_LABELS = (
    "major",
    "minor",
    "git_version",
    "git_commit",
    "git_tree_state",
    "build_date",
    "go_version",
    "compiler",
    "platform",
)


def observe_build(metrics: MetricRegistry, version: str, release: str) -> None:
    """Shows what runs: `version` of this program, `release` of Kubernetes (`1.36`) that it is like.

    `git_version` begins as that of the release does, because alerts compare it between components.
    """
    major, _, minor = release.partition(".")
    machine = f"{platform.system()}/{platform.machine()}".lower()
    git_version = f"v{release}.0+koordsched-{version}"
    build: LabelValues = (major, minor, git_version, "", "", "", "", platform.python_implementation(), machine)
    metrics.read(
        "kubernetes_build_info",
        "Always 1; the labels describe the running version.",
        lambda: {build: 1},
        _BUILD_LABELS,
        "BETA",
    )


def observe_features(metrics: MetricRegistry, features: Iterable[tuple[str, str, bool]]) -> None:
    """Shows feature gates: name, stage (ALPHA, BETA, DEPRECATED, empty for GA), whether it is on."""
    states: Mapping[tuple[str, str], int] = {(name, stage): int(enabled) for name, stage, enabled in features}
    metrics.read(
        "kubernetes_feature_enabled", "1 if the feature gate is on, else 0.", lambda: states, ("name", "stage"), "BETA"
    )


def observe_registry(metrics: MetricRegistry) -> None:
    """Shows how many metrics there are, by stability, and how many were switched off."""

    def registered() -> Counter[LabelValues]:
        return Counter((family.stability, "") for family in metrics.families())

    metrics.read(
        "registered_metrics_total",
        "Metrics by stability; none is deprecated.",
        registered,
        ("stability_level", "deprecated_version"),
        "BETA",
    )
    metrics.read(
        "disabled_metrics_total", "Metrics that a flag has switched off.", lambda: metrics.disabled, (), "BETA"
    )
    metrics.read("hidden_metrics_total", "Metrics hidden as deprecated: none.", lambda: 0, (), "BETA")
