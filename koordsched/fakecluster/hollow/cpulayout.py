"""The CPUs of a node: how many there are, how they are numbered, and which of them belong together."""

from __future__ import annotations

from collections.abc import Set
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from koordsched.fakecluster.hollow.cpuset import HIGHEST_CPU


class CpuLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """`cpus` of a node template. Raises ValueError for impossible numbers."""

    cores_per_numa_node: int
    sockets: int = 1
    numa_nodes_per_socket: int = 1
    threads_per_core: int = 2
    numbering: Literal["linux", "consecutive"] = "linux"
    """Of the CPUs. linux: first a thread of each core, then the next one; consecutive: core by core."""

    def __post_init__(self) -> None:
        counts = self.sockets, self.numa_nodes_per_socket, self.cores_per_numa_node, self.threads_per_core
        if min(counts) < 1:
            raise ValueError("numbers of CPUs must be at least 1")
        if self.count > HIGHEST_CPU + 1:
            raise ValueError(f"{self.count} CPUs are more than {HIGHEST_CPU + 1}")

    @property
    def numa_nodes(self) -> int:
        """How many NUMA nodes there are."""
        return self.sockets * self.numa_nodes_per_socket

    @property
    def cores(self) -> int:
        """How many cores there are."""
        return self.numa_nodes * self.cores_per_numa_node

    @property
    def count(self) -> int:
        """How many (logical) CPUs there are."""
        return self.cores * self.threads_per_core


class Cpu(NamedTuple):
    """A logical CPU and where it is. All numbers count over the whole node, from 0."""

    id: int
    core: int
    socket: int
    node: int


@lru_cache(maxsize=64)
def cpus_of(layout: CpuLayout) -> tuple[Cpu, ...]:
    """The CPUs, by id."""
    found = []
    for number in range(layout.count):
        core = number % layout.cores if layout.numbering == "linux" else number // layout.threads_per_core
        node = core // layout.cores_per_numa_node
        found.append(Cpu(number, core, node // layout.numa_nodes_per_socket, node))
    return tuple(found)


@lru_cache(maxsize=64)
def numa_nodes_of(layout: CpuLayout) -> tuple[tuple[int, frozenset[int]], ...]:
    """Socket and CPUs of each NUMA node, by number."""
    members: list[list[int]] = [[] for _ in range(layout.numa_nodes)]
    for cpu in cpus_of(layout):
        members[cpu.node].append(cpu.id)
    return tuple((node // layout.numa_nodes_per_socket, frozenset(cpus)) for node, cpus in enumerate(members))


def take_cpus(layout: CpuLayout, free: Set[int], count: int) -> frozenset[int] | None:
    """This many of the free CPUs; None if there are too few.

    Whole cores of the lowest numbers come first, then what is left of cores that are in use.
    """
    if count > len(free):
        return None
    cores: dict[int, list[int]] = {}
    for cpu in cpus_of(layout):
        if cpu.id in free:
            cores.setdefault(cpu.core, []).append(cpu.id)
    threads = layout.threads_per_core
    taken: list[int] = []
    for core in sorted(core for core, cpus in cores.items() if len(cpus) == threads):
        if count - len(taken) >= threads:
            taken += cores.pop(core)
    for core in sorted(cores, key=lambda core: (len(cores[core]), core)):
        taken += cores[core][: count - len(taken)]
    return frozenset(taken)
