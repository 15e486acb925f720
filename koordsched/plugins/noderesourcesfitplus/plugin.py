"""The plugin: scores each resource by a rule of its own (loadaware spec A)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from koordsched.api.core import Container, PodSpec, Quantities
from koordsched.api.quantity import milli_value, value
from koordsched.cluster.changelog import Facet
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.resources import (
    CPU,
    DEFAULT_MEMORY,
    DEFAULT_MILLI_CPU,
    FIRST_SCALAR,
    MEMORY,
)
from koordsched.cluster.shape import PodShape
from koordsched.config.qualified_names import is_scalar_resource
from koordsched.framework.handle import Handle
from koordsched.framework.interface import MAX_SCORE, Scores, ShapeScore
from koordsched.plugins.noderesourcesfitplus.args import LEAST_ALLOCATED, MOST_ALLOCATED, NodeResourcesFitPlusArgs
from koordsched.plugins.shared.allocation import (
    Amounts,
    least_allocated,
    least_allocated_rows,
    most_allocated,
    most_allocated_rows,
)
from koordsched.plugins.shared.extendedresources import ExtendedResources, ScoredDevices, scored_devices
from koordsched.plugins.shared.matching.rows import count_of, single

_RULES: dict[str, tuple[Callable[[int, int], int], Callable[[Amounts, Amounts], Amounts]]] = {
    LEAST_ALLOCATED: (least_allocated, least_allocated_rows),
    MOST_ALLOCATED: (most_allocated, most_allocated_rows),
}
"""Type -> the score of one node, and of many."""

_MISSING = {CPU: DEFAULT_MILLI_CPU, MEMORY: DEFAULT_MEMORY}


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A configured resource that the pod requests.

    `request`: what counts of it; `devices`: what a class may have of it on nodes that have none.
    """

    index: int
    weight: int
    request: int
    of_one: Callable[[int, int], int]
    of_many: Callable[[Amounts, Amounts], Amounts]
    devices: ScoredDevices | None


@dataclass(frozen=True, slots=True)
class _Compiled:
    """One shape's part. `weights`: of all configured resources that it requests, unknown types included."""

    wanted: tuple[_Wanted, ...]
    weights: int


class NodeResourcesFitPlus(ShapeScore):
    """The weighted mean of the scores of the configured resources that the pod requests; 100 without any."""

    name = "NodeResourcesFitPlus"
    facets = int(Facet.RESOURCES)
    needs_pre_score = True

    def __init__(self, args: NodeResourcesFitPlusArgs | None, handle: Handle) -> None:
        """The arguments must be valid."""
        self._resources = args.resources if args is not None else {}
        self._table = handle.cluster.table
        self._devices = scored_devices(ExtendedResources.shared(handle), self._resources)

    def _compile(self, shape: PodShape) -> _Compiled:
        wanted = []
        weights = 0
        for index, _ in shape.requests.amounts:
            name = self._table.resource_names.names[index]
            configured = self._resources.get(name)
            if configured is None or (index >= FIRST_SCALAR and not is_scalar_resource(name)):
                continue
            weights += configured.weight
            rule = _RULES.get(configured.type)
            if rule is not None:
                self._table.ensure_resource(index)
                request = _request(shape.spec, index, name)
                wanted.append(_Wanted(index, configured.weight, request, *rule, self._devices.get(name)))
        return _Compiled(tuple(wanted), weights)

    def score_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Scores:
        """0..100; a node without the resource, and without devices that serve it, scores 0 for it."""
        compiled = shape.compiled(self, self._compile)
        if not compiled.weights:
            return MAX_SCORE
        row = single(rows)
        if row >= 0:
            return self._score_row(compiled.wanted, table, row) // compiled.weights
        total = np.zeros(count_of(rows), dtype=np.int64)
        for wanted in compiled.wanted:
            capacity = table.allocatable[wanted.index].data[rows]
            used = _requested(table, wanted.index)[rows]
            if wanted.devices is not None:
                capacity, used = wanted.devices.amounts(rows, capacity, used)
            everywhere = bool(capacity.all())
            score = wanted.of_many(used + wanted.request, capacity if everywhere else np.maximum(capacity, 1))
            if not everywhere:
                score[capacity == 0] = 0
            score *= wanted.weight
            total += score
        return total // compiled.weights

    @staticmethod
    def _score_row(resources: tuple[_Wanted, ...], table: NodeTable, row: int) -> int:
        total = 0
        for wanted in resources:
            capacity = table.allocatable[wanted.index].data.item(row)
            used = _requested(table, wanted.index).item(row)
            if wanted.devices is not None:
                capacity, used = wanted.devices.amounts_on(row, capacity, used)
            if capacity:
                total += wanted.of_one(used + wanted.request, capacity) * wanted.weight
        return total


def _requested(table: NodeTable, index: int) -> Amounts:
    """What pods request on every node; of cpu and memory with defaults for containers that request none."""
    requested: Amounts = (table.requested_nonzero if index in _MISSING else table.requested)[index].data
    return requested


def _request(spec: PodSpec, index: int, name: str) -> int:
    """What the pod counts: sidecars add up with containers, and an init container may be more than all before it.

    Source: koordinator `noderesourcefitplus/node_resource_fit_plus_utils.go`. Overhead is added as it is meant there.
    """
    total = sum(_container_request(container, index, name) for container in spec.containers)
    for container in spec.init_containers:
        request = _container_request(container, index, name)
        total = total + request if container.restart_policy == "Always" else max(total, request)
    return total + _amount(spec.overhead, index, name, 0)


def _container_request(container: Container, index: int, name: str) -> int:
    requests: Quantities = container.resources.requests if container.resources is not None else {}
    return _amount(requests, index, name, _MISSING.get(index, 0))


def _amount(quantities: Quantities, index: int, name: str, missing: int) -> int:
    if name not in quantities:
        return missing
    return milli_value(quantities[name]) if index == CPU else value(quantities[name])
