"""What a pod gets on the node that was chosen: amounts of NUMA nodes, and CPUs, one by one.

Source: nodenumaresource spec 3.4 to 3.6.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.status import Code, Status
from koordsched.plugins.nodenumaresource import cpuset
from koordsched.plugins.nodenumaresource.alignment import numa_nodes
from koordsched.plugins.nodenumaresource.allocation import Allocation, NUMAAmounts
from koordsched.plugins.nodenumaresource.columns import Layout, NUMAColumns
from koordsched.plugins.nodenumaresource.cpupick import Taken, take
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
        """`mask`: the NUMA nodes to be used, 0 for any."""
        amounts = self._amounts(wanted, demand, row, mask) if mask else ()
        if isinstance(amounts, Status):
            return amounts
        if demand.binds is None:
            return Allocation(0, amounts)
        cpus = self._cpus(demand, row, amounts, strategy)
        return cpus if isinstance(cpus, Status) else Allocation(cpuset.of(cpus), amounts)

    def _amounts(self, wanted: Wanted, demand: Demand, row: int, mask: int) -> tuple[NUMAAmounts, ...] | Status:
        rows = np.array([row], dtype=np.intp)
        supply = self._numa.supply(wanted, demand, rows, self._columns.zone_count.data.item(row))
        members = np.array([numa_nodes(mask)], dtype=np.intp)
        parts = self._numa.split(wanted, demand, supply.available, rows, members)
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
        cpus: list[int] = []
        for node, of_node in amounts:
            there = available & topology.node_cpus.get(node, 0)
            wanted = min(there.bit_count(), dict(of_node).get("cpu", 0) // 1000)
            cpus += take(topology, there, wanted, policy, exclusive, strategy, taken)
        if amounts and len(cpus) != count:
            return Status(Code.UNSCHEDULABLE, (NOT_ENOUGH_CPUS,))
        if not amounts:
            cpus = take(topology, available, count, policy, exclusive, strategy, taken)
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
