"""The hints of this plugin, and its verdict on a choice of NUMA nodes (nodenumaresource spec 3.3)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import Facet, RowArray
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.shape import PodShape
from koordsched.framework.status import Codes
from koordsched.framework.topologyhints import Amounts, Flags, NUMAPolicy, ResourceHints, Subsets
from koordsched.plugins.nodenumaresource.allocation import MAX_NUMA_NODES
from koordsched.plugins.nodenumaresource.columns import ABSENT, CPU, MODES, NUMAColumns
from koordsched.plugins.nodenumaresource.demand import Demand, demand_on
from koordsched.plugins.nodenumaresource.nodes import NUMA_CHANGED
from koordsched.plugins.nodenumaresource.podrequest import PodRequest, pod_request
from koordsched.plugins.nodenumaresource.policies import BindPolicy
from koordsched.plugins.nodenumaresource.scoring import AllocationScore, Weighed
from koordsched.plugins.nodenumaresource.supply import Split, Supply, amplified, split, supply_of
from koordsched.plugins.nodenumaresource.topologyoptions import amplify


class Wanted(NamedTuple):
    """What of a request NUMA nodes may be asked for. `resources`: indexes of columns, CPU first, then those requested,
    then those that are only scored; `names` and `requested` go with them; `asked`: how many are requested or CPU.
    `scored`: positions in `resources`, with what is scored there.
    """

    resources: tuple[int, ...]
    names: tuple[str, ...]
    requested: tuple[int, ...]
    asked: int
    scored: tuple[tuple[int, Weighed], ...]
    known: int
    """How many resources there were when this was worked out."""


class RowSupply(NamedTuple):
    """What the NUMA nodes of one row have, by resource and NUMA node; as `Supply`, ABSENT in `capacity` for what a NUMA
    node does not have. `usable` is empty if CPUs were not counted.
    """

    capacity: list[list[int]]
    available: list[list[int]]
    used: list[list[int]]
    usable: list[int]

    def has(self, at: int) -> bool:
        """Whether any NUMA node has the resource."""
        return any(amount != ABSENT for amount in self.capacity[at])


class NUMASupply:
    """Evaluates NUMA nodes for the pods of a shape. `score` rates them."""

    def __init__(self, columns: NUMAColumns, score: AllocationScore) -> None:
        self.columns = columns
        self._score = score

    def wanted(self, request: PodRequest) -> Wanted:
        """The resources that matter to a pod, as far as any NUMA node has them."""
        columns = self.columns
        requests = dict(request.requests)
        asked = ["cpu", *sorted(name for name in requests if name != "cpu" and columns.resource(name) >= 0)]
        weighed = [each for each in self._score.weighed(requests) if columns.resource(each.resource) >= 0]
        names = [*asked, *(each.resource for each in weighed if each.resource not in asked)]
        return Wanted(
            tuple(map(columns.resource, names)),
            tuple(names),
            tuple(requests.get(name, 0) for name in names),
            len(asked),
            tuple((names.index(each.resource), each) for each in weighed),
            len(columns.resources),
        )

    def supply(self, wanted: Wanted, demand: Demand, rows: RowArray, count: int) -> Supply:
        """What the NUMA nodes of some rows have for a pod."""
        binds = demand.binds is not None
        return supply_of(self.columns, rows, count, wanted.resources, cap=demand.cap, count_cpus=binds)

    def supply_on(self, wanted: Wanted, demand: Demand, row: int) -> RowSupply:
        """As `supply`, for one row in plain numbers."""
        columns = self.columns
        count, ratio = columns.zone_count.data.item(row), columns.ratio.data.item(row)
        zones, given = columns.zones.data[row].tolist(), columns.used.data[row].tolist()
        capacity, used, available = [], [], []
        for resource in wanted.resources:
            start = resource * MAX_NUMA_NODES
            there, taken = zones[start : start + count], given[start : start + count]
            if resource == CPU and ratio > 1:
                bound = columns.bound(np.array([row], dtype=np.intp))[0].tolist()
                for node in range(count):
                    if any(given[node::MAX_NUMA_NODES]):
                        taken[node] += amplify(bound[node] * 1000, ratio) - bound[node] * 1000
            capacity.append(there)
            used.append(taken)
            available.append([max(0, amount - max(0, less)) for amount, less in zip(there, taken, strict=True)])
        usable: list[int] = []
        if demand.binds is not None or demand.cap is not BindPolicy.NONE:
            usable = columns.usable(np.array([row], dtype=np.intp), demand.cap)[0].tolist()
        if demand.cap is not BindPolicy.NONE:
            available[CPU] = [min(amount, usable[node] * 1000) for node, amount in enumerate(available[CPU])]
        return RowSupply(capacity, available, used, usable)

    def request_on_row(self, demand: Demand, row: int, weighed: Weighed) -> int:
        """As `request_on`, for one row."""
        if weighed.resource == "cpu" and demand.binds is not None:
            return amplify(weighed.request, self.columns.ratio.data.item(row))
        return weighed.request

    def split(
        self, wanted: Wanted, demand: Demand, available: Amounts, rows: RowArray, members: npt.NDArray[np.intp]
    ) -> Split:
        """How the request is split among the NUMA nodes of subsets of one size."""
        return split(
            available[:, : wanted.asked],
            wanted.requested[: wanted.asked],
            members,
            whole=demand.binds is not None,
            cores=self.columns.cpus_per_core(rows) if self.whole_cores(demand) else None,
        )

    @staticmethod
    def whole_cores(demand: Demand) -> bool:
        """Whether the pod must have whole cores."""
        return demand.required and demand.binds is BindPolicy.FULL_PCPUS

    def hints(self, wanted: Wanted, demand: Demand, rows: RowArray, subsets: Subsets) -> list[ResourceHints]:
        """The hints for all requested resources that some NUMA node of the row has."""
        supply = self.supply(wanted, demand, rows, subsets.count)
        asked = [at for at in range(wanted.asked) if wanted.requested[at]]
        has = np.asarray(supply.present.any(axis=2))
        fits: Flags = np.ones((len(rows), len(subsets)), dtype=np.bool_)
        for of_size, members in subsets.by_size:
            parts = self.split(wanted, demand, supply.available, rows, members)
            for at in asked:
                fits[:, of_size] &= (parts.rest[:, at] == 0) | ~has[:, at, None]
            if demand.binds is not None:
                fits[:, of_size] &= self._cpus_fit(demand, supply, parts, rows)
        lacking = (supply.available == 0) @ subsets.members.T
        score = self._scores(wanted, demand, supply, rows, subsets)
        found = []
        for at in asked:
            if not has[:, at].any():
                continue
            possible = fits & ~lacking[:, at] & has[:, at, None]
            if demand.numa is NUMAPolicy.RESTRICTED:
                preferred = possible
            else:
                sizes = np.where(possible, subsets.sizes, subsets.count)
                preferred = possible & (subsets.sizes == sizes.min(axis=1, initial=subsets.count)[:, None])
            found.append(ResourceHints(wanted.names[at], has[:, at], possible, preferred, score))
        return found

    def _cpus_fit(self, demand: Demand, supply: Supply, parts: Split, rows: RowArray) -> Flags:
        """bool[rows, subsets]: where as many CPUs as are wanted can be given on the NUMA nodes that give CPU."""
        assert supply.usable is not None, "the pod gets CPUs of its own"
        nodes, count = parts.nodes[:, CPU], demand.request.cpus
        there = np.take_along_axis(supply.usable, nodes.reshape(len(nodes), -1), axis=1).reshape(nodes.shape)
        taken = np.minimum(there, parts.given[:, CPU] // 1000)
        fits: Flags = taken.sum(axis=1) == count
        if self.whole_cores(demand):
            fits &= (taken % self.columns.cpus_per_core(rows)[:, None, None] == 0).all(axis=1)
        return fits

    def _scores(self, wanted: Wanted, demand: Demand, supply: Supply, rows: RowArray, subsets: Subsets) -> Amounts:
        """int64[rows, subsets]."""
        members = subsets.members.T.astype(np.int64)
        resources = []
        for at, weighed in wanted.scored:
            capacity = supply.capacity[:, at] @ members
            used = capacity - supply.available[:, at] @ members
            resources.append((weighed, used + self.request_on(demand, rows, weighed)[:, None], capacity))
        found = np.zeros((len(rows), len(subsets)), dtype=np.int64)
        found += self._score.mean(resources)
        return found

    def score_on(self, wanted: Wanted, demand: Demand, supply: RowSupply, row: int, node: int) -> int:
        """The score of the hint for one NUMA node of one row."""
        resources = []
        for at, weighed in wanted.scored:
            capacity = max(0, supply.capacity[at][node])
            used = capacity - supply.available[at][node] + self.request_on_row(demand, row, weighed)
            resources.append((weighed, used, capacity))
        return self._score.mean_of_one(resources)

    def request_on(self, demand: Demand, rows: RowArray, weighed: Weighed) -> Amounts:
        """int64[rows]: what a pod requests, CPUs of its own as much as they are worth there."""
        request = np.full(len(rows), weighed.request, dtype=np.int64)
        if weighed.resource == "cpu" and demand.binds is not None:
            return amplified(request, self.columns.ratio.data[rows])
        return request


class CompiledRequests:
    """What is worked out once per shape."""

    def __init__(self, numa: NUMASupply, names: list[str], default: BindPolicy) -> None:
        """`names`: of all resources, by index of the node table; `default`: for pods that state no policy."""
        self._numa = numa
        self._names = names
        self._default = default
        self._requests = object()

    def request(self, shape: PodShape) -> PodRequest:
        """What the pods of a shape ask for."""
        return shape.compiled(self, self._compile)

    def wanted(self, shape: PodShape) -> Wanted:
        """What of it NUMA nodes may be asked for."""
        found = shape.compiled(self._requests, lambda _: [self._numa.wanted(self.request(shape))])
        if found[0].known != len(self._numa.columns.resources):
            found[0] = self._numa.wanted(self.request(shape))
        return found[0]

    def _compile(self, shape: PodShape) -> PodRequest:
        return pod_request(shape, self._names, self._default)


class NUMAHintProvider:
    """The hints of NodeNUMAResource for the topology manager."""

    changed = NUMA_CHANGED

    def __init__(self, numa: NUMASupply, compiled: CompiledRequests, not_enough_cpus: int) -> None:
        """`not_enough_cpus`: number of the reason."""
        self._numa = numa
        self._compiled = compiled
        self._not_enough_cpus = not_enough_cpus

    @property
    def facets(self) -> int:
        """See TopologyHintProvider."""
        return self._numa.columns.facets | Facet.RESOURCES

    def concerns(self, shape: PodShape) -> bool:
        """See TopologyHintProvider: every pod is given CPU and memory of NUMA nodes."""
        return True

    def infeasible(self, shape: PodShape, table: NodeTable, rows: RowArray) -> Codes | None:
        """See TopologyHintProvider."""
        return None

    def key(self, shape: PodShape, table: NodeTable, rows: RowArray) -> Amounts:
        """See TopologyHintProvider. CPUs count by their number: which ones they are matters to none of the answers."""
        columns, demand = self._numa.columns, self._demand(shape, rows)
        zones, ratios = columns.zones.data, columns.ratio.data[rows]
        width = zones.shape[1]
        keys = np.zeros((len(rows), 2 * width + 2 * MAX_NUMA_NODES + 5), dtype=np.int64)
        keys[:, :width] = zones[rows]
        keys[:, width : 2 * width] = columns.used.data[rows]
        rest = keys[:, 2 * width :]
        rest[:, -1] = columns.mode.data[rows]
        rest[:, -2] = columns.zone_count.data[rows]
        rest[:, -3] = ratios.view(np.int64)
        if demand.binds is not None or demand.cap is not BindPolicy.NONE:
            rest[:, :MAX_NUMA_NODES] = columns.usable(rows, demand.cap)
            rest[:, -4] = columns.cpus_per_core(rows)
            rest[:, -5] = columns.bound_in_all(rows)
        if (len(rows) == 1 and ratios.item(0) > 1) or (len(rows) > 1 and (ratios > 1).any()):
            rest[:, MAX_NUMA_NODES : 2 * MAX_NUMA_NODES] = columns.bound(rows)
        return keys

    def hints(
        self, shape: PodShape, table: NodeTable, rows: RowArray, subsets: Subsets, policy: NUMAPolicy
    ) -> list[ResourceHints]:
        """See TopologyHintProvider. All rows are of one mode."""
        return self._numa.hints(self._compiled.wanted(shape), self._demand(shape, rows), rows, subsets)

    def refused(self, shape: PodShape, table: NodeTable, rows: RowArray, masks: Amounts) -> Codes | None:
        """See TopologyHintProvider. NUMA nodes that were chosen can serve the pod; any may have too few CPUs."""
        demand = self._demand(shape, rows)
        if demand.binds is None:
            return None
        short = self._numa.columns.usable_in_all(rows, demand.cap) < demand.request.cpus
        return short * np.int32(self._not_enough_cpus) if short.any() else None

    def _demand(self, shape: PodShape, rows: RowArray) -> Demand:
        mode = MODES[self._numa.columns.mode.data.item(rows[0])]
        return demand_on(self._compiled.request(shape), mode)
