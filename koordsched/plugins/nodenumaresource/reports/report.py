"""A node, CPU by CPU, and all nodes in a line each, as values."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice

import msgspec
import numpy as np

from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.framework.declaration import NotFound, finished
from koordsched.plugins.nodenumaresource.allocation import MAX_NUMA_NODES, NOTHING, Allocation
from koordsched.plugins.nodenumaresource.columns import Layout
from koordsched.plugins.nodenumaresource.nodes import NUMANode
from koordsched.plugins.nodenumaresource.plugin import NodeNUMAResource
from koordsched.plugins.nodenumaresource.podrequest import NUMA_POLICY_NAMES, exclusive_policy_of, resource_spec_of
from koordsched.plugins.nodenumaresource.policies import BindPolicy, ExclusivePolicy
from koordsched.plugins.nodenumaresource.reportstates import INVALID, MISSING, state_of
from koordsched.plugins.nodenumaresource.supply import supply_of
from koordsched.plugins.nodenumaresource.topology import CPUTopology
from koordsched.plugins.shared import cpuset

FREE, RESERVED, HELD, CONFLICT = "free", "reserved", "held", "conflict"
"""The state of a CPU; `conflict`: several pods hold it."""

_NODES_AT_ONCE = 200


class ZoneReport(msgspec.Struct, rename="camel"):
    """The CPU of one NUMA node, in milli-CPU: what it has, and what of it is left."""

    numa_node: int
    has: int
    left: int


class NodeLine(msgspec.Struct, rename="camel"):
    """One node. `report`: see `reportstates`. Of CPUs and cores, `free_cores` are those of which all CPUs are free;
    `conflicts`: CPUs that several pods hold. `problems`: what cannot be used of its report, labels and annotations.
    """

    node: str
    report: str
    bind_policy: str
    numa_topology_policy: str
    cpus: int
    free_cpus: int
    cores: int
    free_cores: int
    conflicts: int
    numa_nodes: list[ZoneReport]
    problems: list[str]


class Overview(msgspec.Struct, rename="camel"):
    """All nodes, by name."""

    nodes: list[NodeLine]


class ResourceReport(msgspec.Struct, rename="camel"):
    """A resource of a NUMA node, in milli-CPU, bytes or units: what there is, what pods were given, what is left."""

    resource: str
    has: int
    given: int
    left: int


class NUMANodeReport(msgspec.Struct, rename="camel"):
    """One NUMA node. CPUs are lists as in Linux: all, those that pods may get and none holds, those that pods hold, and
    those that are reserved. `cores` has it, of `free_cores` all CPUs are free.
    """

    numa_node: int
    sockets: list[int]
    cpus: str
    free: str
    held: str
    reserved: str
    cores: int
    free_cores: int
    resources: list[ResourceReport]


class CPUReport(msgspec.Struct, rename="camel"):
    """One CPU. `state`: `free`, `reserved`, `held` by a pod, or `conflict`: several pods hold it. `reserved`: also said
    of one that pods hold.
    """

    cpu: int
    state: str
    reserved: bool
    pods: list[str]


class CoreReport(msgspec.Struct, rename="camel"):
    """The CPUs of a core in one NUMA node."""

    socket: int
    numa_node: int
    core: int
    cpus: list[CPUReport]


class GivenReport(msgspec.Struct, rename="camel"):
    """What a pod was given of a NUMA node: milli-CPU, bytes, units."""

    numa_node: int
    amounts: dict[str, int]


class PodReport(msgspec.Struct, rename="camel"):
    """A pod that was given something. `cpus`: a list, "" for none of its own."""

    pod: str
    cpus: str
    bind_policy: str
    exclusive_policy: str
    numa_nodes: list[GivenReport]


class ConflictReport(msgspec.Struct, rename="camel"):
    """CPUs that several pods hold."""

    cpus: str
    pods: list[str]


class NodeReport(msgspec.Struct, rename="camel"):
    """One node. `report`: see `reportstates`. `cores` are in the order of NUMA nodes, empty if they are not known.
    `problems`: what cannot be used of its report, labels and annotations, and CPUs that pods hold, but should not.
    """

    node: str
    report: str
    bind_policy: str
    numa_topology_policy: str
    allocate_strategy: str
    amplification_ratios: dict[str, float]
    numa_nodes: list[NUMANodeReport]
    cores: list[CoreReport]
    pods: list[PodReport]
    conflicts: list[ConflictReport]
    problems: list[str]


# --- all nodes -----------------------------------------------------------------------------------


def overview(plugin: NodeNUMAResource) -> Overview:
    """All of it, as it is now."""
    return finished(overviewing(plugin))


def overviewing(plugin: NodeNUMAResource) -> Generator[None, None, Overview]:
    """The same in steps, so that other tasks run."""
    names, nodes = iter(sorted(plugin.table.row_of)), list[NodeLine]()
    while some := list(islice(names, _NODES_AT_ONCE)):
        nodes += _lines(plugin, [name for name in some if name in plugin.table.row_of])
        yield
    return Overview(nodes)


def _lines(plugin: NodeNUMAResource, names: list[str]) -> Iterator[NodeLine]:
    columns = plugin.columns
    rows = np.array([plugin.table.row_of[name] for name in names], dtype=np.intp)
    supply = supply_of(columns, rows, MAX_NUMA_NODES, (0,))
    conflicts = (columns.holders.data[rows] > 1).sum(axis=1).tolist()
    numbers = zip(
        names,
        rows.tolist(),
        conflicts,
        columns.zone_count.data[rows].tolist(),
        supply.capacity[:, 0].tolist(),
        supply.available[:, 0].tolist(),
        strict=True,
    )
    for name, row, conflict, count, has, left in numbers:
        node, layout, state = _known(plugin, name), columns.layout(row), state_of(columns, row)
        free = columns.free(row, layout) if layout is not None else 0
        yield NodeLine(
            name,
            state,
            node.bind.value,
            NUMA_POLICY_NAMES[node.numa],
            layout.topology.cpus.bit_count() if layout is not None else 0,
            free.bit_count(),
            len(layout.topology.cores) if layout is not None else 0,
            _whole(layout.topology, free) if layout is not None else 0,
            conflict,
            [ZoneReport(numa, has[numa], left[numa]) for numa in range(count)],
            list(_problems(node, state)),
        )


def _known(plugin: NodeNUMAResource, name: str) -> NUMANode:
    node = plugin.nodes.of_node(name)
    assert node is not None, "every node of the table is known"
    return node


def _problems(node: NUMANode, state: str) -> Iterator[str]:
    for problem in node.options.problems:
        yield f"NodeResourceTopology: {problem}"
    if node.node_problem:
        yield f"node: {node.node_problem}"
    if state == MISSING:
        yield "there is no NodeResourceTopology, though the node has a policy, or its pods have exclusive CPUs"
    elif state == INVALID and node.options.topology is None and not (node.options.problems or node.node_problem):
        yield "NodeResourceTopology: it reports no CPUs"


def _whole(topology: CPUTopology, free: int) -> int:
    """How many cores are free as a whole."""
    return topology.full_cores(free).bit_count() // max(topology.cpus_per_core, 1)


# --- one node -----------------------------------------------------------------------------------


def report_on(plugin: NodeNUMAResource, name: str) -> NodeReport:
    """One node. Raises NotFound."""
    row = plugin.table.row_of.get(name)
    if row is None:
        without = ", only a NodeResourceTopology of that name" if plugin.nodes.of_node(name) is not None else ""
        raise NotFound(f"there is no node {name}{without}")
    node, layout, state = _known(plugin, name), plugin.columns.layout(row), state_of(plugin.columns, row)
    given = sorted(
        ((pod.title, pod, allocation) for pod, allocation in plugin.allocations_on(row) if allocation != NOTHING),
        key=lambda entry: entry[0],
    )
    holders = _holders(given)
    cpus = layout.topology.cpus if layout is not None else 0
    return NodeReport(
        name,
        state,
        node.bind.value,
        NUMA_POLICY_NAMES[node.numa],
        plugin.strategy_on(row).value,
        node.ratios,
        _numa_nodes(plugin, row, layout),
        list(_cores(layout, holders)) if layout is not None else [],
        [_pod(pod, allocation) for _, pod, allocation in given],
        _conflicts(holders),
        [*_problems(node, state), *(_misplaced(layout, cpus, given) if layout is not None else ())],
    )


def _holders(given: list[tuple[str, Pod, Allocation]]) -> dict[int, list[str]]:
    """CPU -> the pods that hold it."""
    found: dict[int, list[str]] = {}
    for key, _, allocation in given:
        for cpu in cpuset.ids(allocation.cpus):
            found.setdefault(cpu, []).append(key)
    return found


def _conflicts(holders: dict[int, list[str]]) -> list[ConflictReport]:
    """CPUs that the same pods hold together."""
    shared: dict[tuple[str, ...], int] = {}
    for cpu, pods in sorted(holders.items()):
        if len(pods) > 1:
            shared[tuple(pods)] = shared.get(tuple(pods), 0) | 1 << cpu
    return [ConflictReport(cpuset.text(cpus), list(pods)) for pods, cpus in shared.items()]


def _misplaced(layout: Layout, cpus: int, given: list[tuple[str, Pod, Allocation]]) -> Iterator[str]:
    """Pods that hold CPUs that are reserved, or do not exist."""
    for key, _, allocation in given:
        if reserved := allocation.cpus & layout.reserved & cpus:
            yield f"{key} holds CPUs that are reserved: {cpuset.text(reserved)}"
        if unknown := allocation.cpus & ~cpus:
            yield f"{key} holds CPUs that are not reported: {cpuset.text(unknown)}"


def _cores(layout: Layout, holders: dict[int, list[str]]) -> Iterator[CoreReport]:
    core: CoreReport | None = None
    for cpu in layout.topology.members:
        if core is None or (core.socket, core.numa_node, core.core) != (cpu.socket, cpu.node, cpu.core):
            if core is not None:
                yield core
            core = CoreReport(cpu.socket, cpu.node, cpu.core, [])
        pods, reserved = holders.get(cpu.id, []), bool(layout.reserved >> cpu.id & 1)
        state = (RESERVED if reserved else FREE, HELD, CONFLICT)[min(len(pods), 2)]
        core.cpus.append(CPUReport(cpu.id, state, reserved, pods))
    if core is not None:
        yield core


def _numa_nodes(plugin: NodeNUMAResource, row: int, layout: Layout | None) -> list[NUMANodeReport]:
    columns = plugin.columns
    count = columns.zone_count.data.item(row)
    rows = np.array([row], dtype=np.intp)
    supply = supply_of(columns, rows, MAX_NUMA_NODES, range(len(columns.resources)))
    free, held = (columns.free(row, layout), columns.held(row)) if layout is not None else (0, 0)
    topology = layout.topology if layout is not None else None
    known = {node.id: node.cpus for node in topology.nodes} if topology is not None else {}
    found = []
    for numa in sorted({*known, *range(count)}):
        cpus = known.get(numa, 0)
        resources = [
            ResourceReport(name, *(int(of[0, at, numa]) for of in (supply.capacity, supply.used, supply.available)))
            for at, name in enumerate(columns.resources)
            if numa < MAX_NUMA_NODES and (supply.present[0, at, numa] or supply.used[0, at, numa])
        ]
        found.append(
            NUMANodeReport(
                numa,
                sorted({cpu.socket for cpu in topology.members if cpu.node == numa}) if topology is not None else [],
                cpuset.text(cpus),
                cpuset.text(cpus & free),
                cpuset.text(cpus & held),
                cpuset.text(cpus & layout.reserved) if layout is not None else "",
                len({(cpu.socket, cpu.core) for cpu in topology.members if cpu.node == numa}) if topology else 0,
                _whole(topology, cpus & free) if topology is not None else 0,
                resources,
            )
        )
    return found


def _pod(pod: Pod, allocation: Allocation) -> PodReport:
    exclusive = exclusive_policy_of(pod.shape)
    return PodReport(
        pod.title,
        cpuset.text(allocation.cpus),
        _bind_policy(pod.shape) if allocation.cpus else "",
        exclusive.value if allocation.cpus and exclusive is not ExclusivePolicy.NONE else "",
        [GivenReport(numa.node, dict(numa.amounts)) for numa in allocation.numa],
    )


def _bind_policy(shape: PodShape) -> str:
    """What its annotation says, which is complete on pods that were placed; nothing if that cannot be read."""
    try:
        spec = resource_spec_of(shape)
    except (msgspec.MsgspecError, RecursionError):
        return ""
    return BindPolicy(spec.required_cpu_bind_policy or spec.preferred_cpu_bind_policy).value
