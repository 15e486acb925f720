"""Which CPUs of a machine share a core, a NUMA node and a socket (nodenumaresource spec 2.5)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from koordsched.plugins.shared import cpuset
from koordsched.plugins.shared.cpuset import MAX_CPUS

K = TypeVar("K", int, tuple[int, int])

MAX_NUMA_NODES = 64
CORE_BITS = 16
"""The key of a core is `socket << CORE_BITS | core`, because cores of several sockets may have the same number."""


class CPU(NamedTuple):
    """A logical CPU, in the order in which `CPUTopology.order` has them."""

    node: int
    socket: int
    core: int
    id: int


class NUMANode(NamedTuple):
    """A NUMA node: its CPUs, and those of its socket. If it lies on several sockets: of all of them."""

    id: int
    cpus: int
    socket_cpus: int


class Siblings(NamedTuple):
    """Cores that have a CPU whose id is that of their first CPU plus `distance`; `first` are the first CPUs of them,
    and `others` the first CPUs of all other cores."""

    distance: int
    first: int
    others: int


class CPUTopology:
    """The CPUs of a machine. Immutable; equal to all with the same CPUs. Sets of CPUs are those of `cpuset`.

    A core with its lowest CPU stands for all of its CPUs in most tables, for the others are found by shifting: on real
    machines siblings have the same distance everywhere, so that questions about all cores take a few operations.
    """

    __slots__ = (
        "_first",
        "_hash",
        "_larger",
        "_regular",
        "_siblings",
        "core_rank",
        "core_starts",
        "cores",
        "cpus",
        "cpus_per_core",
        "cpus_per_node",
        "cpus_per_socket",
        "members",
        "node_cpus",
        "node_starts",
        "nodes",
        "order",
        "places",
        "sockets",
        "valid",
    )

    cpus: int
    """All CPUs."""
    cpus_per_core: int
    """CPUs divided by cores, rounded down: an average. So are the next two."""
    cpus_per_node: int
    """A NUMA node on several sockets counts once for each."""
    cpus_per_socket: int
    valid: bool
    """Whether none of the numbers per core, NUMA node and socket is 0 (always: the constructor refuses empty ones)."""
    cores: tuple[int, ...]
    """The CPUs of each core, by socket and core."""
    core_rank: list[int]
    """By id of CPU: where in `cores` its core is; -1 where there is no such CPU."""
    nodes: tuple[NUMANode, ...]
    """By id."""
    node_cpus: dict[int, int]
    """The CPUs of each NUMA node, by its id."""
    sockets: dict[int, int]
    """The CPUs of each socket, by its id, ascending."""
    places: tuple[tuple[int, int, int], ...]
    """NUMA node, socket and the CPUs that lie on both, wherever there are any."""
    members: tuple[CPU, ...]
    """All CPUs, in the order of `order`."""
    order: npt.NDArray[np.intp]
    """Ids of all CPUs, by NUMA node, socket, core and id."""
    core_starts: npt.NDArray[np.intp]
    """Where in `order` each core starts, for `reduceat`. A core on two NUMA nodes starts twice."""
    node_starts: npt.NDArray[np.intp]
    """Where in `order` each of `nodes` starts."""

    def __init__(self, cpus: Iterable[tuple[int, int, int, int]]) -> None:
        """CPUs as (id, core, socket, NUMA node), in any order. Raises ValueError where they cannot be a machine's."""
        members = self.members = tuple(sorted(_checked(cpus)))
        self._hash = hash(members)
        self.cpus = cpuset.of(cpu.id for cpu in members)
        self.order = _array([cpu.id for cpu in members])
        self.core_starts = _starts(cpu[:3] for cpu in members)
        self.node_starts = _starts(cpu.node for cpu in members)
        by_node = _grouped((cpu.node, cpu.id) for cpu in members)
        by_core = _grouped((cpu.socket << CORE_BITS | cpu.core, cpu.id) for cpu in members)
        self.node_cpus = {node: cpuset.of(of_node) for node, of_node in by_node.items()}
        sockets = _grouped((cpu.socket, cpu.id) for cpu in members)
        self.sockets = {socket: cpuset.of(of_socket) for socket, of_socket in sockets.items()}
        places = _grouped(((cpu.node, cpu.socket), cpu.id) for cpu in members)
        self.places = tuple((node, socket, cpuset.of(cpus)) for (node, socket), cpus in places.items())
        sockets_of = _grouped(places)
        self.nodes = tuple(
            NUMANode(node, of_node, sum(self.sockets[socket] for socket in sockets_of[node]))
            for node, of_node in self.node_cpus.items()
        )
        self.cpus_per_core = len(members) // len(self.core_starts)
        self.cpus_per_node = len(members) // len(self.places)
        self.cpus_per_socket = len(members) // len(self.sockets)
        self.valid = min(self.cpus_per_core, self.cpus_per_node, self.cpus_per_socket) > 0
        self._index_cores([sorted(core) for core in by_core.values()])

    def _index_cores(self, cores: list[list[int]]) -> None:
        """Fills the tables about cores, which are given as ascending ids of CPUs."""
        self.cores = tuple(map(cpuset.of, cores))
        self.core_rank = [-1] * self.cpus.bit_length()
        for rank, core in enumerate(cores):
            for cpu in core:
                self.core_rank[cpu] = rank
        self._first = cpuset.of(core[0] for core in cores)
        self._regular = cpuset.of(core[0] for core in cores if len(core) == self.cpus_per_core)
        self._larger = [cpuset.of(core) for core in cores if len(core) > self.cpus_per_core]
        # The second CPU of all cores comes before the third of any: `one_per_core` takes the first that it finds.
        turns = _grouped(
            ((turn, cpu - core[0]), core[0]) for core in cores for turn, cpu in enumerate(core) if cpu != core[0]
        )
        self._siblings = [
            Siblings(distance, first := cpuset.of(ids), self._first & ~first) for (_, distance), ids in turns.items()
        ]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CPUTopology) and self.members == other.members

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[CPUTopology], tuple[list[tuple[int, int, int, int]]]]:
        return CPUTopology, ([(cpu.id, cpu.core, cpu.socket, cpu.node) for cpu in self.members],)

    def full_cores(self, available: int) -> int:
        """The CPUs of cores that are available as a whole, as upstream sees it: `cpus_per_core` CPUs are available.

        Where some CPUs are offline, that average is less than what most cores have. The cores that count are then
        those of which that many CPUs are left.
        """
        full = available & self._regular
        for siblings in self._siblings:
            full &= available >> siblings.distance | siblings.others
        cpus = self._spread_out(full)
        for core in self._larger:
            if (available & core).bit_count() == self.cpus_per_core:
                cpus |= available & core
        return cpus

    def one_per_core(self, available: int) -> int:
        """The lowest CPU that is available of each core."""
        found = seen = available & self._first
        for siblings in self._siblings:
            new = available >> siblings.distance & siblings.first & ~seen
            seen |= new
            found |= new << siblings.distance
        return found

    def whole_cores(self, cpus: int) -> int:
        """All CPUs of the cores on which any of these lies."""
        touched = cpus & self._first
        for siblings in self._siblings:
            touched |= cpus >> siblings.distance & siblings.first
        return self._spread_out(touched)

    def numa_nodes_of(self, cpus: int) -> list[int]:
        """The ids of NUMA nodes on which any of these CPUs lies, ascending."""
        return [node.id for node in self.nodes if node.cpus & cpus]

    def _spread_out(self, first: int) -> int:
        """All CPUs of the cores with these first CPUs."""
        cpus = first
        for siblings in self._siblings:
            cpus |= (first & siblings.first) << siblings.distance
        return cpus


