"""Which CPUs a pod gets on a node: the same, one by one, as upstream's accumulator takes (nodenumaresource spec 3.5).

Each step of the search looks for CPUs close to each other, and the next one settles for less:

* whole cores of one NUMA node, then of one socket, then of several sockets (`_take_full_cores`);
* single CPUs of one NUMA node, then of one socket (`_take_from_one`);
* any CPUs (`_take_anywhere`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from koordsched.plugins.nodenumaresource.policies import AllocateStrategy, BindPolicy, ExclusivePolicy
from koordsched.plugins.nodenumaresource.topology import CPUTopology
from koordsched.plugins.shared import cpuset

Spread = Callable[[list[int]], list[int]]


@dataclass(frozen=True, slots=True)
class Taken:
    """What pods hold of a node's CPUs, apart from what is given back to the pod that CPUs are picked for."""

    allocated: int = 0
    """CPUs that any pod holds."""
    pcpu_level: int = 0
    """CPUs whose last pod has the exclusive policy PCPULevel."""
    numa_node_level: int = 0
    """CPUs whose last pod has the exclusive policy NUMANodeLevel."""
    holders: Mapping[int, int] = field(default_factory=dict)
    """How many pods hold a CPU, by its id: only where CPUs may have more than one."""


NOTHING_TAKEN = Taken()


def take(
    topology: CPUTopology,
    available: int,
    count: int,
    bind: BindPolicy,
    exclusive: ExclusivePolicy,
    strategy: AllocateStrategy,
    taken: Taken = NOTHING_TAKEN,
) -> list[int]:
    """The ids of `count` CPUs of those available, in the order in which they are picked; none if there are fewer."""
    available &= topology.cpus
    if count <= 0 or available.bit_count() < count:
        return []
    return _Pick(topology, available, count, exclusive, strategy, taken).made(bind)


def take_preferring(
    topology: CPUTopology,
    available: int,
    count: int,
    bind: BindPolicy,
    exclusive: ExclusivePolicy,
    strategy: AllocateStrategy,
    taken: Taken = NOTHING_TAKEN,
    preferred: int = 0,
) -> list[int]:
    """As `take`, but as many as possible of the preferred CPUs (those reserved for the pod), then the rest of others.

    The two picks do not know each other: neither locality nor exclusive policies look from one to the other.
    """
    available &= topology.cpus
    if available.bit_count() < count:
        return []
    preferred &= available
    first = min(count, preferred.bit_count())
    picked = take(topology, preferred, first, bind, exclusive, strategy, taken)
    return picked + take(topology, available & ~preferred, count - first, bind, exclusive, strategy, taken)


