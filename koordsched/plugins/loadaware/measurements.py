"""A NodeMetric as numbers: what a node and its pods use, in the order of the plugin's resources.

Negative or invalid amounts count as 0, absurd ones are clamped: they only affect their own node.
"""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime
from typing import NamedTuple

from koordsched.api.core import Quantities
from koordsched.api.quantity import QuantityError, measured_milli_value, measured_value
from koordsched.cluster.objects import Store
from koordsched.config.duration import Duration
from koordsched.plugins.loadaware.estimation import Vector
from koordsched.plugins.loadaware.kinds import PROD, NodeMetric, PodMetric

_DEFAULT_INTERVAL = 60.0
_LONGEST = 1 << 40
_NEVER = float("-inf")


class Statistic(NamedTuple):
    """A statistic of the usage over a period of this many nanoseconds; 0 for the longest that is reported."""

    kind: str
    duration: int


def read_vector(quantities: Quantities, resources: tuple[str, ...]) -> Vector:
    """The amounts of the resources."""
    amounts = []
    for resource in resources:
        quantity = quantities.get(resource, 0)
        try:
            amount = measured_milli_value(quantity) if resource == "cpu" else measured_value(quantity)
        except QuantityError:
            amount = 0
        amounts.append(max(0, amount))
    return tuple(amounts)


def read_time(text: str | None) -> float | None:
    """Seconds since the epoch; None for a time that is absent, zero or malformed."""
    try:
        seconds = datetime.fromisoformat(text).timestamp() if text else None
    except (ValueError, OverflowError):
        return None
    return seconds if seconds is None or seconds > 0 else None


class Measurement:
    """One report. Pods are known by `namespace/name`.

    `updated`: when it was made, None if it does not say. `since`: pods placed later than this may not be in it
    (the time of the report or, without one, that of the report before; minus the interval). `usage`: of the whole node,
    None while nothing was measured. The report is one of `store`, where it is read again after `settle`.
    """

    __slots__ = (
        "_interval",
        "_keys",
        "_metadata",
        "_metric",
        "_pods",
        "_resources",
        "_statistics",
        "_store",
        "_system",
        "_usages",
        "at",
        "since",
        "updated",
        "usage",
    )

    def __init__(
        self, store: Store[NodeMetric], metric: NodeMetric, resources: tuple[str, ...], before: Measurement | None
    ) -> None:
        self._store = store
        self._metric: NodeMetric | None = metric
        self._metadata = metric.metadata
        self._resources = resources
        self._system: Vector | None = None
        self._statistics: dict[Statistic, Vector | None] = {}
        self._usages: dict[str, Vector] = {}
        self.updated: float | None = read_time(metric.status.update_time)
        policy = metric.spec.metric_collect_policy
        interval = policy.report_interval_seconds if policy is not None else None
        self._interval = max(0, min(_LONGEST, interval)) if interval is not None else _DEFAULT_INTERVAL
        self.make(self.updated if self.updated is not None else before.at if before is not None else _NEVER)
        node = metric.status.node_metric
        self.usage = read_vector(node.node_usage.resources, resources) if node is not None else None
        self._pods: dict[str, PodMetric] | None = _by_key(metric)
        self._keys: Set[str] = self._pods.keys()

    def make(self, at: float) -> None:
        """It was made at this time, in seconds since the epoch."""
        self.at = at
        self.since = at - self._interval

    def settle(self) -> None:
        """Drops what is rarely needed and can be read again."""
        if not isinstance(self._keys, frozenset):
            self._keys = frozenset(self._keys)
        self._pods = self._metric = None

    def _read(self) -> NodeMetric:
        if self._metric is None:
            self._metric = self._store.get(self._metadata.namespace, self._metadata.name) or NodeMetric()
        return self._metric

    def _pod(self, key: str) -> PodMetric | None:
        if key not in self._keys:
            return None
        if self._pods is None:
            self._pods = _by_key(self._read())
        return self._pods.get(key)

    def of_pod(self, key: str) -> Vector | None:
        """What the pod uses, None if it is not in the report."""
        found = self._usages.get(key)
        if found is None and (pod := self._pod(key)) is not None:
            found = self._usages[key] = read_vector(pod.pod_usage.resources, self._resources)
        return found

    def reports(self, key: str) -> bool:
        """Whether the pod is in the report."""
        return key in self._keys

    def reports_all_of(self, before: Measurement) -> bool:
        """Whether all pods of another report are in this one, too."""
        if not before._keys <= self._keys:
            return False
        if len(before._keys) == len(self._keys):
            self._keys = before._keys  # the same ones, which are kept once
        return True

    def reports_as_prod(self, key: str) -> bool:
        """Whether the pod is in the report as one of production."""
        pod = self._pod(key)
        return pod is not None and pod.priority == PROD

    def system_usage(self) -> Vector:
        """What belongs to no pod."""
        if self._system is None:
            node = self._read().status.node_metric
            self._system = read_vector(node.system_usage.resources if node is not None else {}, self._resources)
        return self._system

    def statistic(self, wanted: Statistic) -> Vector | None:
        """A statistic of the node's usage; None if it is not reported."""
        if wanted not in self._statistics:
            self._statistics[wanted] = self._read_statistic(wanted)
        return self._statistics[wanted]

    def _read_statistic(self, wanted: Statistic) -> Vector | None:
        node = self._read().status.node_metric
        found: Quantities | None = None
        longest = -1
        for period in node.aggregated_node_usages if node is not None else ():
            usage = period.usage.get(wanted.kind)
            duration = _duration(period.duration)
            if usage is None or not usage.resources or duration is None:
                continue
            if duration == wanted.duration or (not wanted.duration and duration > longest):
                longest, found = duration, usage.resources
        return read_vector(found, self._resources) if found is not None else None


def _by_key(metric: NodeMetric) -> dict[str, PodMetric]:
    return {f"{pod.namespace}/{pod.name}": pod for pod in metric.status.pods_metric if pod.pod_usage.resources}


def _duration(text: str) -> int | None:
    try:
        return Duration.parse(text or "0")
    except ValueError:
        return None
