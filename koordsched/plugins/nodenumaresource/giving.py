"""What a pod gets on a node: by which policies, on which NUMA nodes, and then which CPUs and how much.

Source: nodenumaresource spec 3.3 to 3.6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.shape import PodShape
from koordsched.framework.reservations import Reserved
from koordsched.framework.status import PASS, Code, ReasonTable, Status
from koordsched.framework.topologyhints import NUMAPolicy
from koordsched.framework.topologymanager import NO_AFFINITY
from koordsched.plugins.nodenumaresource.alignment import Alignment
from koordsched.plugins.nodenumaresource.allocation import Allocation
from koordsched.plugins.nodenumaresource.allocator import Allocator
from koordsched.plugins.nodenumaresource.columns import MODES, Mode, NUMAColumns
from koordsched.plugins.nodenumaresource.demand import Demand, demand_on
from koordsched.plugins.nodenumaresource.hints import CompiledRequests
from koordsched.plugins.nodenumaresource.policies import AllocateStrategy
from koordsched.plugins.nodenumaresource.reasons import INVALID_TOPOLOGY, NO_ZONES, NOT_ENOUGH_CPUS


class Given(NamedTuple):
    """What Reserve decided: the allocation, perhaps of nothing, and what was wanted."""

    allocation: Allocation
    demand: Demand


class Giving:
    """Decides as the table reads; it changes nothing. `strategy_on`: which NUMA nodes of a row come first."""

    def __init__(
        self,
        table: NodeTable,
        columns: NUMAColumns,
        compiled: CompiledRequests,
        alignment: Alignment,
        allocator: Allocator,
        strategy_on: Callable[[int], AllocateStrategy],
        reasons: ReasonTable,
    ) -> None:
        self._table = table
        self._columns = columns
        self._compiled = compiled
        self._alignment = alignment
        self._allocator = allocator
        self._strategy_on = strategy_on
        self._reasons = reasons

    def given(self, shape: PodShape, row: int, reserved: Reserved | None = None) -> Given | Status | None:
        """What a pod would get on a row, None if that is nothing, or why it cannot get it; `reserved`: the reservation
        that it uses."""
        request = self._compiled.request(shape)
        if request.status is not None:
            return None
        mode = MODES[self._columns.mode.data.item(row)]
        demand = demand_on(request, mode)
        allocation = self.allocate(shape, demand, mode, row, reserved)
        return Given(allocation, demand) if isinstance(allocation, Allocation) else allocation

    def affinity(self, shape: PodShape, row: int) -> int | None:
        """The NUMA nodes for all resources of a pod that has room on a row; None if no policy asks for a choice."""
        request = self._compiled.request(shape)
        if request.status is not None:
            return None
        mode = MODES[self._columns.mode.data.item(row)]
        demand = demand_on(request, mode)
        if demand.problem or (demand.numa is NUMAPolicy.NONE and request.designated is None):
            return None
        mask = self._mask(shape, demand, mode, row)
        return None if isinstance(mask, Status) else mask

    def allocate(
        self, shape: PodShape, demand: Demand, mode: Mode, row: int, reserved: Reserved | None = None
    ) -> Allocation | Status | None:
        """What a pod gets on a row; None: nothing is to be given there."""
        if demand.problem:
            return Status(Code.UNRESOLVABLE, (demand.problem,))
        if demand.binds is None and demand.numa is NUMAPolicy.NONE:
            return None
        mask = self._mask(shape, demand, mode, row)
        if isinstance(mask, Status):
            return mask
        if demand.binds is not None and not mode.cpus:
            return Status(Code.ERROR, (INVALID_TOPOLOGY,))
        whole = self._columns.allocation.among(reserved.facts) if reserved is not None else None
        found = self._allocator.allocate(
            self._compiled.wanted(shape), demand, row, mask, self._strategy_on(row), whole.cpus if whole else 0
        )
        if isinstance(found, Status):
            return found
        if reserved is not None and reserved.entire and whole and whole.cpus & ~found.cpus:
            return Status(Code.UNSCHEDULABLE, (NOT_ENOUGH_CPUS,))
        if demand.numa is NUMAPolicy.BEST_EFFORT:
            # Other policies asked the others before they decided for these NUMA nodes.
            code = self._alignment.refusal_by_others(shape, self._table, row, mask)
            if code != PASS:
                return Status(self._reasons[code].code, self._reasons[code].texts)
        return found

    def _mask(self, shape: PodShape, demand: Demand, mode: Mode, row: int) -> int | Status:
        """The NUMA nodes that the pod is to use on a row."""
        designated = demand.request.designated
        if designated is not None:
            mask = sum(1 << numa.node for numa in designated.numa)
            count = self._columns.zone_count.data.item(row)
            return mask if mask < 1 << count else Status(Code.UNRESOLVABLE, (NO_ZONES,))
        if demand.numa is NUMAPolicy.NONE:
            return NO_AFFINITY
        if not mode.zones:
            return Status(Code.UNRESOLVABLE, (NO_ZONES,))
        count = self._columns.zone_count.data.item(row)
        if demand.numa is NUMAPolicy.BEST_EFFORT:
            return self._best_effort(shape, demand, row, count)
        aligned = self._alignment.of(shape, self._table, demand, np.array((row,), dtype=np.intp), count)
        code = aligned.codes.item(0)
        if code != PASS:
            return Status(self._reasons[code].code, self._reasons[code].texts)
        return int(aligned.masks.item(0))

    def _best_effort(self, shape: PodShape, demand: Demand, row: int, count: int) -> int | Status:
        """The NUMA nodes by a policy that admits every pod, if other plugins can serve it there."""
        code = self._alignment.refusal_by_others(shape, self._table, row, None)
        if code == PASS:
            return self._alignment.best_effort(shape, self._table, demand, row, count)
        return Status(self._reasons[code].code, self._reasons[code].texts)
