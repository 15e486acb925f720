"""NodeResourcesBalancedAllocation: prefers nodes whose resources would be used evenly (default-plugins spec 3.7).

Float arithmetic follows upstream's order of operations, so that truncation agrees to the last digit.

Source: upstream `noderesources/balanced_allocation.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import Facet
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.resources import FIRST_SCALAR
from koordsched.cluster.shape import PodShape
from koordsched.config.plugin_args import NodeResourcesBalancedAllocationArgs, ResourceSpec
from koordsched.framework.handle import Handle
from koordsched.framework.interface import MAX_SCORE, Scores, ShapeScore
from koordsched.plugins.shared.extendedresources import ExtendedResources, ScoredDevices, scored_devices
from koordsched.plugins.shared.matching.rows import single
from koordsched.plugins.shared.nodeutilization import Floats, NodeUtilization

_DEFAULT_RESOURCES = (ResourceSpec("cpu", 1), ResourceSpec("memory", 1))

_MIDDLE = MAX_SCORE // 2

_OFFSET = _MIDDLE + 2 * _MIDDLE
"""The middle of the score and, doubled because it is halved with the rest, the middle that the score starts from."""

_EXACT = 1 << 52
"""Below this, sums of two amounts are exact in floating point."""


class BalancedResource(NamedTuple):
    """A configured resource, by its index, as one pod sees it. `devices`: what a node may have of it by DRA."""

    resource: int
    request: int
    devices: ScoredDevices | None = None


Balanced = tuple[BalancedResource, ...]


class NodeResourcesBalancedAllocation(ShapeScore):
    """Scores how much the pod changes the balance of the node: about 75 means not at all."""

    name = "NodeResourcesBalancedAllocation"
    facets = int(Facet.RESOURCES)

    def __init__(self, args: NodeResourcesBalancedAllocationArgs | None, handle: Handle) -> None:
        """The arguments must be valid."""
        self._resources = (args.resources if args is not None else ()) or _DEFAULT_RESOURCES
        extended = ExtendedResources.shared(handle)
        self._devices = scored_devices(extended, (resource.name for resource in self._resources))
        self._table = handle.cluster.table
        self._befores: dict[tuple[int, ...], _Before] = {}

    def _compile(self, shape: PodShape) -> Balanced:
        balanced = []
        for resource in self._resources:
            index = self._table.resource_names.intern(resource.name)
            self._table.ensure_resource(index)
            request = shape.requests.get(index)
            if index < FIRST_SCALAR or request:
                balanced.append(BalancedResource(index, request, self._devices.get(resource.name)))
        return tuple(balanced)

    def skips(self, shape: PodShape) -> bool:
        """Pods that request none of the resources."""
        return not any(scored.request for scored in shape.compiled(self, self._compile))

    def score_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Scores:
        """0..100: 50, plus half of 50 and of the balance gained or lost."""
        balanced = shape.compiled(self, self._compile)
        row = single(rows)
        if row < 0:
            if len(balanced) == 2 and isinstance(rows, slice) and rows == table.all_rows:
                # Where every node has the resources there are no devices instead.
                found = self._before(balanced).score_all(table, balanced)
                if found is not None:
                    return found
            return _score_rows(balanced, table, rows)
        before: list[float] = []
        after: list[float] = []
        for index, request, devices in balanced:
            capacity = table.allocatable[index].data.item(row)
            used = table.requested[index].data.item(row)
            if devices is not None:
                capacity, used = devices.amounts_on(row, capacity, used)
            if capacity:
                before.append(min(used / capacity, 1.0))
                after.append(min((used + request) / capacity, 1.0))
        return _MIDDLE + (_MIDDLE + _balance(after) - _balance(before)) // 2

    def _before(self, balanced: Balanced) -> _Before:
        indices = tuple(scored.resource for scored in balanced)
        found = self._befores.get(indices)
        if found is None:
            found = self._befores[indices] = _Before(indices)
        return found


class _Before:
    """What the nodes' balance is before the pod, for two resources."""

    __slots__ = ("_offset", "_utilization")

    def __init__(self, indices: Sequence[int]) -> None:
        self._utilization = NodeUtilization([(index, False) for index in indices], _EXACT, _used)
        self._offset: npt.NDArray[np.int16] = np.zeros(0, dtype=np.int16)

    def score_all(self, table: NodeTable, balanced: Balanced) -> npt.NDArray[np.int16] | None:
        """The scores of all rows; None where the general case applies."""
        utilization = self._utilization
        renewed = utilization.refresh(table)
        if not utilization.usable:
            return None
        self._renew(renewed)
        after = [used + scored.request for used, scored in zip(utilization.base, balanced, strict=True)]
        scores = self._balances(after, utilization.capacity)
        scores += self._offset
        scores >>= 1
        return scores

    def _renew(self, rows: Rows | list[int]) -> None:
        used, capacity = self._utilization.base, self._utilization.capacity
        if isinstance(rows, list):
            for row in rows:
                fractions = [
                    min(some.item(row) / whole.item(row), 1.0) for some, whole in zip(used, capacity, strict=True)
                ]
                self._offset[row] = _OFFSET - _balance(fractions)
            return
        if len(self._offset) != len(used[0]):
            self._offset = np.zeros(len(used[0]), dtype=np.int16)
        before = self._balances([some[rows].copy() for some in used], [whole[rows] for whole in capacity])
        self._offset[rows] = _OFFSET - before

    @staticmethod
    def _balances(used: list[Floats], capacity: list[Floats]) -> npt.NDArray[np.int16]:
        """50..100 per row; overwrites `used`."""
        for fraction, whole in zip(used, capacity, strict=True):
            fraction /= whole
            np.minimum(fraction, 1.0, out=fraction)
        return _balances_of_two(used[0], used[1])


