"""The plugin: PreFilter, Filter, Score, Reserve, PreBind and queueing hints (nodenumaresource spec 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, reduce
from operator import or_
from typing import Any

import numpy as np

from koordsched.cluster.changelog import Facet, RowArray
from koordsched.cluster.events import ASSIGNED_POD, NODE, ActionType, ClusterEvent
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.pod import Pod
from koordsched.cluster.resources import CPU
from koordsched.cluster.shape import PodShape
from koordsched.framework.explaining import ExplainsNodes
from koordsched.framework.handle import Handle
from koordsched.framework.interface import (
    CycleState,
    PreBind,
    PreFilterResult,
    Reserve,
    Scores,
    ShapeFilter,
    ShapePreFilter,
    ShapeScore,
)
from koordsched.framework.reservations import Reserved, ScoresReserved, as_reserved, confined
from koordsched.framework.status import PASS, SKIP, SUCCESS, Code, Codes, Status
from koordsched.framework.topologyhints import UNDECIDED, Amounts, NUMAPolicy
from koordsched.plugins.nodenumaresource import kinds
from koordsched.plugins.nodenumaresource.alignment import NODE_SCORE, Alignment
from koordsched.plugins.nodenumaresource.allocation import Allocation
from koordsched.plugins.nodenumaresource.allocator import Allocator
from koordsched.plugins.nodenumaresource.args import DEFAULT_ARGS, AllocationStrategy, NodeNUMAResourceArgs
from koordsched.plugins.nodenumaresource.columns import MODES, PLAIN, Mode
from koordsched.plugins.nodenumaresource.demand import Demand, demand_on
from koordsched.plugins.nodenumaresource.explanation import Explainer
from koordsched.plugins.nodenumaresource.giving import Given, Giving
from koordsched.plugins.nodenumaresource.hints import CompiledRequests, NUMAHintProvider, NUMASupply
from koordsched.plugins.nodenumaresource.nodes import NUMA_CHANGED, NUMANodes
from koordsched.plugins.nodenumaresource.nodescores import NodeScores
from koordsched.plugins.nodenumaresource.podrequest import completed
from koordsched.plugins.nodenumaresource.policies import AllocateStrategy, BindPolicy
from koordsched.plugins.nodenumaresource.reasons import (
    CONFLICT,
    INSUFFICIENT_AMPLIFIED,
    INVALID_RATIO,
    INVALID_TOPOLOGY,
    NO_NUMA_RESOURCES,
    NO_ZONES,
    NOT_ENOUGH_CPUS,
    NOT_WHOLE_CORES,
    POLICY_MISMATCH,
    UNRESOLVABLE,
    UNSCHEDULABLE,
)
from koordsched.plugins.nodenumaresource.reserved import ReservedCPUs
from koordsched.plugins.nodenumaresource.scoring import AllocationScore
from koordsched.plugins.nodenumaresource.supply import amplified
from koordsched.plugins.shared.matching.rows import count_of, single
from koordsched.plugins.shared.priorityclass import LABELS
from koordsched.queue.hints import HintRegistration, QueueingHint, Scope

FILTER_BY_FREE_CPUS = "NUMAResourceFilterByFreeCPUs"
"""The feature gate with which Filter counts free CPUs for all pods that get some."""


class NodeNUMAResource(ShapePreFilter, ShapeFilter, ShapeScore, Reserve, PreBind, ExplainsNodes, ScoresReserved):
    """Gives pods exclusive CPUs, and aligns what they use to NUMA nodes."""

    name = "NodeNUMAResource"
    only_patches = True
    changed = NUMA_CHANGED

    def __init__(self, args: NodeNUMAResourceArgs | None, handle: Handle) -> None:
        """The arguments must be valid."""
        args = args or DEFAULT_ARGS
        scoring = args.scoring_strategy or AllocationStrategy()
        numa_type = args.numa_scoring_strategy.type if args.numa_scoring_strategy is not None else ""
        cluster = handle.cluster
        cluster.shape_facts.declare(labels=LABELS)
        self._cluster, self.table = cluster, cluster.table
        self.nodes: NUMANodes = cluster.shared(lambda state: NUMANodes(state, handle), key=NUMANodes)
        self.columns = columns = self.nodes.columns
        self._providers = handle.topology_hint_providers
        score = AllocationScore(scoring.type, scoring)
        self._numa = NUMASupply(columns, AllocationScore(numa_type, scoring))
        self._node_scores = NodeScores(cluster.table, columns, self._numa, score)
        self.compiled = CompiledRequests(
            self._numa, cluster.table.resource_names.names, BindPolicy(args.default_cpu_bind_policy or "")
        )
        self._strategy = AllocateStrategy(numa_type)
        self._counts_free_cpus = FILTER_BY_FREE_CPUS in handle.features
        """Upstream lets pods whose bind policy is only preferred onto nodes with too few CPUs: Reserve then refuses
        them, and they are tried on the same node again and again."""
        intern = handle.reasons.intern
        self._codes = {text: intern(self.name, Code.UNSCHEDULABLE, text) for text in UNSCHEDULABLE}
        self._codes |= {text: intern(self.name, Code.UNRESOLVABLE, text) for text in UNRESOLVABLE}
        self._reasons = handle.reasons
        handle.topology_hint_providers.append(NUMAHintProvider(self._numa, self.compiled, self._codes[NOT_ENOUGH_CPUS]))
        self.alignment = Alignment(
            self.name, self._numa, self.compiled, score, handle.topology_hint_providers, handle.reasons
        )
        self._allocator = Allocator(cluster, self._numa)
        self._giving = Giving(
            cluster.table, columns, self.compiled, self.alignment, self._allocator, self.strategy_on, handle.reasons
        )
        self._reserved = ReservedCPUs(columns)
        self._reserved_allocations = handle.reserved_allocations
        self._reserved_allocations.append(self)
        self._explainer = Explainer(self.table, self.nodes, self._numa, self.compiled, self.alignment)

        handle.numa_alignment = self

    @cached_property
    def facets(self) -> int:  # type: ignore[override]  # providers are registered after it was made
        """Those of all that has a say in NUMA nodes."""
        return reduce(or_, (provider.facets for provider in self._providers), Facet.RESOURCES)

    def affinities(self, shape: PodShape, table: NodeTable, rows: RowArray) -> Amounts | None:
        """See NUMAAlignment."""
        request = self.compiled.request(shape)
        if request.status is not None or request.designated is not None:
            return None
        found: Amounts | None = None
        for mode, at, of_mode in self._by_mode(rows):
            demand = demand_on(request, mode)
            if demand.problem or demand.numa < NUMAPolicy.RESTRICTED or not mode.zones:
                continue
            if demand.cap is not BindPolicy.NONE and not mode.cpus:
                continue
            if found is None:
                found = np.full(len(rows), UNDECIDED, dtype=np.int64)
            count = self.columns.zone_count.data.item(of_mode[0])
            found[at] = self.alignment.of(shape, table, demand, of_mode, count).masks
        return found

    def allocations_on(self, row: int) -> Iterator[tuple[Pod, Allocation]]:
        """The pods on a row that were given something, or might have been, with what they were given."""
        for pod in self._cluster.pods_on(row).values():
            given = self.columns.allocation.of(pod)
            if given is not None:
                yield pod, given

    def strategy_on(self, row: int) -> AllocateStrategy:
        """Which NUMA nodes of a row come first."""
        node = self.nodes.of_row(row)
        return node.strategy if node is not None and node.strategy is not None else self._strategy

    # --- filter ----------------------------------------------------------------------------------

    def pre_filter_shape(self, shape: PodShape) -> PreFilterResult | Status:
        """Rejects pods whose annotations cannot be read, or that want parts of CPUs as their own."""
        status = self.compiled.request(shape).status
        return SUCCESS if status is None else status

    def filter_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Codes | None:
        """See ShapeFilter."""
        request = self.compiled.request(shape)
        row = single(rows)
        if row >= 0:
            number = self.columns.mode.data.item(row)
            if number == PLAIN and not request.binds and request.numa is NUMAPolicy.NONE:
                return None
            codes = self._filter(shape, table, MODES[number], np.array((row,), dtype=np.intp))
            return codes if codes is not None and codes.any() else None
        found = np.zeros(count_of(rows), dtype=np.int32)
        for mode, at, of_mode in self._by_mode(rows):
            codes = self._filter(shape, table, mode, of_mode)
            if codes is not None:
                found[at] = codes
        return found if found.any() else None

    def _by_mode(self, rows: Rows) -> Iterator[tuple[Mode, Any, RowArray]]:
        """(mode, positions, rows) of those rows that have the same mode and number of NUMA nodes."""
        every = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        columns = self.columns
        if len(every) == 1:
            yield MODES[columns.mode.data.item(every[0])], slice(None), every
            return
        keys = columns.mode.data[rows].astype(np.int64) << 8 | columns.zone_count.data[rows]
        distinct = np.unique(keys).tolist()
        if len(distinct) == 1:
            yield MODES[distinct[0] >> 8], slice(None), every
            return
        for key in distinct:
            at = np.flatnonzero(keys == key)
            yield MODES[key >> 8], at, every[at]

    def _filter(self, shape: PodShape, table: NodeTable, mode: Mode, rows: RowArray) -> Codes | None:
        """The verdicts on rows of one mode and number of NUMA nodes, in the order of nodenumaresource spec 3.2."""
        request = self.compiled.request(shape)
        demand = demand_on(request, mode)
        problem = demand.problem or self._problem(demand, mode)
        designated = demand.request.designated
        if designated is not None and demand.problem != POLICY_MISMATCH:
            if demand.binds is None and demand.numa is NUMAPolicy.NONE:
                return None
            return self._filter_designated(shape, demand, designated, mode, rows)
        if problem:
            return np.full(len(rows), self._codes[problem], dtype=np.int32)
        verdicts = _Verdicts(rows)
        if request.cpu and mode.amplified:
            verdicts.refuse(self._lacks_amplified_cpu(demand, table, rows), self._codes[INSUFFICIENT_AMPLIFIED])
        if demand.binds is not None:
            if not mode.cpus:
                verdicts.refuse(True, self._codes[INVALID_TOPOLOGY])
                return verdicts.codes
            required = mode.bind if mode.bind is not BindPolicy.NONE else request.required
            if required is not BindPolicy.NONE:
                if request.required not in (BindPolicy.NONE, required):
                    verdicts.refuse(True, self._codes[CONFLICT])
                    return verdicts.codes
                if required is BindPolicy.FULL_PCPUS:
                    partly = request.cpus % self.columns.cpus_per_core(verdicts.rows) != 0
                    verdicts.refuse(partly, self._codes[NOT_WHOLE_CORES])
                if demand.numa is NUMAPolicy.NONE:
                    if len(verdicts.rows):
                        usable = self.columns.usable_in_all(verdicts.rows, required)
                        verdicts.refuse(usable < request.cpus, self._codes[NOT_ENOUGH_CPUS])
                    return verdicts.codes
            if self._counts_free_cpus and demand.numa <= NUMAPolicy.BEST_EFFORT and len(verdicts.rows):
                few = self.columns.usable_in_all(verdicts.rows, demand.cap) < request.cpus
                verdicts.refuse(few, self._codes[NOT_ENOUGH_CPUS])
        if demand.numa >= NUMAPolicy.RESTRICTED and len(verdicts.rows):
            if not mode.zones:
                verdicts.refuse(True, self._codes[NO_ZONES])
            elif demand.cap is not BindPolicy.NONE and not mode.cpus:
                verdicts.refuse(True, self._codes[NO_NUMA_RESOURCES])
            else:
                count = self.columns.zone_count.data.item(rows[0])
                codes = self.alignment.of(shape, table, demand, verdicts.rows, count).codes
                verdicts.refuse_by(codes.astype(np.int32))
        return verdicts.codes

    def _filter_designated(
        self, shape: PodShape, demand: Demand, designated: Allocation, mode: Mode, rows: RowArray
    ) -> Codes:
        """Such pods mostly name their node, too. So each row is tried for itself, where the CPUs are free."""
        codes = np.where(self._allocator.is_free(designated, rows), np.int32(PASS), self._codes[NOT_ENOUGH_CPUS])
        for at in np.flatnonzero(codes == PASS).tolist():
            status = self._giving.allocate(shape, demand, mode, int(rows[at]))
            if isinstance(status, Status):
                codes[at] = self._reasons.intern(self.name, status.code, *status.reasons)
        return codes.astype(np.int32)

    @staticmethod
    def _problem(demand: Demand, mode: Mode) -> str:
        if demand.request.cpu and mode.malformed:
            return INVALID_RATIO
        return INVALID_TOPOLOGY if demand.request.cpu and mode.amplified and mode.invalid else ""

    def _lacks_amplified_cpu(self, demand: Demand, table: NodeTable, rows: RowArray) -> Any:
        """bool[rows]: where CPUs of their own, counted as much as they are worth, leave too little CPU for the pod."""
        ratios = self.columns.node_ratio.data[rows]
        wanted = np.full(len(rows), demand.request.cpu, dtype=np.int64)
        if demand.binds is not None:
            wanted = amplified(wanted, ratios)
        used = table.requested[CPU].data[rows]
        bound = self.columns.bound_in_all(rows) * 1000
        used = np.where(used >= bound, used - bound + amplified(bound, ratios), used)
        return wanted > table.allocatable[CPU].data[rows] - used

    # --- score -----------------------------------------------------------------------------------

    def skips(self, shape: PodShape) -> bool:
        """Pods without requests are not scored."""
        return self.compiled.request(shape).status is not None

    def score_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Scores:
        """0..100 by how full the node, or the NUMA nodes that the pod would use, would be."""
        row = single(rows)
        if row >= 0:
            mode = MODES[self.columns.mode.data.item(row)]
            return self._score_mode(shape, table, mode, np.array((row,), dtype=np.intp))
        found = np.zeros(count_of(rows), dtype=np.int64)
        for mode, at, of_mode in self._by_mode(rows):
            found[at] = self._score_mode(shape, table, mode, of_mode)
        return found

    def _score_mode(self, shape: PodShape, table: NodeTable, mode: Mode, rows: RowArray) -> Amounts:
        demand = demand_on(self.compiled.request(shape), mode)
        if demand.problem or mode.malformed or (demand.binds is not None and not mode.cpus):
            return np.zeros(len(rows), dtype=np.int64)
        if demand.numa is NUMAPolicy.NONE:
            return self._node_scores.of(shape, demand, table, rows, allocated=False)
        if demand.numa is not NUMAPolicy.BEST_EFFORT and mode.zones:
            count = self.columns.zone_count.data.item(rows[0])
            scores = self.alignment.of(shape, table, demand, rows, count).scores
        else:
            scores = np.full(len(rows), NODE_SCORE, dtype=np.int64)
        of_node = np.flatnonzero(scores == NODE_SCORE)
        if len(of_node):
            rated = self._node_scores.of(shape, demand, table, rows[of_node], allocated=True)
            if demand.binds is not None:
                rated[self.columns.usable_in_all(rows[of_node], demand.cap) < demand.request.cpus] = 0
            scores[of_node] = rated
        return scores

    # --- reserve and bind --------------------------------------------------------------------------

    def reserve(self, cycle: CycleState, pod: Pod, row: int) -> Status:
        """Picks CPUs and amounts of NUMA nodes."""
        if cycle.reservations is None:
            given, affinity = self._decide(pod.shape, row, None)
        else:
            with (
                as_reserved(self._cluster, cycle.reservations, row) as reserved,
                confined(self._reserved_allocations, row, reserved),
            ):
                given, affinity = self._decide(pod.shape, row, reserved)
        if isinstance(given, Status):
            return given
        cycle.numa_affinity = affinity
        if given is not None:
            cycle.state[self.name] = given
            self._cluster.allocate(pod, self.columns.allocation, given.allocation)
        return SUCCESS

    def _decide(self, shape: PodShape, row: int, reserved: Reserved | None) -> tuple[Given | Status | None, int | None]:
        """What a pod gets, and on which NUMA nodes it is to use devices."""
        given = self._giving.given(shape, row, reserved)
        if isinstance(given, Status) or len(self.alignment.providers(shape)) < 2:
            return given, None
        return given, self._giving.affinity(shape, row)

    def unreserve(self, cycle: CycleState, pod: Pod, row: int) -> None:
        """Gives back what Reserve took."""
        if cycle.state.pop(self.name, None) is not None and self.columns.allocation.of(pod) is not None:
            self._cluster.allocate(pod, self.columns.allocation, None)

    def pre_bind_pre_flight(self, cycle: CycleState, pod: Pod, node: str) -> Status:
        """SKIP for pods that were given nothing, and say so."""
        return SUCCESS if self.name in cycle.state or _shows_allocation(pod) else SKIP

    async def pre_bind(self, cycle: CycleState, pod: Pod, node: str) -> Status:
        """Annotates the pod with what it was given, and with the policy that was kept.

        What an earlier, failed attempt wrote, for another node, is removed: the pod would be counted with it.
        """
        given: Given | None = cycle.state.get(self.name)
        if given is None:
            cycle.patch.annotate(kinds.RESOURCE_STATUS, None)
            return SUCCESS
        cycle.patch.annotate(kinds.RESOURCE_STATUS, self.columns.allocation.text(given.allocation))
        if given.demand.binds is not None:
            spec = completed(pod.shape, given.demand.binds, required=given.demand.required)
            if spec is not None:
                cycle.patch.annotate(kinds.RESOURCE_SPEC, spec)
        return SUCCESS

    # --- reservations ------------------------------------------------------------------------------

    def concerns(self, shape: PodShape, row: int) -> bool:
        """See ReservedAllocation, NUMAAlignment."""
        demand = demand_on(self.compiled.request(shape), MODES[self.columns.mode.data.item(row)])
        return demand.binds is not None or demand.numa is not NUMAPolicy.NONE

    def allocates_from(self, cycle: CycleState, pod: Pod, row: int, reserved: Reserved | None) -> Status:
        """See ReservedAllocation."""
        with confined(self._reserved_allocations, row, reserved):
            given = self._giving.given(pod.shape, row, reserved)
        return given if isinstance(given, Status) else SUCCESS

    def score_reserved(self, cycle: CycleState, pod: Pod, row: int, reserved: Reserved) -> int:
        """See ReservedAllocation: all are as good."""
        return 0

    def score_using(self, cycle: CycleState, pod: Pod, row: int, reserved: Reserved) -> int | None:
        """See ScoresReserved: what the reservation leaves to its owners."""
        if self.skips(pod.shape) or not self.concerns(pod.shape, row):
            return None
        with confined(self._reserved_allocations, row, reserved):
            scores = self.score_rows(pod.shape, self.table, np.array((row,), dtype=np.intp))
        return scores if isinstance(scores, int) else scores.item(0)

    def confined(self, row: int, reserved: Reserved) -> AbstractContextManager[None]:
        """See ReservedAllocation."""
        return self._reserved.confined(row, reserved)

    # --- explanations ------------------------------------------------------------------------------

    def explain_nodes(self, shape: PodShape, rows: RowArray) -> list[list[str]]:
        """What the pod wants of the nodes' CPUs and NUMA nodes, and what these have."""
        found: list[list[str]] = [[]] * len(rows)
        codes = self.filter_rows(shape, self.table, rows)
        refused = (codes != PASS) if codes is not None else np.zeros(len(rows), dtype=np.bool_)
        for _, at, of_mode in self._by_mode(rows):
            texts = self._explainer.explain(shape, of_mode, refused[at])
            for position, text in zip(np.arange(len(rows))[at].tolist(), texts, strict=True):
                found[position] = text
        return found

    def remedy(self, shape: PodShape, row: int) -> str:
        """What the NUMA nodes or CPUs lack, or which policy would have to be another."""
        codes = self.filter_rows(shape, self.table, slice(row, row + 1))
        reasons = self._reasons[codes.item(0)].texts if codes is not None else ()
        return self._explainer.remedy(shape, row, reasons)

    # --- queueing hints ----------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """Pods that go or shrink, new nodes, nodes with other CPUs, NUMA nodes, devices, policies or more room: if they
        will do now, or might after preemption."""
        freed = ActionType.DELETE | ActionType.UPDATE_POD_SCALE_DOWN
        grown = ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE
        return [
            *(
                HintRegistration(self.name, provider.changed, self._after_numa_change, Scope.SHAPE)
                for provider in self._providers
            ),
            HintRegistration(self.name, ClusterEvent(ASSIGNED_POD, freed), self._after_pod_left, Scope.SHAPE),
            HintRegistration(self.name, ClusterEvent(NODE, grown), self._after_node_grown, Scope.SHAPE),
        ]

    def _after_numa_change(self, pod: Pod, old: None, new: int) -> QueueingHint:
        return self._if_helps(pod, new)

    def _after_pod_left(self, pod: Pod, old: Pod, new: Pod | None) -> QueueingHint:
        row = self.table.row_of.get(old.node)
        return QueueingHint.SKIP if row is None else self._if_helps(pod, row)

    def _after_node_grown(self, pod: Pod, old: Any, new: Any) -> QueueingHint:
        row = self.table.row_of.get(new.metadata.name)
        return QueueingHint.SKIP if row is None else self._if_helps(pod, row)

    def _if_helps(self, pod: Pod, row: int) -> QueueingHint:
        """Whether the pod has room on the row, or might have without pods of lower priority. Reserve refuses some pods
        that pass the filter: they must get devices, too.
        """
        codes = self.filter_rows(pod.shape, self.table, slice(row, row + 1))
        if codes is None and not isinstance(self._giving.given(pod.shape, row), Status):
            return QueueingHint.QUEUE
        lasting = codes is not None and self._reasons[codes.item(0)].code is not Code.UNSCHEDULABLE
        if lasting or pod.shape.never_preempts:
            return QueueingHint.SKIP
        less = any(other.priority < pod.priority for other in self._cluster.pods_on(row).values())
        return QueueingHint.QUEUE if less else QueueingHint.SKIP


def _shows_allocation(pod: Pod) -> bool:
    return pod.wire is not None and kinds.RESOURCE_STATUS in pod.wire.metadata.annotations


class _Verdicts:
    """Verdicts on rows, one question after the other: later ones are about the rows that still pass."""

    __slots__ = ("_at", "codes", "rows")

    def __init__(self, rows: RowArray) -> None:
        self.codes: Codes = np.zeros(len(rows), dtype=np.int32)
        self.rows = rows
        self._at: RowArray | None = None

    def refuse(self, fails: Any, code: int) -> None:
        """`fails`: bool[rows still passing], or True for all."""
        self.refuse_by(np.broadcast_to(fails, len(self.rows)) * np.int32(code))

    def refuse_by(self, codes: Codes) -> None:
        """A reason number for each row that still passes, or 0."""
        if not codes.any():
            return
        at = np.arange(len(self.codes)) if self._at is None else self._at
        self.codes[at] = codes
        passing = codes == PASS
        self._at, self.rows = at[passing], self.rows[passing]
