"""The flags that decide which metrics are shown, and with which label values (component-base `metrics/options.go`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


class MetricOptionError(ValueError):
    """A metrics flag has a value that cannot be used; the message says which and why."""


@dataclass(frozen=True)
class MetricOptions:
    """`disabled` names metrics that are not shown; `allowed` the values a label of a metric may take."""

    disabled: frozenset[str] = frozenset()
    allowed: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)


def parse_metric_options(
    *,
    disabled_metrics: Iterable[str] = (),
    allow_metric_labels: Iterable[str] = (),
    show_hidden_metrics_for_version: str = "",
    version: tuple[int, int] = (1, 36),
) -> MetricOptions:
    """Reads --disabled-metrics, --allow-metric-labels and --show-hidden-metrics-for-version.

    An item of `allow_metric_labels` is `<metric>,<label>=<value>`, repeated for more values. There is no hidden metric
    at present, so the third flag is only checked: it may name the minor release before `version`, nothing else.
    Raises MetricOptionError.
    """
    previous = f"{version[0]}.{version[1] - 1}"
    if show_hidden_metrics_for_version not in ("", previous):
        raise MetricOptionError(
            f"--show-hidden-metrics-for-version must be omitted or have the value '{previous}', "
            f"not '{show_hidden_metrics_for_version}': only the previous minor version is allowed"
        )
    allowed: dict[str, dict[str, set[str]]] = {}
    for item in allow_metric_labels:
        target, equals, value = item.partition("=")
        metric, comma, label = target.partition(",")
        if not (equals and comma and metric and label):
            raise MetricOptionError(f"--allow-metric-labels: '{item}' is not of the form <metric>,<label>=<value>")
        allowed.setdefault(metric, {}).setdefault(label, set()).add(value)
    return MetricOptions(
        disabled=frozenset(name.strip() for name in disabled_metrics if name.strip()),
        allowed={
            metric: {label: frozenset(values) for label, values in labels.items()} for metric, labels in allowed.items()
        },
    )
