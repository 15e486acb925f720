"""A set of metrics, and the prometheus-client registry through which they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from koordsched.observability.groupedgauges import Group, GroupedGauges
from koordsched.observability.instruments import (
    CounterFamily,
    Family,
    GaugeFamily,
    HistogramFamily,
    ReadFamily,
    Readings,
    Stability,
)
from koordsched.observability.metric_options import MetricOptions

F = TypeVar("F", bound=Family)


class MetricRegistry:
    """Families by name, and collectors of prometheus-client's own beside them.

    Everything is in `registry`, which holds nothing else, to be collected at once; `exposition.render` writes it
    without holding up the event loop.
    """

    def __init__(self, options: MetricOptions | None = None, leads: Callable[[], bool] = lambda: True) -> None:
        """`leads`: whether this replica is the one that schedules; asked at every scrape."""
        self._options = options or MetricOptions()
        self._leads = leads
        self._families: dict[str, Family] = {}
        self.collectors: list[Collector] = []
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def read(
        self,
        name: str,
        documentation: str,
        read: Callable[[], Readings | float],
        labels: tuple[str, ...] = (),
        stability: Stability = "ALPHA",
        *,
        of_leader: bool = False,
    ) -> None:
        """Shows a gauge, or a counter if the name ends in `_total`, that is read at every scrape: by label values, or
        one number.

        `of_leader`: without series while this replica does not lead, because then nothing works on what is counted.
        """

        def read_if_leading() -> Readings | float:
            return read() if self._leads() else {}

        read_now = read_if_leading if of_leader else read
        self._add(ReadFamily(name, documentation, labels, stability, read=read_now))

    def read_groups(
        self, name: str, documentation: str, read: Callable[[], Iterable[Group]], labels: tuple[str, ...]
    ) -> None:
        """Shows gauges that are read at every scrape, in groups between which others get their turn."""
        self._add(GroupedGauges(name, documentation, labels, read=read))

    def counters(
        self, name: str, documentation: str, labels: tuple[str, ...] = (), stability: Stability = "ALPHA"
    ) -> CounterFamily:
        """Adds a family of counters. Raises ValueError if the name is taken."""
        return self._add(CounterFamily(name, documentation, labels, stability, allowed=self._options.allowed.get(name)))

    def gauges(
        self, name: str, documentation: str, labels: tuple[str, ...] = (), stability: Stability = "ALPHA"
    ) -> GaugeFamily:
        """Adds a family of gauges. Raises ValueError if the name is taken."""
        return self._add(GaugeFamily(name, documentation, labels, stability, allowed=self._options.allowed.get(name)))

    def histograms(
        self,
        name: str,
        documentation: str,
        labels: tuple[str, ...],
        bounds: tuple[float, ...],
        stability: Stability = "ALPHA",
    ) -> HistogramFamily:
        """Adds a family of histograms. Raises ValueError if the name is taken."""
        return self._add(
            HistogramFamily(
                name, documentation, labels, stability, allowed=self._options.allowed.get(name), bounds=bounds
            )
        )

    def add_collector(self, collector: Collector) -> None:
        """Shows what another collector yields."""
        self.collectors.append(collector)
        self.registry.register(collector)

    def families(self) -> list[Family]:
        """Those that are not disabled."""
        return [family for family in self._families.values() if family.name not in self._options.disabled]

    @property
    def disabled(self) -> int:
        """How many families are not shown because an option says so."""
        return len(self._options.disabled & self._families.keys())

    def collect(self) -> Iterable[Metric]:
        """prometheus-client's Collector: every family that has series and is not disabled."""
        for family in self.families():
            if (metric := family.collect()) is not None:
                yield metric

    def _add(self, family: F) -> F:
        if family.name in self._families:
            raise ValueError(f"there is a metric {family.name} already")
        self._families[family.name] = family
        return family
