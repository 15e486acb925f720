"""How full a whole node would be, with exclusive CPUs counted as amplified.

Source: nodenumaresource spec 3.7.
"""

from __future__ import annotations

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.resources import CPU
from koordsched.cluster.shape import PodShape
from koordsched.framework.topologyhints import Amounts
from koordsched.plugins.nodenumaresource.columns import NUMAColumns
from koordsched.plugins.nodenumaresource.demand import Demand
from koordsched.plugins.nodenumaresource.hints import NUMASupply
from koordsched.plugins.nodenumaresource.scoring import AllocationScore, Weighed
from koordsched.plugins.nodenumaresource.supply import amplified


class NodeScores:
    """Rates rows where no NUMA nodes are chosen."""

    def __init__(self, table: NodeTable, columns: NUMAColumns, numa: NUMASupply, score: AllocationScore) -> None:
        self._table = table
        self._columns = columns
        self._numa = numa
        self._score = score

    def of(self, shape: PodShape, demand: Demand, table: NodeTable, rows: RowArray, *, allocated: bool) -> Amounts:
        """The scores of rows by what the whole node has. `allocated`: CPUs that pods hold are all the CPU in use, where
        the pod gets some, as upstream counts when it has tried to allocate."""
        columns = self._columns
        if len(rows) == 1 and columns.ratio.data.item(rows[0]) <= 1:
            row = int(rows[0])
            in_use = columns.held(row).bit_count() * 1000 if allocated and demand.binds is not None else -1
            return np.array((self._of_one(shape, demand, table, row, in_use),), dtype=np.int64)
        resources = []
        ratios = columns.ratio.data[rows]
        for weighed, index in shape.compiled(self, self._weighed):
            used = table.requested[index].data[rows]
            if index == CPU and demand.request.cpu:
                if allocated and demand.binds is not None:
                    used = amplified(columns.bound_in_all(rows) * 1000, ratios)
                elif not allocated and (ratios > 1).any():
                    bound = columns.bound_in_all(rows) * 1000
                    used = used - bound + amplified(bound, ratios)
            used = used + self._numa.request_on(demand, rows, weighed)
            resources.append((weighed, used, table.allocatable[index].data[rows]))
        found = np.zeros(len(rows), dtype=np.int64)
        found += self._score.mean(resources)
        return found

    def _of_one(self, shape: PodShape, demand: Demand, table: NodeTable, row: int, in_use: int) -> int:
        """The same for one row whose CPU is not amplified; `in_use`: all the milli-CPU in use, -1 for what is
        requested."""
        resources = []
        for weighed, index in shape.compiled(self, self._weighed):
            used = table.requested[index].data.item(row)
            if index == CPU and in_use >= 0 and demand.request.cpu:
                used = in_use
            resources.append((weighed, used + weighed.request, table.allocatable[index].data.item(row)))
        return self._score.mean_of_one(resources)

    def _weighed(self, shape: PodShape) -> list[tuple[Weighed, int]]:
        """What is scored for the pods of a shape, with the indexes of its columns."""
        names = self._table.resource_names
        requests = {names.names[index]: amount for index, amount in shape.requests.amounts}
        found = []
        for weighed in self._score.weighed(requests):
            index = names.intern(weighed.resource)
            self._table.ensure_resource(index)
            found.append((weighed, index))
        return found