def _used(used: Any, capacity: Any) -> Any:
    return used


def _balance(fractions: Sequence[float]) -> int:
    """50..100: fractions of 0..1 deviate by at most a half; 100 when they are equal."""
    count = len(fractions)
    deviation = 0.0
    if count == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    elif count > 2:
        total = 0.0
        for fraction in fractions:
            total += fraction
        mean = total / count
        squares = 0.0
        for fraction in fractions:
            squares += (fraction - mean) * (fraction - mean)
        deviation = sqrt(squares / count)
    return int((1 - deviation) * MAX_SCORE)


def _score_rows(balanced: Balanced, table: NodeTable, rows: Rows) -> npt.NDArray[np.int16]:
    """The same as for one row, for many."""
    before: list[Floats] = []
    after: list[Floats] = []
    present = []
    for index, request, devices in balanced:
        allocatable = table.allocatable[index].data[rows]
        used = table.requested[index].data[rows]
        if devices is not None:
            allocatable, used = devices.amounts(rows, allocatable, used)
        # Converted once: dividing integers converts both in small pieces, at several times the cost.
        capacity = allocatable.astype(np.float64)
        has_any = capacity > 0
        present.append(has_any)
        if not has_any.all():
            capacity = np.maximum(capacity, 1.0)
        for fractions, requested in ((before, used), (after, used + request)):
            fraction = requested.astype(np.float64)
            fraction /= capacity
            fractions.append(np.minimum(fraction, 1.0, out=fraction))
    return _MIDDLE + (_MIDDLE + _balances(after, present) - _balances(before, present)) // 2


def _balances_of_two(first: Floats, second: Floats) -> npt.NDArray[np.int16]:
    """50..100 per row; overwrites `first`."""
    # (1 - |difference| / 2) * 100, rounded where that is rounded: doubling and halving are exact.
    difference = np.subtract(first, second, out=first)
    np.abs(difference, out=difference)
    np.subtract(2.0, difference, out=difference)
    difference *= _MIDDLE
    return difference.astype(np.int16)


def _balances(fractions: Sequence[Floats], present: Sequence[npt.NDArray[np.bool_]]) -> npt.NDArray[np.int16]:
    if len(fractions) == 2 and present[0].all() and present[1].all():
        return _balances_of_two(fractions[0], fractions[1])
    count = np.sum(present, axis=0)
    total = np.zeros(len(count))
    for fraction, has_any in zip(fractions, present, strict=True):
        total += np.where(has_any, fraction, 0.0)
    mean = total / np.maximum(count, 1)
    squares = np.zeros(len(count))
    for fraction, has_any in zip(fractions, present, strict=True):
        squares += np.where(has_any, (fraction - mean) * (fraction - mean), 0.0)
    deviation = np.sqrt(squares / np.maximum(count, 1))
    highest = np.max([np.where(has_any, f, 0.0) for f, has_any in zip(fractions, present, strict=True)], axis=0)
    lowest = np.min([np.where(has_any, f, 1.0) for f, has_any in zip(fractions, present, strict=True)], axis=0)
    deviation = np.where(count == 2, (highest - lowest) / 2, np.where(count > 2, deviation, 0.0))
    return ((1 - deviation) * MAX_SCORE).astype(np.int16)
