"""Metrics of elastic quotas (elasticquota spec 5.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from koordsched.api.core import Quantities
from koordsched.cluster.pod import Pod
from koordsched.observability.instruments import Histogram, LabelValues, exponential_buckets
from koordsched.observability.metric_registry import MetricRegistry
from koordsched.plugins.elasticquota.arithmetic.amounts import Amounts, parse, to_units
from koordsched.plugins.elasticquota.arithmetic.timing import STEPS
from koordsched.plugins.elasticquota.arithmetic.tree import Quota
from koordsched.plugins.elasticquota.books import QuotaBooks
from koordsched.plugins.elasticquota.controller.status import numbers
from koordsched.plugins.elasticquota.kinds import PREFIX, UNSCHEDULABLE_RESOURCE

LABELS = ("name", "resource", "tree", "is_parent", "parent", "field")

_BUCKETS = exponential_buckets(0.001, 2, 15)
_PROCESS_BUCKETS = exponential_buckets(0.000001, 4, 12)


class _Span:
    """Tells a histogram how long it took."""

    __slots__ = ("_histogram", "_now", "_started")

    def __init__(self, histogram: Histogram, now: Callable[[], float]) -> None:
        self._histogram = histogram
        self._now = now
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = self._now()

    def __exit__(self, *failure: object) -> None:
        self._histogram.observe(self._now() - self._started)


class TimedBooks:
    """Passes changes of pods on to the books and measures how long that and its steps take. A `PodObserver`.

    A step that several operations cause together is measured once: requests of many pods go up a tree in one.
    """

    def __init__(self, metrics: MetricRegistry, books: QuotaBooks, monotonic: Callable[[], float]) -> None:
        latency = metrics.histograms(
            "scheduler_elastic_quota_process_latency", "Seconds spent on accounting.", ("operation",), _PROCESS_BUCKETS
        )
        self._books = books
        self._now = monotonic
        self._add = latency.labels("OnPodAdd")
        self._update = latency.labels("OnPodUpdate")
        self._delete = latency.labels("OnPodDelete")
        self._reserve = latency.labels("ReservePod")
        self._unreserve = latency.labels("UnreservePod")
        steps = {step: latency.labels(step) for step in STEPS}
        books.time_steps(lambda step: _Span(steps[step], monotonic))

    def pod_seen(self, pod: Pod, assigned: bool) -> None:
        """See `PodObserver`."""
        histogram = self._update if self._books.member(pod.uid) is not None else self._add
        started = self._now()
        self._books.pod_seen(pod, assigned)
        histogram.observe(self._now() - started)

    def pod_assigned(self, pod: Pod, assigned: bool) -> None:
        """See `PodObserver`."""
        started = self._now()
        self._books.pod_assigned(pod, assigned)
        (self._reserve if assigned else self._unreserve).observe(self._now() - started)

    def pod_gone(self, uid: str) -> None:
        """See `PodObserver`."""
        started = self._now()
        self._books.pod_gone(uid)
        self._delete.observe(self._now() - started)


def observe_quotas(metrics: MetricRegistry, books: QuotaBooks, *, by_runtime: bool) -> Callable[[float], None]:
    """Shows the quotas; returns the callable that gets the seconds that writing a status took."""
    metrics.read_groups(
        "scheduler_elastic_quota_status",
        "What a quota may use, requests and uses: cpu in milli, other resources in their unit.",
        lambda: (_series(books, quota, by_runtime) for quota in books.quotas()),
        LABELS,
    )
    return (
        metrics.histograms(
            "scheduler_update_elastic_quota_status_duration_seconds",
            "Time to write the status of a quota.",
            (),
            _BUCKETS,
        )
        .labels()
        .observe
    )


def observe_revocation(metrics: MetricRegistry, books: QuotaBooks, revoked: Mapping[str, int]) -> None:
    """Shows how many pods of each quota were evicted, from 0 on, so that the first one is an increase."""
    metrics.read(
        "koordsched_quota_pods_revoked_total",
        "Pods evicted because their quota used more than it may, by quota.",
        lambda: {quota.name: float(revoked.get(quota.name, 0)) for quota in books.quotas()},
        ("name",),
    )


def _series(books: QuotaBooks, quota: Quota, by_runtime: bool) -> Iterator[tuple[LabelValues, float]]:
    books.before_reading()
    parent = quota.parent.name if quota.parent is not None else ""
    is_parent = "true" if quota.is_parent else "false"
    for field, amounts in _fields(books, quota, by_runtime):
        for resource, amount in amounts.items():
            labels = (quota.name, resource, quota.tree.id, is_parent, parent, field)
            yield labels, float(to_units(resource, amount))


def _fields(books: QuotaBooks, quota: Quota, by_runtime: bool) -> Iterable[tuple[str, Amounts]]:
    for key, amounts in numbers(quota, by_runtime=by_runtime).items():
        yield key.removeprefix(PREFIX), amounts
    yield "used", quota.used
    yield "min", quota.min
    yield "max", quota.max
    yield "sharedWeight", quota.weight
    if quota.is_tree_root and (objects := books.objects(quota.name)):
        written = objects[0].metadata.annotations.get(UNSCHEDULABLE_RESOURCE)
        if written is not None:
            yield "unschedulable-resource", _read(written)


def _read(annotation: str) -> Amounts:
    try:
        return parse(msgspec.json.decode(annotation, type=Quantities | None) or {})[0]
    except msgspec.MsgspecError:
        return {}
