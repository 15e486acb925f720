"""Takes GPUs: as a partition, near each other, or one after the other (deviceshare spec 3.4 to 3.6).

Source: koordinator `pkg/scheduler/plugins/deviceshare/allocator_gpu.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from koordsched.plugins.deviceshare.devicescore import DeviceScore
from koordsched.plugins.deviceshare.reasons import (
    INSUFFICIENT_GPUS,
    INSUFFICIENT_PARTITIONED_GPUS,
    INSUFFICIENT_SCOPED_GPUS,
    NO_PARTITIONS,
    NO_SCOPES,
    UNSUPPORTED_NUMBER,
    UNSUPPORTED_SHARED,
    Refusal,
)
from koordsched.plugins.deviceshare.supply import TypeSupply, fits
from koordsched.plugins.shared.devices.inventory import Inventory, Scope
from koordsched.plugins.shared.devices.partitions import Groups, Partition, bits_of
from koordsched.plugins.shared.devices.request import GPUs, TypeRequest
from koordsched.plugins.shared.devices.resources import GPU

_WORTH = ((8, 10_000), (4, 100), (2, 1))
"""The weight of a partition of this many GPUs that stays free."""


def partitioned(request: TypeRequest, gpus: GPUs, inventory: Inventory, supply: TypeSupply) -> list[int] | Refusal:
    """The minors of one partition for whole GPUs."""
    table = inventory.partitions
    if table is None:
        return NO_PARTITIONS
    groups = table.get(request.number)
    if groups is None:
        return UNSUPPORTED_NUMBER
    healthy = bits_of(tuple(supply.total))
    for group in groups:
        feasible = [
            partition
            for partition in group
            if not partition.bits & supply.used
            and partition.bits & healthy == partition.bits
            and (gpus.bandwidth is None or (partition.bandwidth is not None and gpus.bandwidth <= partition.bandwidth))
        ]
        if feasible:
            return list(_least_breaking(feasible, table, supply.used, request.number).minors)
        if gpus.restricted:
            break
    return INSUFFICIENT_PARTITIONED_GPUS


def _least_breaking(feasible: list[Partition], table: Mapping[int, Groups], used: int, number: int) -> Partition:
    """The partition after which most is left of the partitions that are as large or larger; the first of such."""
    if len(feasible) == 1:
        return feasible[0]
    larger = [
        (partition.bits, worth * partition.score)
        for size, worth in _WORTH
        if size >= number and size in table
        for partition in table[size][0]
    ]
    return max(feasible, key=lambda one: sum(worth for bits, worth in larger if not bits & (used | one.bits)))


class _Found(NamedTuple):
    """GPUs of one scope. `depth`: how deep in the tree it is; `busy`: how many scopes around it, itself included, have
    GPUs in use; `score`: of the GPU, if it is shared."""

    minors: tuple[int, ...]
    depth: int
    busy: int
    score: int


class ScopeSearch:
    """Looks for GPUs near each other, in scopes that are in use already.

    `score` rates a GPU for a shared pod; None: the lowest minor is best.
    """

    def __init__(
        self, request: TypeRequest, gpus: GPUs, supply: TypeSupply, score: Callable[[int], int] | None
    ) -> None:
        self._number = request.number
        self._gpus = gpus
        self._used = supply.used
        total, amounts = supply.total, request.amounts
        self._fitting = [minor for minor, free in supply.free.items() if minor in total and fits(amounts, free)]
        self._fitting_bits = bits_of(tuple(self._fitting))
        self._scores = {minor: score(minor) if score is not None else 0 for minor in self._fitting if gpus.shared}

    def search(self, tree: Scope) -> list[int] | Refusal:
        """The minors."""
        found = self._in(tree, 0, 0)
        if found is not None:
            return list(found.minors)
        return INSUFFICIENT_SCOPED_GPUS if self._gpus.scoped else INSUFFICIENT_GPUS

    def _in(self, scope: Scope, depth: int, busy: int) -> _Found | None:
        fitting = scope.bits & self._fitting_bits
        if fitting.bit_count() < self._number:
            return None
        depth, busy = depth + 1, busy + bool(scope.bits & self._used)
        best: _Found | None = None
        for child in scope.children:
            found = self._in(child, depth, busy)
            if found is not None and (best is None or self._better(found, best)):
                best = found
        if best is not None or self._gpus.scope > scope.level:
            return best
        minors = [minor for minor in scope.minors if fitting >> minor & 1]
        if self._gpus.shared:
            card = max(minors, key=self._scores.__getitem__)
            return _Found((card,), depth, busy, self._scores[card])
        return _Found(tuple(minors[: self._number]), depth, busy, 0)

    def _better(self, one: _Found, other: _Found) -> bool:
        """Deeper, then in scopes that are busier, then by the GPU itself; else the first counts."""
        if (one.depth, one.busy) == (other.depth, other.busy):
            return self._gpus.shared and one.score > other.score
        return (one.depth, one.busy) > (other.depth, other.busy)


def scoped(
    request: TypeRequest, gpus: GPUs, inventory: Inventory, supply: TypeSupply, score: DeviceScore | None
) -> list[int] | Refusal | None:
    """The minors of GPUs close to each other; None if their places are unknown and the pod does not require it."""
    tree = inventory.scopes
    if tree is None:
        return NO_SCOPES if gpus.scoped else None
    if gpus.shared and request.number > 1:
        return UNSUPPORTED_SHARED if gpus.scoped else None

    def rate(minor: int) -> int:
        # Upstream passes what is free as the total, and the other way round (deviceshare spec 3.6).
        assert score is not None, "asked only if there is one"
        return score.of(GPU, request.amounts, supply.free[minor], supply.total[minor])

    return ScopeSearch(request, gpus, supply, rate if score is not None else None).search(tree)
