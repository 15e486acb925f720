"""Counters, gauges and histograms that are cheap to write.

prometheus-client's own instruments take a lock and build a label key at every call. All of ours are written by one
thread, so an instrument is a number or a list of bucket counts; labels are resolved once, when a child is handed out,
and everything that Prometheus reads is computed at a scrape (`Family.collect`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Generic, Literal, TypeVar

from prometheus_client import Metric
from prometheus_client.samples import Sample

Stability = Literal["STABLE", "BETA", "ALPHA"]
LabelValues = tuple[str, ...]
Readings = Mapping[str, float] | Mapping[tuple[str, str], float] | Mapping[LabelValues, float]
"""Values by label values; a single label's value may stand without its tuple."""

UNEXPECTED = "unexpected"
"""What a label value outside of an allow list is reported as (component-base `metrics/opts.go`)."""

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

C = TypeVar("C")


def exponential_buckets(start: float, factor: float, count: int) -> tuple[float, ...]:
    """`count` upper bounds, each `factor` times the one before.

    Multiplied one by one as client_golang does, so that the digits are equal.
    """
    bounds = []
    bound = start
    for _ in range(count):
        bounds.append(bound)
        bound *= factor
    return tuple(bounds)


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, amount: float = 1) -> None:
        """Adds a non-negative amount."""
        self.value += amount


class Gauge:
    """A number that goes up and down."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def set(self, value: float) -> None:
        """Replaces the value."""
        self.value = value

    def inc(self) -> None:
        """One more."""
        self.value += 1

    def dec(self) -> None:
        """One less."""
        self.value -= 1


class Histogram:
    """How often values fell into each bucket. `counts` has one place more than `bounds`, for what exceeds them all."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0.0

    def observe(self, value: float) -> None:
        """Counts one value; a value equal to a bound belongs to the bucket below it."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """The number of values so far."""
        return sum(self.counts)


@dataclass(eq=False, repr=False)
class Family(ABC):
    """One metric name: what stands under one HELP and TYPE."""

    name: str
    documentation: str
    label_names: tuple[str, ...] = ()
    stability: Stability = "ALPHA"
    kind: str = field(init=False)

    def __post_init__(self) -> None:
        self.documentation = f"[{self.stability}] {self.documentation}"

    @abstractmethod
    def samples(self) -> Iterable[Sample]:
        """The current values, in order of their labels."""

    def collect(self) -> Metric | None:
        """The family as Prometheus sees it; None while it has no series, as upstream shows nothing then either."""
        # prometheus-client appends the suffix of counters itself.
        name = self.name.removesuffix("_total") if self.kind == "counter" else self.name
        metric = Metric(name, self.documentation, self.kind)
        metric.samples.extend(self.samples())
        return metric if metric.samples else None


@dataclass(eq=False, repr=False)
class _LabelledFamily(Family, Generic[C]):
    """A family of children, one for each combination of label values, made at first use.

    `allowed` restricts what values a label may take (--allow-metric-labels).
    """

    allowed: Mapping[str, Collection[str]] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = self.allowed or {}
        self._children: dict[LabelValues, C] = {}
        self._allowed = [(i, allowed[label]) for i, label in enumerate(self.label_names) if label in allowed]

    @abstractmethod
    def _make(self) -> C:
        """A child without values."""

    def labels(self, *values: str) -> C:
        """The child for these label values, in the order of `label_names`; to be kept by callers on hot paths."""
        child = self._children.get(values)
        if child is None:
            child = self._make_child(values)
        return child

    def _make_child(self, values: LabelValues) -> C:
        if len(values) != len(self.label_names):
            raise ValueError(f"{self.name} takes the labels {self.label_names}, not {values}")
        if self._allowed:
            checked = list(values)
            for index, allowed in self._allowed:
                if checked[index] not in allowed:
                    checked[index] = UNEXPECTED
            values = tuple(checked)
        return self._children.setdefault(values, self._make())

    def children(self) -> list[tuple[dict[str, str], C]]:
        """Every child with its labels, sorted by label values."""
        return [(dict(zip(self.label_names, values, strict=True)), c) for values, c in sorted(self._children.items())]


class CounterFamily(_LabelledFamily[Counter]):
    """Counters."""

    kind = "counter"
    _make = Counter

    def samples(self) -> Iterable[Sample]:
        for labels, counter in self.children():
            yield Sample(self.name, labels, counter.value)


class GaugeFamily(_LabelledFamily[Gauge]):
    """Gauges that are set by their owners."""

    kind = "gauge"
    _make = Gauge

    def samples(self) -> Iterable[Sample]:
        for labels, gauge in self.children():
            yield Sample(self.name, labels, gauge.value)


@dataclass(eq=False, repr=False)
class HistogramFamily(_LabelledFamily[Histogram]):
    """Histograms with the same buckets; `bounds` are their upper ends."""

    kind = "histogram"
    bounds: tuple[float, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        # Written as client_golang writes them: 1, not 1.0.
        self._le = [repr(bound).removesuffix(".0") for bound in self.bounds] + ["+Inf"]
        self._beginnings: dict[LabelValues, list[str]] = {}

    def _make(self) -> Histogram:
        return Histogram(self.bounds)

    def samples(self) -> Iterable[Sample]:
        bucket = f"{self.name}_bucket"
        for labels, histogram in self.children():
            cumulated = 0
            for le, count in zip(self._le, histogram.counts, strict=True):
                cumulated += count
                yield Sample(bucket, {**labels, "le": le}, cumulated)
            yield Sample(f"{self.name}_sum", labels, histogram.sum)
            yield Sample(f"{self.name}_count", labels, cumulated)

    def write(self) -> Iterator[str]:
        """The text exposition, one histogram at a time: as generate_latest writes `samples`, but ten times as fast.

        Nearly all lines of a scrape are buckets. All of a line but its number is made once.
        """
        children = sorted(self._children.items())
        if children:
            yield f"# HELP {self.name} {self.documentation}\n# TYPE {self.name} histogram\n"
        for values, histogram in children:
            beginnings = self._beginnings.get(values)
            if beginnings is None:
                beginnings = self._beginnings[values] = self._make_beginnings(values)
            numbers = [*accumulate(histogram.counts), histogram.sum, sum(histogram.counts)]
            yield "".join([f"{b}{n}\n" for b, n in zip(beginnings, numbers, strict=True)])

    def _make_beginnings(self, values: LabelValues) -> list[str]:
        labels = dict(zip(self.label_names, values, strict=True))
        buckets = [f"{self.name}_bucket{label_text({**labels, 'le': le})} " for le in self._le]
        return [*buckets, f"{self.name}_sum{label_text(labels)} ", f"{self.name}_count{label_text(labels)} "]


def label_text(labels: Mapping[str, str]) -> str:
    """The labels of a series as the text exposition has them, sorted."""
    pairs = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in sorted(labels.items()))
    return f"{{{pairs}}}" if pairs else ""


@dataclass(eq=False, repr=False)
class ReadFamily(Family):
    """A counter or gauge whose values are kept elsewhere; `read` is called at every scrape.

    A name that ends in `_total` is that of a counter.
    """

    read: Callable[[], Readings | float] = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kind = "counter" if self.name.endswith("_total") else "gauge"

    def samples(self) -> Iterable[Sample]:
        readings = self.read()
        if not isinstance(readings, Mapping):
            yield Sample(self.name, {}, readings)
            return
        keyed = {(key,) if isinstance(key, str) else key: value for key, value in readings.items()}
        for values, value in sorted(keyed.items()):
            yield Sample(self.name, dict(zip(self.label_names, values, strict=True)), value)
