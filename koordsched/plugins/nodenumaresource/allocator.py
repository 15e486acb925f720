"""What a pod gets on the node that was chosen: amounts of NUMA nodes, and CPUs, one by one.

Source: nodenumaresource spec 3.4 to 3.6.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.status import Code, Status
from koordsched.framework.topologyhints import Amounts
from koordsched.plugins.nodenumaresource import cpuset
from koordsched.plugins.nodenumaresource.alignment import numa_nodes
from koordsched.plugins.nodenumaresource.allocation import Allocation, NUMAAmounts
from koordsched.plugins.nodenumaresource.columns import Layout, NUMAColumns
from koordsched.plugins.nodenumaresource.cpupick import Taken, take_preferring
from koordsched.plugins.nodenumaresource.demand import Demand
from koordsched.plugins.nodenumaresource.hints import NOT_ENOUGH_CPUS, NUMASupply, Wanted
from koordsched.plugins.nodenumaresource.podrequest import exclusive_policy_of
from koordsched.plugins.nodenumaresource.policies import AllocateStrategy, BindPolicy, ExclusivePolicy


class Given(NamedTuple):
    """What Reserve decided: the allocation, perhaps of nothing, and what was wanted."""

    allocation: Allocation
    demand: Demand


class Allocator:
    """Works out allocations; changes nothing."""

    def __init__(self, cluster: ClusterState, numa: NUMASupply) -> None:
        self._cluster = cluster
        self._numa = numa
        self._columns: NUMAColumns = numa.columns

    def allocate(
        self, wanted: Wanted, demand: Demand, row: int, mask: int, strategy: AllocateStrategy
    ) -> Allocation | Status:
        """`mask`: the NUMA nodes to be used, 0 for any.

        A pod with a designated allocation gets its amounts from these NUMA nodes, as far as they are left there, and
        exactly its CPUs, if they are free (upstream does not look whether others hold them: nodenumaresource spec 6.5).
        """
        amounts = self._amounts(wanted, demand, row, mask) if mask else ()
        if isinstance(amounts, Status):
            return amounts
        cpus = self._cpus(demand, row, amounts, strategy) if demand.binds is not None else []
        if isinstance(cpus, Status):
            return cpus
        allocation = Allocation(cpuset.of(cpus), amounts)
        designated = demand.request.designated
        if designated is not None and designated.cpus != allocation.cpus:
            return Status(Code.UNSCHEDULABLE, (NOT_ENOUGH_CPUS,))
        return allocation

    def is_free(self, designated: Allocation, rows: RowArray) -> npt.NDArray[np.bool_]:
        """bool[rows]: where no pod holds any of the CPUs."""
        holders, cpus = self._columns.holders.data, cpuset.ids(designated.cpus)
        counted = [cpu for cpu in cpus if cpu < holders.shape[1]]
        free: npt.NDArray[np.bool_] = (holders[rows][:, counted] == 0).all(axis=1)
        return free

    def _amounts(self, wanted: Wanted, demand: Demand, row: int, mask: int) -> tuple[NUMAAmounts, ...] | Status:
        rows = np.array([row], dtype=np.intp)
        supply = self._numa.supply(wanted, demand, rows, self._columns.zone_count.data.item(row))
        members = np.array([numa_nodes(mask)], dtype=np.intp)
        available = supply.available
        if demand.request.designated is not None:
            available = np.minimum(available, self._designated(wanted, demand.request.designated, available))
        parts = self._numa.split(wanted, demand, available, rows, members)
        has = supply.present[0].any(axis=1)
        missing = parts.rest[0, :, 0]
        short = [name for at, name in enumerate(wanted.names[: wanted.asked]) if has[at] and missing[at]]
        if short:
            return Status(Code.UNSCHEDULABLE, tuple(f"Insufficient NUMA {name}" for name in sorted(short)))
        found: dict[int, list[tuple[str, int]]] = {}
        for at in sorted(range(wanted.asked), key=wanted.names.__getitem__):
            nodes, given = parts.nodes[0, at, :, 0].tolist(), parts.given[0, at, :, 0].tolist()
            for node, amount in zip(nodes, given, strict=True):
                if amount:
                    found.setdefault(node, []).append((wanted.names[at], amount))
        return tuple(NUMAAmounts(node, tuple(found[node])) for node in sorted(found))

    @staticmethod
    def _designated(wanted: Wanted, designated: Allocation, like: Amounts) -> Amounts:
        amounts = np.zeros_like(like)
        for node, of_node in designated.numa:
            for name, amount in of_node:
                if name in wanted.names and node < amounts.shape[2]:
                    amounts[0, wanted.names.index(name), node] = amount
        return amounts

    def _cpus(
        self, demand: Demand, row: int, amounts: tuple[NUMAAmounts, ...], strategy: AllocateStrategy
    ) -> list[int] | Status:
        layout = self._columns.layout(row)
        assert layout is not None, "filtered by that"
        assert demand.binds is not None, "asked for"
        topology, policy = layout.topology, demand.binds
        available = self._columns.free(row, layout)
        if demand.required and policy is BindPolicy.FULL_PCPUS:
            available = topology.full_cores(available)
        elif demand.required:
            available = topology.one_per_core(available)
        count = demand.request.cpus
        if available.bit_count() < count:
            return Status(Code.UNSCHEDULABLE, (NOT_ENOUGH_CPUS,))
        exclusive, taken = demand.request.exclusive, self._taken(row, layout)
        designated = demand.request.designated
        preferred = designated.cpus if designated is not None else 0
        cpus: list[int] = []
        for node, of_node in amounts:
            there = available & topology.node_cpus.get(node, 0)
            wanted = min(there.bit_count(), dict(of_node).get("cpu", 0) // 1000)
            cpus += take_preferring(topology, there, wanted, policy, exclusive, strategy, taken, preferred)
        if amounts and len(cpus) != count:
            return Status(Code.UNSCHEDULABLE, (NOT_ENOUGH_CPUS,))
        if not amounts:
            cpus = take_preferring(topology, available, count, policy, exclusive, strategy, taken, preferred)
        if demand.required and not _keeps(policy, layout, cpuset.of(cpus)):
            reason = f"insufficient CPUs to satisfy required cpu bind policy {policy.value}"
            return Status(Code.UNSCHEDULABLE, (reason,))
        return cpus

    def _taken(self, row: int, layout: Layout) -> Taken:
        """What the pods on a row hold, with the CPUs that they would rather not share."""
        levels = {ExclusivePolicy.PCPU_LEVEL: 0, ExclusivePolicy.NUMA_NODE_LEVEL: 0}
        fact = self._columns.allocation
        for pod in self._cluster.pods_on(row).values():
            given = fact.of(pod) if pod.facts else None
            if given is not None and given.cpus:
                policy = _exclusive(pod)
                if policy in levels:
                    levels[policy] |= given.cpus
        return Taken(
            self._columns.held(row) & layout.topology.cpus,
            levels[ExclusivePolicy.PCPU_LEVEL],
            levels[ExclusivePolicy.NUMA_NODE_LEVEL],
        )


def _exclusive(pod: Pod) -> ExclusivePolicy:
    return pod.shape.compiled(exclusive_policy_of, exclusive_policy_of)


def _keeps(policy: BindPolicy, layout: Layout, cpus: int) -> bool:
    """Whether CPUs are whole cores, or one of each core."""
    if policy is BindPolicy.FULL_PCPUS:
        return layout.topology.full_cores(cpus) == cpus
    return layout.topology.one_per_core(cpus) == cpus
