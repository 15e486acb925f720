"""The thresholds of a node: those of the plugin's arguments, or of the node's annotation instead.

Source: koordinator `plugins/loadaware/helper.go`; loadaware spec 3.3, step 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, NamedTuple

import msgspec

from koordsched.api.decoding import Decoder
from koordsched.api.meta import Wire
from koordsched.cluster.kept import Kept
from koordsched.config.duration import Duration
from koordsched.plugins.loadaware.args import LoadAwareSchedulingArgs
from koordsched.plugins.loadaware.estimation import Vector
from koordsched.plugins.loadaware.kinds import USAGE_THRESHOLDS
from koordsched.plugins.loadaware.measurements import Statistic

_LARGEST = 1 << 31
"""Larger percentages mean the same as this one."""

_BUDGET = 8 << 20
"""Bytes of annotations that are known."""


class Thresholds(NamedTuple):
    """In percent of what the node has, 0 for no limit.

    `plain` holds for pods, `prod` instead for those of production unless it is all 0. `statistic`: what `plain` is
    compared with, None for the mean.
    """

    plain: Vector
    prod: Vector
    statistic: Statistic | None


_Percentage = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _Aggregated(Wire, frozen=True):
    usage_thresholds: dict[str, _Percentage] = {}
    usage_aggregation_type: str = ""
    usage_aggregated_duration: str = "0"


class _Annotation(Wire, frozen=True):
    usage_thresholds: dict[str, _Percentage] = {}
    prod_usage_thresholds: dict[str, _Percentage] = {}
    aggregated_usage: _Aggregated | None = None


_decode = Decoder(_Annotation)


class ThresholdReader:
    """Reads the thresholds of nodes; equal annotations are read once."""

    def __init__(self, args: LoadAwareSchedulingArgs, resources: tuple[str, ...]) -> None:
        self._resources = resources
        self._usage = self._vector(args.usage_thresholds)
        self._prod = self._vector(args.prod_usage_thresholds)
        self._aggregated: tuple[Vector, Statistic] | None = None
        given = args.aggregated
        if given is not None and given.usage_thresholds and given.usage_aggregation_type:
            statistic = Statistic(given.usage_aggregation_type, given.usage_aggregated_duration)
            self._aggregated = self._vector(given.usage_thresholds), statistic
        self._default = self._put_together(self._usage, self._prod, self._aggregated)
        self._read: Kept[str, tuple[Thresholds, str]] = Kept(_BUDGET)

    def of(self, annotation: str | None) -> tuple[Thresholds, str]:
        """The thresholds, and what is wrong with the annotation, if anything."""
        if annotation is None:
            return self._default, ""
        found = self._read.get(annotation)
        return found if found is not None else self._read.put(annotation, self._parse(annotation))

    def _parse(self, text: str) -> tuple[Thresholds, str]:
        try:
            own = _decode(text.encode())
            aggregated = self._aggregated
            section = own.aggregated_usage
            if section is not None and section.usage_thresholds and section.usage_aggregation_type:
                duration = Duration.parse(section.usage_aggregated_duration or "0")
                statistic = Statistic(section.usage_aggregation_type, duration)
                aggregated = self._vector(section.usage_thresholds), statistic
        except ValueError as error:
            return self._default, f"{USAGE_THRESHOLDS}: {error}"
        usage = self._vector(own.usage_thresholds) if own.usage_thresholds else self._usage
        prod = self._vector(own.prod_usage_thresholds) if own.prod_usage_thresholds else self._prod
        return self._put_together(usage, prod, aggregated), ""

    @staticmethod
    def _put_together(usage: Vector, prod: Vector, aggregated: tuple[Vector, Statistic] | None) -> Thresholds:
        plain, statistic = aggregated if aggregated is not None else (usage, None)
        return Thresholds(plain, prod, statistic)

    def _vector(self, percentages: Mapping[str, int]) -> Vector:
        return tuple(max(0, min(_LARGEST, percentages.get(name, 0))) for name in self._resources)
