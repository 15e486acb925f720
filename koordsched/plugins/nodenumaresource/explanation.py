"""The numbers behind a verdict: what a pod wants of CPUs and NUMA nodes, what there is, which policy decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from koordsched.api.quantity import format_bytes
from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.resources import CPU
from koordsched.cluster.shape import PodShape
from koordsched.framework.topologyhints import Flags, NUMAPolicy, ResourceHints, subsets_of
from koordsched.framework.topologymanager import SHARED, SINGLE
from koordsched.plugins.nodenumaresource import kinds, reasons
from koordsched.plugins.nodenumaresource.alignment import Alignment, numa_nodes
from koordsched.plugins.nodenumaresource.columns import MODES, Mode
from koordsched.plugins.nodenumaresource.demand import Demand, demand_on
from koordsched.plugins.nodenumaresource.hints import CompiledRequests, NUMASupply
from koordsched.plugins.nodenumaresource.nodes import NUMANodes
from koordsched.plugins.nodenumaresource.podrequest import NUMA_POLICY_NAMES
from koordsched.plugins.nodenumaresource.policies import BindPolicy
from koordsched.plugins.nodenumaresource.topologyoptions import amplify
from koordsched.plugins.shared import cpuset

_UNKNOWN_CPUS = "the CPUs of the node are unknown"
_MOST_HINTS = 6
"""Sets of NUMA nodes named per resource."""

_USERS = {
    SINGLE: "; pods with all their CPUs there exclude a pod on several NUMA nodes",
    SHARED: "; pods with CPUs on several NUMA nodes exclude a pod on this one alone",
}
"""What matters of a NUMA node to a pod that is exclusive."""
_UNITS = {BindPolicy.NONE: "CPU", BindPolicy.FULL_PCPUS: "whole core", BindPolicy.SPREAD_BY_PCPUS: "core"}
"""What is counted where a policy must be kept."""


class _Zone(NamedTuple):
    """A resource of a NUMA node: what the pod requests of it in all, what is left there, what it has."""

    resource: str
    needs: int
    left: int
    has: int


class _AmplifiedCPU(NamedTuple):
    """Milli-CPU of a whole node: what the pod needs, as much as that is worth; what is left; what there is."""

    needs: int
    left: int
    has: int
    bound: int
    """CPUs that pods have of their own."""
    ratio: float


class Explainer:
    """Explains rows for pods of one shape."""

    def __init__(
        self, table: NodeTable, nodes: NUMANodes, numa: NUMASupply, compiled: CompiledRequests, alignment: Alignment
    ) -> None:
        self._table = table
        self._nodes = nodes
        self._numa = numa
        self._columns = numa.columns
        self._compiled = compiled
        self._alignment = alignment

    # --- why ------------------------------------------------------------------------------------------

    def explain(self, shape: PodShape, rows: RowArray, refused: Flags) -> list[list[str]]:
        """For each row, the numbers that decide, in lines. All rows have the same mode and number of NUMA nodes.

        `refused`: where the filter refuses the row.
        """
        request = self._compiled.request(shape)
        if request.status is not None or not len(rows):
            return [[] for _ in rows]
        mode = MODES[self._columns.mode.data.item(rows[0])]
        demand = demand_on(request, mode)
        policies = list(_policies(demand, mode))
        aligned = demand.numa is not NUMAPolicy.NONE and not demand.problem
        alike = self._zones(shape, demand, rows) if aligned else [[] for _ in rows]
        masks = self._masks(shape, demand, rows, refused)
        found = []
        for row, no, zones, mask in zip(rows.tolist(), refused.tolist(), alike, masks, strict=True):
            texts = [*self._problems(row), *policies] if no else policies.copy()
            if request.cpu and mode.amplified:
                texts.append(_amplified_text(self._amplified(demand, row)))
            texts += self._cpus(demand, mode, row)
            if aligned:
                texts += self._numa_nodes(shape, demand, row, zones, refused=no)
            if not no:
                texts += self._prospects(demand, row, zones, mask)
            found.append(texts)
        return found

    def _masks(self, shape: PodShape, demand: Demand, rows: RowArray, refused: Flags) -> list[int]:
        """The NUMA nodes that would be chosen on rows that pass; 0 where none are, or any will do."""
        found = np.zeros(len(rows), dtype=np.int64)
        passing = np.flatnonzero(~refused)
        if demand.numa >= NUMAPolicy.RESTRICTED and demand.request.designated is None and len(passing):
            count = self._columns.zone_count.data.item(rows[0])
            found[passing] = self._alignment.of(shape, self._table, demand, rows[passing], count).masks
        return found.tolist()

    def _prospects(self, demand: Demand, row: int, zones: list[list[_Zone]], mask: int) -> Iterator[str]:
        """What to expect on a row that the filter accepts, which does not check everything."""
        if mask:
            yield f"it would use {_numa_nodes_text(mask)}"
        layout = self._columns.layout(row)
        short = (
            demand.binds is not None
            and layout is not None
            and (self._columns.free(row, layout).bit_count() < demand.request.cpus)
        )
        if demand.numa is NUMAPolicy.BEST_EFFORT:
            short = short or not zones or any(zone.needs > zone.left for zone in _together(zones))
        if short:
            yield "Filter accepts the node, but Reserve would reject it: too little is free"

    def _problems(self, row: int) -> Iterator[str]:
        node = self._nodes.of_row(row)
        if node is None:
            return
        for problem in node.options.problems:
            yield f"NodeResourceTopology: {problem}"
        if node.node_problem:
            yield node.node_problem

    def _amplified(self, demand: Demand, row: int) -> _AmplifiedCPU:
        """As the filter counts."""
        ratio, bound = self._columns.node_ratio.data.item(row), self._columns.held(row).bit_count()
        needs = amplify(demand.request.cpu, ratio) if demand.binds is not None else demand.request.cpu
        used = self._table.requested[CPU].data.item(row)
        if used >= bound * 1000:
            used += amplify(bound * 1000, ratio) - bound * 1000
        has = self._table.allocatable[CPU].data.item(row)
        return _AmplifiedCPU(needs, has - used, has, bound, ratio)

    def _cpus(self, demand: Demand, mode: Mode, row: int) -> Iterator[str]:
        request, layout = demand.request, self._columns.layout(row)
        if demand.problem == reasons.NOT_INTEGER:
            yield f"pods get exclusive whole CPUs there; this one requests {amount_text('cpu', request.cpu)}"
        if demand.problem or demand.binds is None:
            return
        if layout is None or not mode.cpus:
            yield _UNKNOWN_CPUS
            return
        topology, free = layout.topology, self._columns.free(row, layout)
        if request.designated is not None:
            yield f"a scheduling hint designates CPUs: {cpuset.text(request.designated.cpus) or 'none'}"
            if missing := request.designated.cpus & ~free:
                yield f"of these are not free: {cpuset.text(missing)}"
        per_core, cores = topology.cpus_per_core, topology.full_cores(free).bit_count() // topology.cpus_per_core
        counted = f"{free.bit_count()} of {layout.bits.bit_count()} free, {_counted(cores, 'whole core')}"
        if demand.required and demand.binds is BindPolicy.SPREAD_BY_PCPUS:
            counted += f"; a free CPU on {_counted(topology.one_per_core(free).bit_count(), 'core')}"
        yield f"exclusive CPUs: needs {request.cpus}; {counted}"
        if demand.required and demand.binds is BindPolicy.FULL_PCPUS and request.cpus % per_core:
            yield f"{_counted(request.cpus, 'CPU')} cannot be whole cores: a core has {per_core}"

    def _numa_nodes(
        self, shape: PodShape, demand: Demand, row: int, zones: list[list[_Zone]], *, refused: bool
    ) -> Iterator[str]:
        if not zones:
            yield "the resources of its NUMA nodes are unknown"
            return
        single = demand.numa is NUMAPolicy.SINGLE_NUMA_NODE
        users = [""] * len(zones)
        if demand.request.exclusive_numa:
            statuses = self._columns.statuses(np.array([row], dtype=np.intp), len(zones))[0].tolist()
            users = [_USERS.get(status, "") for status in statuses]
        for node, of_node in enumerate(zones):
            yield f"NUMA node {node}: {_needed(of_node) if single else _offered(of_node)}{users[node]}"
        if not single:
            yield f"together: {_needed(_together(zones))}"
        if demand.cap is not BindPolicy.NONE and self._columns.layout(row) is None:
            yield _UNKNOWN_CPUS
        elif demand.cap is not BindPolicy.NONE:
            counts = {BindPolicy.FULL_PCPUS: "whole cores", BindPolicy.SPREAD_BY_PCPUS: "one CPU of a core"}
            yield f"(the CPU left on NUMA nodes is limited to what is free as {counts[demand.cap]})"
        if not refused or demand.numa is NUMAPolicy.BEST_EFFORT:
            return
        name, enough = NUMA_POLICY_NAMES[demand.numa], all(zone.needs <= zone.left for zone in _together(zones))
        if not enough:
            yield f"{name} rejects the node: even all NUMA nodes together have too little"
        elif single and all(any(zone.needs > zone.left for zone in of_node) for of_node in zones):
            yield f"{name} rejects the node: no single NUMA node has enough"
        else:
            hints = self._alignment.hints_on(shape, self._table, demand, row, len(zones))
            yield from _hint_texts(demand, hints, len(zones))

    def _zones(self, shape: PodShape, demand: Demand, rows: RowArray) -> list[list[list[_Zone]]]:
        """By row and NUMA node: what it has of each resource that the pod requests."""
        count, wanted = self._columns.zone_count.data.item(rows[0]), self._compiled.wanted(shape)
        supply = self._numa.supply(wanted, demand, rows, count)
        anywhere = np.asarray(supply.present.any(axis=2)).tolist()
        numbers = zip(anywhere, supply.available.tolist(), supply.capacity.tolist(), strict=True)
        return [
            [
                [
                    _Zone(wanted.names[at], wanted.requested[at], left[at][node], has[at][node])
                    for at in range(wanted.asked)
                    if wanted.requested[at] and present[at]
                ]
                for node in range(count)
            ]
            for present, left, has in numbers
        ]

    # --- what would have to change ------------------------------------------------------------------------

    def remedy(self, shape: PodShape, row: int, refusal: Sequence[str]) -> str:
        """What would have to change on a row that is refused for these reasons."""
        request = self._compiled.request(shape)
        mode = MODES[self._columns.mode.data.item(row)]
        if request.status is not None or not refusal:
            return "another request"
        demand, reason = demand_on(request, mode), refusal[0]
        if reason == reasons.POLICY_MISMATCH:
            if request.numa is None:
                return f"a NUMA topology policy that exists in the pod's annotation {kinds.NUMA_TOPOLOGY_SPEC}"
            names = NUMA_POLICY_NAMES[request.numa], NUMA_POLICY_NAMES[mode.numa]
            return "a node with NUMA topology policy {} (this one has {})".format(*names)
        if reason == reasons.CONFLICT:
            return f"a node without a bind policy, or with {request.required} (this one has {mode.bind})"
        if reason == reasons.INSUFFICIENT_AMPLIFIED:
            cpu = self._amplified(demand, row)
            if cpu.needs > cpu.has:
                return f"a node with {_cpu(cpu.needs)} cpu (this one has {_cpu(cpu.has)})"
            return f"{_cpu(cpu.needs - cpu.left)} more cpu free"
        if reason == reasons.NOT_WHOLE_CORES:
            per_core = self._columns.cpus_per_core(np.array([row], dtype=np.intp)).item(0)
            return f"a request for a multiple of {per_core} CPUs, the size of a core there"
        texts = {
            reasons.NOT_INTEGER: "a request for whole CPUs",
            reasons.INVALID_RATIO: f"the node's annotation {kinds.AMPLIFICATION_RATIO} corrected",
            reasons.INVALID_TOPOLOGY: "a NodeResourceTopology that reports the CPUs of the node",
            reasons.NO_NUMA_RESOURCES: "a NodeResourceTopology that reports the CPUs of the node",
            reasons.NO_ZONES: "a NodeResourceTopology that reports the resources of the NUMA nodes",
        }
        if reason in texts:
            return texts[reason]
        if reason == reasons.NOT_ENOUGH_CPUS or demand.numa is NUMAPolicy.NONE:
            return self._more_cpus(demand, row)
        return self._more_on_numa_nodes(shape, demand, row)

    def _more_cpus(self, demand: Demand, row: int) -> str:
        layout, request = self._columns.layout(row), demand.request
        if layout is None:
            return "a NodeResourceTopology that reports the CPUs of the node"
        free = self._columns.free(row, layout)
        if request.designated is not None:
            return (
                f"the designated CPUs free: {cpuset.text(request.designated.cpus & ~free or request.designated.cpus)}"
            )
        policy = demand.binds if demand.required and demand.binds is not None else BindPolicy.NONE
        per_unit = layout.topology.cpus_per_core if policy is BindPolicy.FULL_PCPUS else 1
        units = -(-request.cpus // per_unit)
        has, most = (layout.agreeing(cpus, policy).bit_count() // per_unit for cpus in (free, layout.bits))
        if units > most:
            return f"a node with {_counted(units, _UNITS[policy])} for pods (this one has {most})"
        missing = _counted(units - has, f"more {_UNITS[policy]}")
        return f"a free CPU on {missing}" if policy is BindPolicy.SPREAD_BY_PCPUS else f"{missing} free"

    def _more_on_numa_nodes(self, shape: PodShape, demand: Demand, row: int) -> str:
        (zones,) = self._zones(shape, demand, np.array([row], dtype=np.intp))
        single = demand.numa is NUMAPolicy.SINGLE_NUMA_NODE
        offers = zones if single else [_together(zones)]
        fitting = [of_node for of_node in offers if all(zone.needs <= zone.has for zone in of_node)]
        if not fitting:
            needs = _joined(f"{amount_text(zone.resource, zone.needs)} {zone.resource}" for zone in offers[0])
            return f"a node with {needs} on {'one NUMA node' if single else 'its NUMA nodes'} (this one is smaller)"
        closest = min(fitting, key=lambda of_node: sum(max(0, z.needs - z.left) / z.needs for z in of_node))
        short = [(zone.resource, zone.needs - zone.left) for zone in closest if zone.needs > zone.left]
        if short:
            where = f"NUMA node {zones.index(closest)}" if single else "its NUMA nodes"
            return f"{_joined(f'{amount_text(name, amount)} more {name}' for name, amount in short)} free on {where}"
        if demand.request.exclusive_numa:
            kind = "CPUs on several NUMA nodes" if single else "all CPUs on one NUMA node"
            return f"enough free on NUMA nodes that no pod with {kind} uses"
        return "everything it requests free on the same NUMA nodes"


# --- texts ------------------------------------------------------------------------------------------------


def _policies(demand: Demand, mode: Mode) -> Iterator[str]:
    request = demand.request
    if demand.problem == reasons.POLICY_MISMATCH:
        wanted = NUMA_POLICY_NAMES[request.numa] if request.numa is not None else "one that does not exist"
        yield f"NUMA topology policy of the node: {NUMA_POLICY_NAMES[mode.numa]}; of the pod: {wanted}"
    elif demand.numa is not NUMAPolicy.NONE:
        yield f"NUMA topology policy: {NUMA_POLICY_NAMES[demand.numa]}, {_whose(bool(request.numa), bool(mode.numa))}"
    if mode.bind is not BindPolicy.NONE and request.required not in (BindPolicy.NONE, mode.bind):
        yield f"bind policy of the node: {mode.bind}; required by the pod: {request.required}"
    elif demand.binds is not None:
        required = _whose(request.required is not BindPolicy.NONE, mode.bind is not BindPolicy.NONE)
        yield f"bind policy: {demand.binds}, {f'required, {required}' if demand.required else 'preferred'}"


def _whose(of_pod: bool, of_node: bool) -> str:
    return "of pod and node" if of_pod and of_node else "of the pod" if of_pod else "of the node"


def _amplified_text(cpu: _AmplifiedCPU) -> str:
    own = f" ({_counted(cpu.bound, 'exclusive CPU')}, counted {cpu.ratio:g} times)" if cpu.bound else ""
    return f"amplified cpu: needs {_cpu(cpu.needs)}, {_cpu(cpu.left)} of {_cpu(cpu.has)} left{own}"


def _needed(zones: Iterable[_Zone]) -> str:
    """Insufficient resources first."""
    texts = [
        (
            zone.needs <= zone.left,
            f"{'enough' if zone.needs <= zone.left else 'too little'} {zone.resource}: "
            f"needs {amount_text(zone.resource, zone.needs)}, {_left(zone)}",
        )
        for zone in zones
    ]
    return "; ".join(text for _, text in sorted(texts, key=lambda entry: entry[0]))


def _offered(zones: Iterable[_Zone]) -> str:
    return ", ".join(f"{zone.resource} {_left(zone)}" for zone in zones)


def _left(zone: _Zone) -> str:
    return f"{amount_text(zone.resource, zone.left)} of {amount_text(zone.resource, zone.has)} left"


def _together(zones: Sequence[Sequence[_Zone]]) -> list[_Zone]:
    return [
        _Zone(each[0].resource, each[0].needs, sum(zone.left for zone in each), sum(zone.has for zone in each))
        for each in zip(*zones, strict=True)
    ]


def _hint_texts(demand: Demand, hints: Sequence[ResourceHints], count: int) -> Iterator[str]:
    """Which sets of NUMA nodes could serve the resources, and why the policy takes none of them."""
    subsets, name = subsets_of(count), NUMA_POLICY_NAMES[demand.numa]
    common = np.ones(len(subsets), dtype=np.bool_)
    resources: dict[tuple[str, ...], list[str]] = {}
    for hint in hints:
        if hint.applies[0]:
            common &= hint.preferred[0]
            found = tuple("+".join(map(str, numa_nodes(mask))) for mask in subsets.masks[hint.possible[0]].tolist())
            resources.setdefault(found, []).append(hint.resource)
    for found, of in resources.items():
        rest = f" and {len(found) - _MOST_HINTS} more sets" if len(found) > _MOST_HINTS else ""
        sets = f"NUMA nodes {', '.join(found[:_MOST_HINTS])}{rest}" if found else "none"
        yield f"hints for {_joined(of)}: {sets}"
    if () in resources:
        yield f"{name} rejects the node: no set of NUMA nodes serves {_joined(resources[()])}"
    elif not common.any():
        yield f"{name} rejects the node: no set is preferred for all resources"
    elif demand.numa is NUMAPolicy.SINGLE_NUMA_NODE and not common[subsets.sizes == 1].any():
        yield f"{name} rejects sets of several NUMA nodes"
    elif demand.request.exclusive_numa:
        yield f"{name} rejects them because of the pods that use these NUMA nodes"


def _numa_nodes_text(mask: int) -> str:
    nodes = numa_nodes(mask)
    return f"NUMA node {nodes[0]}" if len(nodes) == 1 else f"NUMA nodes {_joined(map(str, nodes))}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _joined(texts: Iterable[str]) -> str:
    return " and ".join(texts)


def _cpu(amount: int) -> str:
    return amount_text("cpu", amount)


def amount_text(resource: str, amount: int) -> str:
    """CPUs, GiB of memory, or how many of something else."""
    if resource == "cpu":
        return f"{amount / 1000:.12g}"
    if resource == "memory" or resource.startswith("hugepages-"):
        return f"{round(amount / (1 << 30), 2):.12g}Gi"
    return format_bytes(amount)