def _checked(cpus: Iterable[tuple[int, int, int, int]]) -> Iterable[CPU]:
    seen = set()
    for cpu, core, socket, node in cpus:
        for what, number, limit in (
            ("id", cpu, MAX_CPUS),
            ("core", core, 1 << CORE_BITS),
            ("socket", socket, 1 << CORE_BITS),
            ("NUMA node", node, MAX_NUMA_NODES),
        ):
            if not 0 <= number < limit:
                raise ValueError(f"CPU topology: {what} {number} of a CPU is not within 0..{limit - 1}")
        if cpu in seen:
            raise ValueError(f"CPU topology: there is more than one CPU {cpu}")
        seen.add(cpu)
        yield CPU(node, socket, core, cpu)
    if not seen:
        raise ValueError("CPU topology: there are no CPUs")


def _grouped(pairs: Iterable[tuple[K, int]]) -> dict[K, list[int]]:
    """The values by key, keys ascending."""
    groups: dict[K, list[int]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return dict(sorted(groups.items()))


def _starts(keys: Iterable[object]) -> npt.NDArray[np.intp]:
    """Where each run of equal keys starts."""
    starts = [0]
    for _, run in groupby(keys):
        starts.append(starts[-1] + sum(1 for _ in run))
    return _array(starts[:-1])


def _array(values: list[int]) -> npt.NDArray[np.intp]:
    array = np.array(values, dtype=np.intp)
    array.flags.writeable = False
    return array
