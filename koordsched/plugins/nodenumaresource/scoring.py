"""How full nodes and NUMA nodes would be: 0..100, the weighted mean over resources (nodenumaresource spec 3.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from koordsched.config.qualified_names import is_scalar_resource
from koordsched.framework.topologyhints import Amounts
from koordsched.plugins.nodenumaresource.args import MOST_ALLOCATED, AllocationStrategy
from koordsched.plugins.shared.allocation import (
    least_allocated,
    least_allocated_rows,
    most_allocated,
    most_allocated_rows,
)


class Weighed(NamedTuple):
    """A resource that is scored for a pod: what it requests, and its weight."""

    resource: str
    request: int
    weight: int


class AllocationScore:
    """One for nodes, one for NUMA nodes: `kind` says which are preferred, the full ones or the empty ones."""

    def __init__(self, kind: str, resources: AllocationStrategy) -> None:
        self._of_many = most_allocated_rows if kind == MOST_ALLOCATED else least_allocated_rows
        self._of_one = most_allocated if kind == MOST_ALLOCATED else least_allocated
        weights = {resource.name: resource.weight for resource in resources.resources}
        self._weights = tuple(weights.items())

    def weighed(self, requests: dict[str, int]) -> tuple[Weighed, ...]:
        """What is scored for a pod: extended resources only if it requests them."""
        return tuple(
            Weighed(name, requests.get(name, 0), weight)
            for name, weight in self._weights
            if requests.get(name) or not is_scalar_resource(name)
        )

    def mean_of_one(self, resources: Sequence[tuple[Weighed, int, int]]) -> int:
        """As `mean`, for numbers."""
        total = weights = 0
        for weighed, used, capacity in resources:
            if capacity > 0:
                total += self._of_one(used, capacity) * weighed.weight
                weights += weighed.weight
        return total // weights if weights else 0

    def mean(self, resources: Sequence[tuple[Weighed, Amounts, Amounts]]) -> Amounts | int:
        """The score by (resource, what would be used, capacity); arrays of any equal shape. No capacity: left out."""
        total: Amounts | int = 0
        weights: Amounts | int = 0
        for weighed, used, capacity in resources:
            counts = capacity > 0
            score = self._of_many(used.copy(), np.maximum(capacity, 1))
            total = total + score * (counts * weighed.weight)
            weights = weights + counts * weighed.weight
        return total // np.maximum(weights, 1)
