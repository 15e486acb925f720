"""What a pod is expected to use, from what it requests and may use.

Source: koordinator `plugins/loadaware/estimator/default_estimator.go`; loadaware spec 3.1.
"""

from __future__ import annotations

from math import floor
from typing import NamedTuple

import orjson

from koordsched.api.quantity import LIMIT, NANO, QuantityError
from koordsched.cluster.resources import effective_requests, limits_of
from koordsched.cluster.shape import PodShape
from koordsched.plugins.loadaware.args import LoadAwareSchedulingArgs
from koordsched.plugins.loadaware.kinds import (
    RESERVE_POD,
    SCALING_FACTORS,
    SECONDS_AFTER_INITIALIZED,
    SECONDS_AFTER_SCHEDULED,
)
from koordsched.plugins.shared.priorityclass import PriorityClass, priority_class

Vector = tuple[int, ...]
"""Milli-CPU, and whole units of other resources, in the order of the plugin's resources."""

_DEFAULTS = {
    "cpu": 250,
    "memory": 200 << 20,
    "kubernetes.io/batch-cpu": 250,
    "kubernetes.io/batch-memory": 200 << 20,
}
"""What a pod that asks for nothing is taken to use; pods of the bands mid and free are not (upstream's quirk)."""

_LARGEST = 1 << 48
"""No pod is expected to use more (256 TiB): tens of thousands of them on a node stay within int64."""

_SCALED_NAMES = {PriorityClass.BATCH: "kubernetes.io/batch-", PriorityClass.MID: "kubernetes.io/mid-"}


class Estimate(NamedTuple):
    """The expected load of pods of one shape.

    `amounts`: what each is expected to use, None if that cannot be estimated. `prod`: whether they are production.
    `counted`: whether they count on a node at all; `exempt`: whether no node is refused to them. `after_scheduled`,
    `after_initialized`: seconds for which the estimate is in force whatever is measured, 0 or less for none.
    """

    amounts: Vector | None
    prod: bool
    counted: bool
    exempt: bool
    after_scheduled: int
    after_initialized: int


class Estimator:
    """Estimates pods by the plugin's arguments. `resources`: names of the vector's resources."""

    def __init__(self, args: LoadAwareSchedulingArgs, resources: tuple[str, ...]) -> None:
        self._resources = resources
        self._factors = dict(args.estimated_scaling_factors)
        self._customized = args.allow_customize_estimation
        self._after_scheduled = args.estimated_seconds_after_pod_scheduled or 0
        self._after_initialized = args.estimated_seconds_after_initialized or 0
        self.has_windows = self._customized or self._after_scheduled > 0 or self._after_initialized > 0
        """Whether an estimate may be in force for some time whatever is measured."""

    def of(self, shape: PodShape) -> Estimate:
        """The estimate of a shape, worked out once."""
        return shape.compiled(self, self._estimate)

    def _estimate(self, shape: PodShape) -> Estimate:
        band = priority_class(shape)
        try:
            amounts = self._amounts(shape, band)
        except QuantityError:
            amounts = None  # limits are never validated: a malformed one harms this pod alone
        return Estimate(
            amounts,
            band is PriorityClass.PROD,
            shape.meta.annotations.get(RESERVE_POD) != "true",
            "DaemonSet" in shape.meta.owner_kinds,
            self._seconds(shape, SECONDS_AFTER_SCHEDULED, self._after_scheduled),
            self._seconds(shape, SECONDS_AFTER_INITIALIZED, self._after_initialized),
        )

    def _amounts(self, shape: PodShape, band: PriorityClass) -> Vector:
        requests, limits, factors = effective_requests(shape.spec), limits_of(shape.spec), self._factors_of(shape)
        amounts = []
        for resource in self._resources:
            factor = factors.get(resource)
            asked_as = _name(band, resource)
            if factor is None or not asked_as:
                amounts.append(0)
                continue
            limit = _rounded_up(asked_as, limits.get(asked_as, 0))
            asked = max(limit, _rounded_up(asked_as, requests.get(asked_as, 0)))
            if asked <= 0:
                amounts.append(_DEFAULTS.get(asked_as, 0))
                continue
            expected = _half_away(float(asked) * float(factor) / 100)
            if 0 < limit < expected:
                expected = limit
            amounts.append(max(0, min(_LARGEST, expected)))
        return tuple(amounts)

    def _factors_of(self, shape: PodShape) -> dict[str, int]:
        text = shape.meta.annotations.get(SCALING_FACTORS) if self._customized else None
        try:
            own = orjson.loads(text) if text else None
        except orjson.JSONDecodeError:
            own = None
        if not isinstance(own, dict) or not all(type(factor) is int for factor in own.values()):
            return self._factors
        return {**self._factors, **own}

    def _seconds(self, shape: PodShape, annotation: str, otherwise: int) -> int:
        """A negative number, or none, leaves what the arguments say; 0 switches it off."""
        text = shape.meta.annotations.get(annotation) if self._customized else None
        try:
            own = int(text) if text is not None and len(text) <= 19 else -1
        except ValueError:
            own = -1
        return own if own >= 0 else otherwise


def _name(band: PriorityClass, resource: str) -> str:
    """What pods of the band request the resource as, "" if they cannot."""
    if band in (PriorityClass.PROD, PriorityClass.NONE):
        return resource
    if band in _SCALED_NAMES and resource in ("cpu", "memory"):
        return _SCALED_NAMES[band] + resource
    return ""


def _rounded_up(name: str, nano: int) -> int:
    unit = NANO // 1000 if name == "cpu" else NANO
    return max(-LIMIT, min(LIMIT, -(-nano // unit)))


def _half_away(value: float) -> int:
    """Rounded to the nearest integer, halves away from zero, as Go's math.Round."""
    whole = floor(abs(value))
    rounded = whole + (abs(value) - whole >= 0.5)
    return rounded if value >= 0 else -rounded
