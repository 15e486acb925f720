"""Scoring strategies: how full a node may become.

Each resource gets 0..100 from its capacity and what would be requested of it; the node gets the weighted
mean. All arithmetic is on integers, truncating (default-plugins spec 3.6).

Source: upstream `noderesources/{least_allocated,most_allocated,requested_to_capacity_ratio}.go`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from koordsched.api.quantity import go_divide
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.config.plugin_args import RequestedToCapacityRatioParam, ResourceSpec, ScoringStrategy
from koordsched.framework.interface import MAX_SCORE, Scores
from koordsched.plugins.shared.allocation import (
    EXACT,
    Amounts,
    least_allocated,
    least_allocated_rows,
    most_allocated,
    most_allocated_rows,
)
from koordsched.plugins.shared.extendedresources import ScoredDevices
from koordsched.plugins.shared.matching.rows import count_of
from koordsched.plugins.shared.nodeutilization import Floats, NodeUtilization

_MAX_SHAPE_SCORE = 10
_MAX_INT16 = np.iinfo(np.int16).max


@dataclass(frozen=True, slots=True)
class ScoredResource:
    """A configured resource as one pod sees it: `request` is what the pod adds to it.

    `nonzero`: the node's side counts defaults for containers without requests (cpu and memory do). `devices`: what a
    node may have of it by DRA.
    """

    index: int
    weight: int
    request: int
    nonzero: bool
    devices: ScoredDevices | None = None


class Strategy(ABC):
    """A score per resource, and their weighted mean."""

    counts_zero: ClassVar[bool] = True
    """Whether a resource that scores 0 still counts in the mean."""

    @abstractmethod
    def of_one(self, requested: int, capacity: int) -> int:
        """0..100 for one resource of one node; `capacity` is positive."""

    @abstractmethod
    def of_many(self, requested: Amounts, capacity: Amounts) -> Amounts:
        """The same for many nodes; `requested` may be overwritten."""

    def score_row(self, resources: Sequence[ScoredResource], table: NodeTable, row: int) -> int:
        """The weighted mean for the node of one row, resources without capacity left out; 0 if all are."""
        total = weights = 0
        for resource in resources:
            index = resource.index
            capacity = table.allocatable[index].data.item(row)
            if not capacity and resource.devices is None:
                continue
            used = (table.requested_nonzero if resource.nonzero else table.requested)[index].data.item(row)
            if not capacity and resource.devices is not None:
                capacity, used = resource.devices.amounts_on(row, capacity, used)
                if not capacity:
                    continue
            score = self.of_one(used + resource.request, capacity)
            if score or self.counts_zero:
                total += resource.weight * score
                weights += resource.weight
        return self.mean(total, weights) if weights else 0

    def score_rows(self, resources: Sequence[ScoredResource], table: NodeTable, rows: Rows) -> Scores:
        """The same for each row."""
        if isinstance(rows, slice) and rows == table.all_rows:
            found = self._score_utilization(resources, table)
            if found is not None:
                return found
        total = np.zeros(count_of(rows), dtype=np.int64)
        weights: Amounts | int = 0
        for resource in resources:
            index = resource.index
            capacity = table.allocatable[index].data[rows]
            used = (table.requested_nonzero if resource.nonzero else table.requested)[index].data[rows]
            if resource.devices is not None:
                capacity, used = resource.devices.amounts(rows, capacity, used)
            complete = bool(capacity.all())
            score = self.of_many(used + resource.request, capacity if complete else np.maximum(capacity, 1))
            if resource.weight != 1:
                score *= resource.weight
            if complete and self.counts_zero:
                total += score
                weights = weights + resource.weight
            else:
                counted = capacity > 0 if self.counts_zero else (capacity > 0) & (score > 0)
                total += np.where(counted, score, 0)
                weights = weights + resource.weight * counted
        # Where nothing counts the total is 0, so any divisor will do.
        return self.means(total, max(weights, 1) if isinstance(weights, int) else np.maximum(weights, 1))

    def _score_utilization(self, resources: Sequence[ScoredResource], table: NodeTable) -> Scores | None:
        """The same for all rows, from what is kept up; None where nothing is, or it cannot be used."""
        return None

    def mean(self, total: int, weights: int) -> int:
        """`total / weights`, truncated; `weights` is positive."""
        return total // weights

    def means(self, total: Amounts, weights: Amounts | int) -> Amounts:
        """The same for many nodes; `weights` may be one number for all."""
        return total // weights


class Linear(Strategy):
    """A score that is what is kept of the node, plus or minus the pod's request, divided by the capacity.

    A resource that scores 0 counts in the mean.
    """

    def __init__(self) -> None:
        self._utilizations: dict[tuple[tuple[int, bool], ...], NodeUtilization] = {}

    @abstractmethod
    def base(self, used: Any, capacity: Any) -> Any:
        """What is kept of a node, in whole numbers; of one node or many."""

    @abstractmethod
    def of_base(self, base: Floats, request: int, capacity: Floats) -> Floats:
        """0..100 for one resource of many nodes, yet to be truncated."""

    def _score_utilization(self, resources: Sequence[ScoredResource], table: NodeTable) -> Scores | None:
        key = tuple((resource.index, resource.nonzero) for resource in resources)
        utilization = self._utilizations.get(key)
        if utilization is None:
            utilization = self._utilizations[key] = NodeUtilization(key, EXACT, self.base)
        utilization.refresh(table)
        if not utilization.usable or any(resource.request >= EXACT for resource in resources):
            return None
        weights = sum(resource.weight for resource in resources)
        kind = np.int16 if weights * MAX_SCORE <= _MAX_INT16 else np.int64
        total: Amounts | None = None
        for resource, base, capacity in zip(resources, utilization.base, utilization.capacity, strict=True):
            score: Amounts = self.of_base(base, resource.request, capacity).astype(kind)
            if resource.weight != 1:
                score *= resource.weight
            total = score if total is None else np.add(total, score, out=total)
        return 0 if total is None else total // weights


class LeastAllocated(Linear):
    """Emptier nodes score higher."""

    def of_one(self, requested: int, capacity: int) -> int:
        return least_allocated(requested, capacity)

    def of_many(self, requested: Amounts, capacity: Amounts) -> Amounts:
        return least_allocated_rows(requested, capacity)

    def base(self, used: Any, capacity: Any) -> Any:
        return (capacity - used) * MAX_SCORE

    def of_base(self, base: Floats, request: int, capacity: Floats) -> Floats:
        share = base - float(request * MAX_SCORE)
        share /= capacity
        return np.maximum(share, 0.0, out=share)


class MostAllocated(Linear):
    """Fuller nodes score higher."""

    def of_one(self, requested: int, capacity: int) -> int:
        return most_allocated(requested, capacity)

    def of_many(self, requested: Amounts, capacity: Amounts) -> Amounts:
        return most_allocated_rows(requested, capacity)

    def base(self, used: Any, capacity: Any) -> Any:
        return used * MAX_SCORE

    def of_base(self, base: Floats, request: int, capacity: Floats) -> Floats:
        share = base + float(request * MAX_SCORE)
        share /= capacity
        return np.minimum(share, float(MAX_SCORE), out=share)


class RequestedToCapacityRatio(Strategy):
    """A piecewise linear function of utilization; resources that score 0 are left out of the mean."""

    counts_zero = False

    def __init__(self, param: RequestedToCapacityRatioParam) -> None:
        """The shape must be valid: at least one point, utilization strictly increasing."""
        points = [(p.utilization, p.score * MAX_SCORE // _MAX_SHAPE_SCORE) for p in param.shape]
        self._score_at = np.array([_interpolate(points, u) for u in range(MAX_SCORE + 1)], dtype=np.int64)
        self._score_list: list[int] = self._score_at.tolist()

    def of_one(self, requested: int, capacity: int) -> int:
        return self._score_list[requested * MAX_SCORE // capacity if requested <= capacity else MAX_SCORE]

    def of_many(self, requested: Amounts, capacity: Amounts) -> Amounts:
        utilization = np.minimum(requested, capacity) * MAX_SCORE // capacity
        return self._score_at.take(utilization)

    def mean(self, total: int, weights: int) -> int:
        """Rounded half away from zero (nothing is negative)."""
        return (2 * total + weights) // (2 * weights)

    def means(self, total: Amounts, weights: Amounts | int) -> Amounts:
        return (2 * total + weights) // (2 * weights)


def _interpolate(points: list[tuple[int, int]], utilization: int) -> int:
    """The function through the points, constant outside of them, slopes truncated toward zero."""
    if utilization <= points[0][0]:
        return points[0][1]
    for (u0, s0), (u1, s1) in pairwise(points):
        if utilization <= u1:
            return s0 + go_divide((s1 - s0) * (utilization - u0), u1 - u0)
    return points[-1][1]


def strategy_of(configured: ScoringStrategy) -> Strategy:
    """The strategy that validated arguments ask for. Raises ValueError if they name none."""
    if configured.type == "LeastAllocated":
        return LeastAllocated()
    if configured.type == "MostAllocated":
        return MostAllocated()
    if configured.type == "RequestedToCapacityRatio" and configured.requested_to_capacity_ratio is not None:
        return RequestedToCapacityRatio(configured.requested_to_capacity_ratio)
    raise ValueError(f"scoring strategy {configured.type} is not supported")


DEFAULT_RESOURCES = (ResourceSpec("cpu", 1), ResourceSpec("memory", 1))
"""What is scored when the configuration names nothing."""
