"""What a pod gets on the node that was chosen: amounts of NUMA nodes, and CPUs, one by one.

Source: nodenumaresource spec 3.4 to 3.6.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.status import Code, Status
from koordsched.plugins.nodenumaresource.alignment import numa_nodes
from koordsched.plugins.nodenumaresource.allocation import Allocation, NUMAAmounts
from koordsched.plugins.nodenumaresource.columns import Layout, NUMAColumns
from koordsched.plugins.nodenumaresource.cpupick import Taken, take_preferring
from koordsched.plugins.nodenumaresource.demand import Demand
from koordsched.plugins.nodenumaresource.hints import NUMASupply, Wanted
from koordsched.plugins.nodenumaresource.podrequest import exclusive_policy_of
from koordsched.plugins.nodenumaresource.policies import AllocateStrategy, ExclusivePolicy
from koordsched.plugins.nodenumaresource.reasons import NOT_ENOUGH_CPUS
from koordsched.plugins.nodenumaresource.supply import order_of
from koordsched.plugins.shared import cpuset


class Allocator:
    """Works out allocations; changes nothing."""

    def __init__(self, cluster: ClusterState, numa: NUMASupply) -> None:
        self._cluster = cluster
        self._numa = numa
        self._columns: NUMAColumns = numa.columns

    def allocate(
        self, wanted: Wanted, demand: Demand, row: int, mask: int, strategy: AllocateStrategy, preferred: int = 0
    ) -> Allocation | Status:
        """`mask`: the NUMA nodes to be used, 0 for any; `preferred`: bit set of the CPUs that come first.

        A pod with a designated allocation gets its amounts from these NUMA nodes, as far as they are left there, and
        exactly its CPUs, if they are free (upstream does not look whether others hold them: nodenumaresource spec 6.5).
        """
        amounts = self._amounts(wanted, demand, row, mask) if mask else ()
        if isinstance(amounts, Status):
            return amounts
        cpus = self._cpus(demand, row, amounts, strategy, preferred) if demand.binds is not None else []
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
        """As `supply.split`, for one row and one set of NUMA nodes, in plain numbers."""
        columns, nodes = self._columns, numa_nodes(mask)
        supply = self._numa.supply_on(wanted, demand, row)
        left = supply.available
        if demand.request.designated is not None:
            left = _no_more(left, wanted, demand.request.designated)
        layout = columns.layout(row)
        cores = layout.topology.cpus_per_core if layout is not None and self._numa.whole_cores(demand) else 1
        found: dict[int, list[tuple[str, int]]] = {}
        short = []
        for at in sorted(range(wanted.asked), key=wanted.names.__getitem__):
            name, rest = wanted.names[at], wanted.requested[at]
            falls = sum(1 << i for i in range(len(nodes) - 1) if left[at][i + 1] < left[at][i])
            for turn, place in enumerate(order_of(len(nodes), falls)):
                share = rest // (len(nodes) - turn)
                if name == "cpu" and demand.binds is not None:
                    share = -(-rest // 1000) // cores // (len(nodes) - turn) * cores * 1000
                amount = min(left[at][nodes[place]], share)
                if amount:
                    found.setdefault(nodes[place], []).append((name, amount))
                    rest -= amount
            if rest and supply.has(at):
                short.append(f"Insufficient NUMA {name}")
        if short:
            return Status(Code.UNSCHEDULABLE, tuple(short))
        return tuple(NUMAAmounts(node, tuple(found[node])) for node in sorted(found))

    def _cpus(
        self, demand: Demand, row: int, amounts: tuple[NUMAAmounts, ...], strategy: AllocateStrategy, preferred: int
    ) -> list[int] | Status:
        layout = self._columns.layout(row)
        assert layout is not None, "filtered by that"
        assert demand.binds is not None, "asked for"
        topology, policy = layout.topology, demand.binds
        available = self._columns.free(row, layout)
        available = layout.agreeing(available, demand.cap)
        count = demand.request.cpus
        if available.bit_count() < count:
            return Status(Code.UNSCHEDULABLE, (NOT_ENOUGH_CPUS,))
        exclusive, taken = demand.request.exclusive, self._taken(row, layout)
        if demand.request.designated is not None:
            preferred = demand.request.designated.cpus
        cpus: list[int] = []
        for node, of_node in amounts:
            there = available & topology.node_cpus.get(node, 0)
            wanted = min(there.bit_count(), dict(of_node).get("cpu", 0) // 1000)
            cpus += take_preferring(topology, there, wanted, policy, exclusive, strategy, taken, preferred)
        if amounts and len(cpus) != count:
            return Status(Code.UNSCHEDULABLE, (NOT_ENOUGH_CPUS,))
        if not amounts:
            cpus = take_preferring(topology, available, count, policy, exclusive, strategy, taken, preferred)
        given = cpuset.of(cpus)
        if layout.agreeing(given, demand.cap) != given:
            reason = f"insufficient CPUs to satisfy required cpu bind policy {policy.value}"
            return Status(Code.UNSCHEDULABLE, (reason,))
        return cpus

    def _taken(self, row: int, layout: Layout) -> Taken:
        """What the pods on a row hold, with the CPUs that they would rather not share; pods that a what-if takes away
        hold none."""
        levels = {ExclusivePolicy.PCPU_LEVEL: 0, ExclusivePolicy.NUMA_NODE_LEVEL: 0}
        fact = self._columns.allocation
        for pod in self._cluster.pods_on(row).values():
            given = fact.of(pod) if pod.facts else None
            if given is not None and given.cpus:
                policy = _exclusive(pod)
                if policy in levels:
                    levels[policy] |= given.cpus
        held = self._columns.held(row)
        return Taken(
            held & layout.topology.cpus,
            levels[ExclusivePolicy.PCPU_LEVEL] & held,
            levels[ExclusivePolicy.NUMA_NODE_LEVEL] & held,
        )


def _no_more(left: list[list[int]], wanted: Wanted, designated: Allocation) -> list[list[int]]:
    """What is left of each resource on each NUMA node, but no more than is designated."""
    most = {node: dict(amounts) for node, amounts in designated.numa}
    return [
        [min(amount, most.get(node, {}).get(name, 0)) for node, amount in enumerate(amounts)]
        for name, amounts in zip(wanted.names, left, strict=True)
    ]


def _exclusive(pod: Pod) -> ExclusivePolicy:
    return pod.shape.compiled(exclusive_policy_of, exclusive_policy_of)