class _Pick:
    """A search that goes on until no CPU is missing."""

    __slots__ = ("exclusive", "free", "missing", "picked", "sign", "taken", "topology")

    def __init__(
        self,
        topology: CPUTopology,
        available: int,
        count: int,
        exclusive: ExclusivePolicy,
        strategy: AllocateStrategy,
        taken: Taken,
    ) -> None:
        self.topology = topology
        self.free = available
        self.missing = count
        self.exclusive = exclusive
        self.sign = 1 if strategy is AllocateStrategy.MOST_ALLOCATED else -1
        """What numbers of CPUs are multiplied with, so that the smallest comes first."""
        self.taken = taken
        self.picked: list[int] = []

    def made(self, bind: BindPolicy) -> list[int]:
        """The CPUs."""
        full = bind is BindPolicy.FULL_PCPUS
        if full or self.topology.cpus_per_core == 1:
            self._take_full_cores()
        if self.missing and not full:
            self._take_from_one()
        if self.missing:
            self._take_anywhere()
        return self.picked

    def _pick(self, cpus: list[int]) -> None:
        """Takes CPUs, in this order, until none is missing.

        Upstream may take a core too many where it takes whole cores of several sockets, and gives the pod more CPUs
        than it asked for (spec 6.4). Here the pick ends with the CPU that completes it; those before it are the same.
        """
        cpus = cpus[: self.missing]
        self.picked += cpus
        self.missing -= len(cpus)
        if self.missing:
            self.free &= ~cpuset.of(cpus)

    def _take_full_cores(self) -> None:
        topology, needed = self.topology, self.missing
        if needed <= topology.cpus_per_node:
            shared = self._numa_node_conflicts()
            for free in (self.free & ~shared, self.free) if shared else (self.free,):
                full = topology.full_cores(free)
                choices = [
                    (self.sign * size, self.sign * (free & node.socket_cpus).bit_count(), node.id, full & node.cpus)
                    for node in topology.nodes
                    if (size := (full & node.cpus).bit_count()) >= needed
                ]
                if choices:
                    self._pick(self._by_core(cpuset.ids(min(choices)[-1])))
                    return
        full = topology.full_cores(self.free)
        sockets = [
            (size, socket, full & cpus)
            for socket, cpus in topology.sockets.items()
            if (size := (full & cpus).bit_count())
        ]
        if needed <= topology.cpus_per_socket:
            fitting = [(self.sign * size, socket, cpus) for size, socket, cpus in sockets if size >= needed]
            if fitting:
                self._pick(self._by_core(cpuset.ids(min(fitting)[-1])))
                return
        left = []
        for size, socket, cpus in sorted(sockets, key=lambda each: (-each[0], each[1])):
            if size > self.missing:
                left.append((size, socket, cpus))
            else:
                self._pick(self._by_core(cpuset.ids(cpus)))
        step = topology.cpus_per_core
        if self.missing < step:
            return
        for _, _, cpus in sorted(left):
            # Upstream takes at least one core of each socket, however few CPUs are missing by then.
            self._pick(self._by_core(cpuset.ids(cpus))[: max(self.missing // step, 1) * step])
            if not self.missing:
                return

    def _take_from_one(self) -> None:
        topology, needed = self.topology, self.missing
        if needed <= topology.cpus_per_node:
            conflicts = self._core_conflicts() | self._numa_node_conflicts()
            for spread, free, fitting in self._passes(conflicts):
                nodes = [
                    (
                        self.sign * (free & node.cpus).bit_count(),
                        self.sign * (free & node.socket_cpus).bit_count(),
                        node.id,
                        free & node.cpus,
                    )
                    for node in topology.nodes
                    if (fitting & node.cpus).bit_count() >= needed
                ]
                if nodes:
                    self._pick(spread(self._by_holders(min(nodes)[-1])))
                    return
        if needed <= topology.cpus_per_socket:
            for spread, free, fitting in self._passes(self._core_conflicts()):
                sockets = [
                    (self.sign * size, socket, free & cpus)
                    for socket, cpus in topology.sockets.items()
                    if (size := (fitting & cpus).bit_count()) >= needed
                ]
                if sockets:
                    self._pick(spread(self._by_holders(min(sockets)[-1])))
                    return

    def _passes(self, conflicts: int) -> Iterator[tuple[Spread, int, int]]:
        """How to spread, CPUs to pick from, and those of them that have to suffice.

        At first one CPU of each core, without conflicts; then all.
        """
        free = self.free & ~conflicts
        yield self._round_robin, free, self.topology.one_per_core(free)
        yield self._spread, self.free, self.free

    def _take_anywhere(self) -> None:
        conflicts = self._core_conflicts() | self._numa_node_conflicts()
        for excluded in (conflicts, 0):
            cpus: list[int] = []
            for group in self._groups(self.free & ~excluded):
                cpus += self._by_core(self._by_holders(group))
            self._pick(self._spread(cpus))
            if not self.missing:
                return

    def _groups(self, free: int) -> Iterator[int]:
        """These CPUs in groups, best first. Those of a core are in the same one; cores of a group are equally good."""
        topology = self.topology
        picked = cpuset.of(self.picked)
        by_count = self._cores_by_count(free)
        groups: dict[tuple[int, int, int, int, int], int] = {}
        for node, socket, cpus in topology.places:
            if here := free & cpus:
                of_socket = topology.sockets[socket]
                for count, cores in by_count.items():
                    if cores & here:
                        key = (
                            -(picked & of_socket).bit_count(),
                            self.sign * (free & of_socket).bit_count(),
                            self.sign * (free & topology.node_cpus[node]).bit_count(),
                            count,
                            socket,
                        )
                        groups[key] = groups.get(key, 0) | cores & here
        for key in sorted(groups):
            yield groups[key]

    def _cores_by_count(self, free: int) -> dict[int, int]:
        """These CPUs by how many of their core are among them."""
        topology = self.topology
        by_count = {topology.cpus_per_core: topology.full_cores(free)}
        broken = free ^ by_count[topology.cpus_per_core]
        for cpu in cpuset.ids(topology.one_per_core(broken)):
            core = broken & topology.cores[topology.core_rank[cpu]]
            count = core.bit_count()
            by_count[count] = by_count.get(count, 0) | core
        return by_count

    def _core_conflicts(self) -> int:
        """CPUs of cores that this pod wants for itself and another pod has for itself.

        The cores that are picked already are no question here: what was available of them was picked as a whole.
        """
        if self.exclusive is not ExclusivePolicy.PCPU_LEVEL:
            return 0
        return self.topology.whole_cores(self.taken.pcpu_level)

    def _numa_node_conflicts(self) -> int:
        """The same with NUMA nodes, those of the CPUs picked already included."""
        if self.exclusive is not ExclusivePolicy.NUMA_NODE_LEVEL:
            return 0
        exclusive = self.taken.numa_node_level | cpuset.of(self.picked)
        return sum(node.cpus for node in self.topology.nodes if node.cpus & exclusive)

    def _by_holders(self, cpus: int) -> list[int]:
        """Ids of CPUs, those with few holders first, then by id."""
        ids = cpuset.ids(cpus)
        if self.taken.holders:
            ids.sort(key=lambda cpu: self.taken.holders.get(cpu, 0))
        return ids

    def _by_core(self, cpus: list[int]) -> list[int]:
        """CPUs core by core, those with few holders first, then by number of core. Within a core the order stays."""
        rank = self.topology.core_rank
        if not self.taken.holders:
            return sorted(cpus, key=rank.__getitem__)
        holders = dict.fromkeys((rank[cpu] for cpu in cpus), 0)
        for cpu in cpus:
            holders[rank[cpu]] += self.taken.holders.get(cpu, 0)
        return sorted(cpus, key=lambda cpu: (holders[rank[cpu]], rank[cpu]))

    def _spread(self, cpus: list[int]) -> list[int]:
        """Round robin, but what is not more than a core stays as it is."""
        return cpus if len(cpus) <= self.topology.cpus_per_core else self._round_robin(cpus)

    def _round_robin(self, cpus: list[int]) -> list[int]:
        """The first CPU of every core, in this order, then the second ones, and so on."""
        rank = self.topology.core_rank
        turns: list[list[int]] = []
        turn_of: dict[int, int] = {}
        for cpu in cpus:
            core = rank[cpu]
            turn = turn_of.get(core, 0)
            turn_of[core] = turn + 1
            if turn == len(turns):
                turns.append([])
            turns[turn].append(cpu)
        return list(chain.from_iterable(turns))
