"""CPUs and NUMA nodes as columns of the node table, and what pods take of them.

Pods count by what their annotations say, CPU by CPU, whether the machine's topology is known or not: so it does not
matter which is seen first, and CPUs that are given to two pods are counted twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
import numpy as np
import numpy.typing as npt

from koordsched.cluster.accounting import Amount, ColumnAccountant, add_amounts
from koordsched.cluster.changelog import RowArray
from koordsched.cluster.columns import Column
from koordsched.cluster.facts import PodFact
from koordsched.cluster.kept import Kept
from koordsched.cluster.nodetable import Rows
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.cluster.state import ClusterState
from koordsched.framework.topologyhints import NUMAPolicy
from koordsched.framework.topologymanager import IDLE, SHARED, SINGLE
from koordsched.plugins.nodenumaresource import allocation, kinds
from koordsched.plugins.nodenumaresource.allocation import MAX_NUMA_NODES, Allocation
from koordsched.plugins.nodenumaresource.podrequest import numa_topology_spec_of
from koordsched.plugins.nodenumaresource.policies import BindPolicy
from koordsched.plugins.nodenumaresource.topology import CPUTopology
from koordsched.plugins.shared.schedulinghint import ANNOTATIONS as HINTS
from koordsched.plugins.shared.schedulinghint import concerns

Counts = npt.NDArray[np.int64]

ABSENT = -1
"""Instead of the amount of a resource that a NUMA node does not report."""

CPU, MEMORY = 0, 1
MAX_RESOURCES = 32
"""Kinds of resources of NUMA nodes that are distinguished."""

MOST_OF_A_POD = 1 << 47
"""The most of a resource of a NUMA node that counts for a pod: the sum over all pods of a node stays within 64 bits."""

_EXPECTED = (
    "hugepages-2Mi",
    "hugepages-1Gi",
    "kubernetes.io/batch-cpu",
    "kubernetes.io/batch-memory",
    "kubernetes.io/mid-cpu",
    "kubernetes.io/mid-memory",
    "nvidia.com/gpu",
    "koordinator.sh/gpu",
    "koordinator.sh/gpu-core",
    "koordinator.sh/gpu-memory",
    "koordinator.sh/gpu-memory-ratio",
)
"""What agents report: there is room for it, whatever names users write into annotations of pods."""

_CPUS_AT_FIRST = 64
_BUDGET, _LAYOUT_BUDGET = 16 << 20, 1 << 20
"""Bytes that are remembered of what allocations add, and per layout of where their CPUs lie."""


class Layout:
    """A topology, and which of its CPUs pods may have. Equal machines share one.

    `bits`, `reserved`: bit sets of the CPUs that pods may have, and that they may not; `nodes`: int[NUMA nodes].
    """

    __slots__ = ("_numa_nodes", "bits", "nodes", "reserved", "topology")

    def __init__(self, topology: CPUTopology, reserved: int) -> None:
        self.topology = topology
        self.reserved = reserved
        self.bits = topology.cpus & ~reserved
        self.nodes = np.array([node.id for node in topology.nodes if node.id < MAX_NUMA_NODES], dtype=np.intp)
        self._numa_nodes: Kept[int, list[int]] = Kept(_LAYOUT_BUDGET)

    def numa_nodes_of(self, cpus: int) -> list[int]:
        """The NUMA nodes on which any of these CPUs lies."""
        found = self._numa_nodes.get(cpus)
        if found is None:
            nodes = self.topology.numa_nodes_of(cpus)
            found = self._numa_nodes.put(cpus, [node for node in nodes if node < MAX_NUMA_NODES])
        return found

    def agreeing(self, cpus: int, policy: BindPolicy) -> int:
        """Those of the CPUs that a pod may get that must keep the policy (nodenumaresource spec 3.5)."""
        if policy is BindPolicy.FULL_PCPUS:
            return self.topology.full_cores(cpus)
        return self.topology.one_per_core(cpus) if policy is BindPolicy.SPREAD_BY_PCPUS else cpus

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and (self.topology, self.reserved) == (other.topology, other.reserved)

    def __hash__(self) -> int:
        return hash((self.topology, self.reserved))


class Mode:
    """What decides how a node is evaluated, in one small number: `Mode.of(number)` reads it."""

    __slots__ = ("amplified", "bind", "cpus", "invalid", "malformed", "numa", "zones")

    def __init__(self, number: int) -> None:
        self.numa = NUMAPolicy(number & 3)
        self.bind: BindPolicy = _BINDS[number >> 2 & 3]
        self.cpus = bool(number & 16)
        """There is a topology of CPUs."""
        self.zones = bool(number & 32)
        """There are resources of NUMA nodes."""
        self.amplified = bool(number & 64)
        """More CPU is offered than there is."""
        self.malformed = bool(number & 128)
        """How much more cannot be read."""
        self.invalid = bool(number & 256)
        """There is a report, but no topology of CPUs in it that could be used."""


_BINDS = (BindPolicy.NONE, BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS, BindPolicy.NONE)
PLAIN = 0
MODES = tuple(Mode(number) for number in range(512))


def mode_number(
    numa: NUMAPolicy, bind: BindPolicy, *, cpus: bool, zones: bool, amplified: bool, malformed: bool, invalid: bool
) -> int:
    """The number of a mode."""
    bits = cpus << 4 | zones << 5 | amplified << 6 | malformed << 7 | invalid << 8
    return int(numa) | _BINDS.index(bind) << 2 | bits


class NUMAColumns(ColumnAccountant):
    """One for all profiles.

    `mode`: int16[rows]; `layouts`: the layout of each row, None where CPUs are not known; `reserved`: bool[rows, CPUs],
    its reserved CPUs. `report`: int8[rows], 0 no report, 1 one that can be used, 2 something that cannot
    (`reportstates`). `ratio`, `node_ratio`: float64[rows], how much more CPU is offered than there is, for NUMA nodes
    and for the whole node. `zone_count`: int8[rows], NUMA nodes with resources; `zones`: int64[rows, resources *
    MAX_NUMA_NODES], what these have. `holders`: int16[rows, CPUs], how many pods hold each CPU, by its id. `used`: as
    `zones`, what pods were given. `single`, `shared`: int16[rows, NUMA nodes], how many pods have all their CPUs in
    that NUMA node, and how many only some.
    """

    def __init__(self, cluster: ClusterState) -> None:
        self.table = table = cluster.table
        self.facets = table.add_facet()
        self.mode = table.column(np.int16)
        self.layouts = table.value_column(_no_layout())
        self._topologies = table.value_column(_no_topology())
        self.reserved = table.column(np.bool_, fill=False, width=_CPUS_AT_FIRST)
        self.report = table.column(np.int8)
        self.ratio = table.column(np.float64)
        self.node_ratio = table.column(np.float64)
        self.zone_count = table.column(np.int8)
        self.zones = table.column(np.int64, ABSENT, width=2 * MAX_NUMA_NODES)
        self.holders = table.column(np.int16, width=_CPUS_AT_FIRST)
        self.used = table.column(np.int64, width=2 * MAX_NUMA_NODES)
        self.single = table.column(np.int16, width=MAX_NUMA_NODES)
        self.shared = table.column(np.int16, width=MAX_NUMA_NODES)
        self.resources = ["cpu", "memory"]
        self._index = {"cpu": CPU, "memory": MEMORY}
        self._known: Kept[Allocation, tuple[npt.NDArray[np.int16], Counts]] = Kept(_BUDGET)
        self._cluster = cluster
        cluster.shape_facts.declare(annotations=[kinds.RESOURCE_SPEC, kinds.NUMA_TOPOLOGY_SPEC])
        cluster.shape_facts.declare_if(kinds.RESOURCE_STATUS, lambda meta: concerns(meta, "NodeNUMAResource"))
        cluster.read_annotations.update(HINTS)
        self.allocation: PodFact[Allocation] = cluster.pod_facts.declare(
            kinds.RESOURCE_STATUS, allocation.parse, allocation.text, allocation.less
        )
        cluster.add_accountant(self, reads=[self.allocation])

    # --- resources of NUMA nodes -------------------------------------------------------------------

    def resource(self, name: str) -> int:
        """The index of a resource; -1 if no NUMA node has any."""
        return self._index.get(name, -1)

    def add_resource(self, name: str) -> int:
        """The same, after giving it one; -1 when there are too many."""
        index = self._index.get(name, -1)
        if index >= 0:
            return index
        room = MAX_RESOURCES - len(self.resources)
        if name not in _EXPECTED:
            room -= sum(expected not in self._index for expected in _EXPECTED)
        if room > 0:
            index = self._index[name] = len(self.resources)
            self.resources.append(name)
            self.zones.widen((index + 1) * MAX_NUMA_NODES)
            self.used.widen((index + 1) * MAX_NUMA_NODES)
            self.zones.data[:, index * MAX_NUMA_NODES :] = ABSENT
            self._known.clear()
        return index

    def amounts_of(self, column: Column, rows: Rows) -> Counts:
        """int64[rows, resources, NUMA nodes] of `zones` or `used`."""
        data = column.data[rows]
        return data.reshape(len(data), -1, MAX_NUMA_NODES)

    # --- what pods take ------------------------------------------------------------------------------

    def columns(self) -> Sequence[Column]:
        """See ColumnAccountant."""
        return (self.holders, self.used)

    def amounts(self, pod: Pod) -> Sequence[Amount] | None:
        """See ColumnAccountant."""
        given = self.allocation.of(pod)
        if not given or given == allocation.NOTHING:
            return None
        return self._known.get(given) or self._known.put(given, self._amounts(given))

    def _amounts(self, given: Allocation) -> tuple[npt.NDArray[np.int16], Counts]:
        width = given.cpus.bit_length()
        if width > self.holders.data.shape[1]:
            self.holders.widen(-(-width // _CPUS_AT_FIRST) * _CPUS_AT_FIRST)
        indexes = [[self.add_resource(name) for name, _ in numa.amounts] for numa in given.numa]
        used = np.zeros(len(self.resources) * MAX_NUMA_NODES, dtype=np.int64)
        for (node, amounts), resources in zip(given.numa, indexes, strict=True):
            for (_, amount), index in zip(amounts, resources, strict=True):
                if index >= 0:
                    at = index * MAX_NUMA_NODES + node
                    used[at] = min(used.item(at) + amount, MOST_OF_A_POD)
        return bits(given.cpus, width).astype(np.int16), used

    def sums_decide(self, shape: PodShape) -> bool:
        """See ColumnAccountant: how pods share NUMA nodes (`single`, `shared`) is no sum that a pod alone adds to."""
        return not shape.compiled(_exclusive_numa, _exclusive_numa) or not (
            self.single.data.any() or self.shared.data.any()
        )

    def pod_added(self, row: int, pod: Pod) -> int:
        """See PodAccountant."""
        return self._count(row, pod, 1)

    def pod_removed(self, row: int, pod: Pod) -> int:
        """See PodAccountant."""
        return self._count(row, pod, -1)

    def _count(self, row: int, pod: Pod, sign: int) -> int:
        changed = super()._count(row, pod, sign)
        if changed:
            self._count_sharing(row, pod, sign)
        return changed

    def _count_sharing(self, row: int, pod: Pod, sign: int) -> None:
        given, layout = self.allocation.of(pod), self.layout(row)
        if given is None or not given.cpus or layout is None:
            return
        nodes = layout.numa_nodes_of(given.cpus)
        (self.shared if len(nodes) > 1 else self.single).data[row, nodes] += sign

    def recount_sharing(self, row: int) -> None:
        """The CPUs of the row have changed: which NUMA nodes its pods use is computed again."""
        self.single.data[row] = 0
        self.shared.data[row] = 0
        if row < self.table.size and self.table.alive.data.item(row):
            for pod in self._cluster.pods_on(row).values():
                self._count_sharing(row, pod, 1)

    # --- what is free ----------------------------------------------------------------------------------

    def layout(self, row: int) -> Layout | None:
        """The layout of a row, None where its CPUs are not known."""
        number: int = self.layouts.ids.data.item(row)
        return self.layouts.values[number]

    def set_layout(self, row: int, layout: Layout | None) -> None:
        """The CPUs of a row have changed."""
        self.layouts.set(row, layout)
        self._topologies.set(row, layout.topology if layout is not None else None)
        self.reserved.data[row] = False
        if layout is not None:
            width = max(layout.topology.cpus.bit_length(), layout.reserved.bit_length())
            for column in (self.reserved, self.holders):
                column.widen(-(-width // _CPUS_AT_FIRST) * _CPUS_AT_FIRST)
            self.reserved.data[row, :width] = bits(layout.reserved, width)
        self.recount_sharing(row)

    def free(self, row: int, layout: Layout) -> int:
        """Bit set of the CPUs of a row that pods may have and none holds."""
        return layout.bits & ~self.held(row)

    @contextmanager
    def in_use(self, row: int, cpus: int, amounts: Counts) -> Iterator[None]:
        """Inside, and inside of what-ifs, these CPUs of a row are in use, too, but by no pod, and these amounts of NUMA
        nodes: int64[resources, NUMA nodes]."""
        width = cpus.bit_length()
        more = (bits(cpus, width).astype(np.int16), amounts.reshape(-1))
        add_amounts(self.columns(), row, more)
        try:
            yield
        finally:
            add_amounts(self.columns(), row, more, -1)

    def held(self, row: int) -> int:
        """Bit set of the CPUs of a row that pods hold."""
        packed = np.packbits(self.holders.data[row] > 0, bitorder="little")
        return int.from_bytes(packed.tobytes(), "little")

    def usable(self, rows: RowArray, required: BindPolicy) -> Counts:
        """int64[rows, NUMA nodes]: how many CPUs a pod may get that must keep the policy; 0 where they are not known.

        Source: nodenumaresource spec 3.5: whole cores that are free, one CPU of each core, or all.
        """
        return self._per_node(rows, required, held=False)

    def bound(self, rows: RowArray) -> Counts:
        """int64[rows, NUMA nodes]: how many CPUs pods hold there; 0 where they are not known."""
        return self._per_node(rows, BindPolicy.NONE, held=True)

    def usable_in_all(self, rows: RowArray, required: BindPolicy) -> Counts:
        """int64[rows]: as `usable`, in the whole machine, however many NUMA nodes it has."""
        found = np.zeros(len(rows), dtype=np.int64)
        if len(rows) == 1:
            layout = self.layout(int(rows[0]))
            if layout is not None:
                found[0] = layout.agreeing(self.free(int(rows[0]), layout), required).bit_count()
            return found
        for at, _, counts in self._by_topology(rows, required, held=False):
            found[at] = counts.sum(axis=1)
        return found

    def cpus_per_core(self, rows: RowArray) -> Counts:
        """int64[rows]; 1 where CPUs are not known."""
        if len(rows) == 1:
            layout = self.layout(int(rows[0]))
            return np.array((layout.topology.cpus_per_core if layout is not None else 1,), dtype=np.int64)
        numbers = self._topologies.ids.data[rows]
        found = np.ones(len(rows), dtype=np.int64)
        for number in np.unique(numbers).tolist():
            topology = self._topologies.values[number]
            if topology is not None:
                found[numbers == number] = topology.cpus_per_core
        return found

    def bound_in_all(self, rows: RowArray) -> Counts:
        """int64[rows]: how many CPUs pods hold."""
        if len(rows) == 1:
            return np.array((self.held(int(rows[0])).bit_count(),), dtype=np.int64)
        found: Counts = (self.holders.data[rows] > 0).sum(axis=1, dtype=np.int64)
        return found

    def _per_node(self, rows: RowArray, required: BindPolicy, *, held: bool) -> Counts:
        found = np.zeros((len(rows), MAX_NUMA_NODES), dtype=np.int64)
        if len(rows) == 1:
            row = int(rows[0])
            layout = self.layout(row)
            if layout is not None:
                cpus = self.held(row) if held else layout.agreeing(self.free(row, layout), required)
                for node, of_node in layout.topology.node_cpus.items():
                    if node < MAX_NUMA_NODES:
                        found[0, node] = (cpus & of_node).bit_count()
            return found
        for at, layout, counts in self._by_topology(rows, required, held=held):
            found[at[:, None], layout.nodes] = counts[:, : len(layout.nodes)]
        return found

    def _by_topology(
        self, rows: RowArray, required: BindPolicy, *, held: bool
    ) -> Iterator[tuple[RowArray, Layout, Counts]]:
        """(positions, a layout, int64[positions, its NUMA nodes]) of rows with the same CPUs, whatever is reserved."""
        numbers = self._topologies.ids.data[rows]
        for number in np.unique(numbers).tolist():
            at = np.flatnonzero(numbers == number)
            layout = self.layout(int(rows[at[0]]))
            if layout is not None:
                yield at, layout, self._on_nodes(rows[at], layout.topology, required, held=held)

    def _on_nodes(self, rows: RowArray, topology: CPUTopology, required: BindPolicy, *, held: bool) -> Counts:
        if required is not BindPolicy.NONE and len(topology.cores) != len(topology.core_starts):
            # No machine has cores on two NUMA nodes, but reports may claim it.
            left = []
            for row in rows.tolist():
                layout = self.layout(row)
                assert layout is not None, "it has this topology"
                left.append(layout.agreeing(self.free(row, layout), required))
            nodes = topology.node_cpus.values()
            return np.array([[(cpus & of_node).bit_count() for of_node in nodes] for cpus in left], dtype=np.int64)
        order = topology.order
        taken = self.holders.data[rows][:, order] > 0
        if held:
            return np.add.reduceat(taken, topology.node_starts, axis=1, dtype=np.int64)
        free = ~(taken | self.reserved.data[rows][:, order])
        if required is BindPolicy.NONE:
            return np.add.reduceat(free, topology.node_starts, axis=1, dtype=np.int64)
        per_core = np.add.reduceat(free, topology.core_starts, axis=1, dtype=np.int64)
        if required is BindPolicy.FULL_PCPUS:
            per_core *= per_core == topology.cpus_per_core
        else:
            per_core = np.minimum(per_core, 1)
        starts = np.searchsorted(topology.core_starts, topology.node_starts)
        return np.add.reduceat(per_core, starts, axis=1)

    def statuses(self, rows: RowArray, count: int) -> Counts:
        """int64[rows, count]: by what kind of pods each NUMA node is used."""
        found = np.where(self.single.data[rows, :count] > 0, SINGLE, IDLE)
        found[self.shared.data[rows, :count] > 0] = SHARED
        return found


def _exclusive_numa(shape: PodShape) -> bool:
    try:
        return numa_topology_spec_of(shape).exclusive
    except (msgspec.MsgspecError, RecursionError):
        return False


def _no_layout() -> Layout | None:
    return None


def _no_topology() -> CPUTopology | None:
    return None


def bits(cpus: int, width: int) -> npt.NDArray[np.uint8]:
    """[width], 1 for the CPUs of a bit set."""
    packed = np.frombuffer(cpus.to_bytes(-(-width // 8) or 1, "little"), dtype=np.uint8)
    return np.unpackbits(packed, bitorder="little")[:width]
