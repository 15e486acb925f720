"""From what is measured and what pods add to what a node uses, as far as it counts for filter and score."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from koordsched.plugins.loadaware import reportstates
from koordsched.plugins.loadaware.args import LoadAwareSchedulingArgs
from koordsched.plugins.loadaware.columns import CHECKED, EXPIRED, PASSES, View
from koordsched.plugins.loadaware.contribution import NOTHING, Contribution
from koordsched.plugins.loadaware.estimation import Vector
from koordsched.plugins.loadaware.measurements import Measurement, Statistic
from koordsched.plugins.loadaware.nodeload import NodeLoad


class Sums(NamedTuple):
    """Sums over the pods of a node, by resource."""

    node_delta: Vector
    prod_delta: Vector
    prod_usage: Vector
    estimated: Vector


class Reckoning:
    """For all nodes, by these arguments. `scored`: the statistic that the score goes by, None for the plain usage;
    `states`: whose reports are fresh."""

    def __init__(
        self,
        args: LoadAwareSchedulingArgs,
        width: int,
        scored: Statistic | None,
        states: reportstates.ReportStates,
    ) -> None:
        """`width`: how many resources vectors have."""
        self._args = args
        self._scored = scored
        self._states = states
        self._nothing: Vector = (0,) * width
        self.no_sums = Sums(self._nothing, self._nothing, self._nothing, self._nothing)

    def sums(self, load: NodeLoad, added: Collection[Contribution]) -> Sums:
        """What the pods of a node add up to, with what the system uses if that counts."""
        includes_sys = self._args.prod_usage_include_sys and load.measurement is not None
        if not added and not includes_sys:
            return self.no_sums
        sums = [list(self._nothing) for _ in Sums._fields]
        if includes_sys and load.measurement is not None:
            sums[Sums._fields.index("prod_usage")] = list(load.measurement.system_usage())
        for each in added:
            for total, part in zip(sums, each, strict=True):
                if part is not None:
                    for i, amount in enumerate(part):
                        total[i] += amount
        return Sums(*map(tuple, sums))

    def view(self, load: NodeLoad, sums: Sums, *, prod: bool) -> View:
        """Loadaware spec 3.3 and 3.4: which usage counts, and whether it does."""
        thresholds, measurement = load.thresholds, load.measurement
        by_prod = prod and any(thresholds.prod)
        limits = thresholds.prod if by_prod else thresholds.plain
        aggregated = thresholds.statistic is not None and not by_prod
        if measurement is None:
            return View(PASSES, self._nothing, limits, aggregated, None)
        expired = self._states.of(load.name) == reportstates.EXPIRED
        used = scored = self._nothing
        if measurement.usage is not None:
            of_prod = _total(sums.prod_usage, sums.prod_delta)
            used = of_prod if by_prod else self._usage(measurement, sums, thresholds.statistic)
            scores_prod = prod and self._args.score_according_prod_usage
            scored = of_prod if scores_prod else self._usage(measurement, sums, self._scored)
        gate = CHECKED if measurement.usage is not None else PASSES
        if expired and self._args.filter_expired_node_metrics:
            gate = PASSES if self._args.enable_schedule_when_node_metrics_expired else EXPIRED
        if not any(limits):
            gate = PASSES
        is_scored = measurement.usage is not None and not expired
        return View(gate, used, limits, aggregated, scored if is_scored else None)

    @staticmethod
    def _usage(measurement: Measurement, sums: Sums, statistic: Statistic | None) -> Vector:
        assert measurement.usage is not None, "asked where there is one"
        measured: Vector | None = measurement.usage
        if statistic is not None:
            measured = measurement.statistic(statistic)
            if measured is None and statistic.duration:
                return sums.estimated
        return _total(measured if measured is not None else measurement.usage, sums.node_delta)

    def counts_all(self, load: NodeLoad) -> bool:
        """Whether pods count in more ways than by what they add to the measured usage."""
        return (
            any(load.thresholds.prod)
            or self._args.score_according_prod_usage
            or self._sums_estimates(load, load.thresholds.statistic)
            or self._sums_estimates(load, self._scored)
        )

    @staticmethod
    def _sums_estimates(load: NodeLoad, statistic: Statistic | None) -> bool:
        return (
            statistic is not None
            and statistic.duration != 0
            and load.measurement is not None
            and load.measurement.statistic(statistic) is None
        )

    def counted(self, load: NodeLoad, added: Contribution) -> Contribution:
        """What of a contribution makes a difference on this node."""
        if load.counts_all:
            return added
        return Contribution(added.node_delta) if added.node_delta is not None else NOTHING


def _total(a: Vector, b: Vector) -> Vector:
    return tuple(x + y for x, y in zip(a, b, strict=True))
