"""The plugin: which Reservations pods may use, and reserve pods themselves (reservation spec 3.4 to 3.6, 3.10)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.config.plugin_args import DefaultPreemptionArgs
from koordsched.framework.dryruns import DryRunFilter, FilterDryRun, PodIndependent, Tally
from koordsched.framework.explaining import ExplainsPods
from koordsched.framework.handle import WARNING, Handle, WriteFailed
from koordsched.framework.interface import (
    AfterPostFilter,
    BeforePreFilter,
    Bind,
    CycleState,
    FewScores,
    PodScore,
    PostFilter,
    PostFilterResult,
    PreBind,
    PreFilter,
    PreFilterResult,
    Reserve,
    Scores,
)
from koordsched.framework.status import PASS, SKIP, SUCCESS, Code, Codes, Status
from koordsched.plugins.reservation.annotations import Allocated, allocated_text
from koordsched.plugins.reservation.args import ReservationArgs
from koordsched.plugins.reservation.cache import ReservationCache
from koordsched.plugins.reservation.choosing import Choosing
from koordsched.plugins.reservation.explanation import Explaining
from koordsched.plugins.reservation.fitting import Fitting, utilization
from koordsched.plugins.reservation.info import ReservationInfo
from koordsched.plugins.reservation.judging import FEW, Judging, among
from koordsched.plugins.reservation.kinds import (
    DISABLE_PREEMPTIBLE,
    RESERVATION_ALLOCATED,
    RESERVATION_NODE,
    RESERVATIONS,
)
from koordsched.plugins.reservation.matched import MatchedReservations
from koordsched.plugins.reservation.matching import Matching
from koordsched.plugins.reservation.messages import event_text, reasons
from koordsched.plugins.reservation.operating import is_operating
from koordsched.plugins.reservation.preallocation import NO_POD, PreAllocatable, PreAllocation
from koordsched.plugins.reservation.stayers import Stayers
from koordsched.plugins.reservation.takeover import TakeOver
from koordsched.plugins.reservation.waking import Waking
from koordsched.plugins.shared.preemption.evaluator import Evaluator
from koordsched.queue.hints import HintRegistration

NO_RESERVATION = "node(s) no reservations match reservation affinity"
OTHER_NODE = "node(s) didn't match the nodeName specified by reservation"
POLICY_CONFLICT = "node(s) reservation allocate policy conflict"

_PREFERRED = 1000
"""The raw score of the node with the smallest order: more than any utilization."""


class Reservation(
    BeforePreFilter,
    PreFilter,
    DryRunFilter,
    PostFilter,
    AfterPostFilter,
    PodScore,
    Reserve,
    PreBind,
    Bind,
    ExplainsPods,
):
    """Keeps reserved room for owners, and gives it to them."""

    name = "Reservation"
    only_patches = True
    carries_annotations = True

    def __init__(self, args: ReservationArgs | None, handle: Handle) -> None:
        """The arguments must be valid."""
        args = args or ReservationArgs()
        self._handle = handle
        self._cluster = cluster = handle.cluster
        self.table = cluster.table
        self.reservations = cluster.objects.of(RESERVATIONS)
        self.cache: ReservationCache = cluster.shared(
            lambda state: ReservationCache(state, handle), key=ReservationCache
        )
        self.selector_index = args.reservation_selector_index
        features = handle.features
        self.matching = Matching(
            cluster,
            self.cache,
            lambda cycle, row, infos, matched: self._choosing.choose(cycle, row, infos, matched),
            plugin=self.name,
            omit_node_labels="OmitNodeLabelsForReservation" in features,
        )
        self.fitting = Fitting(cluster.table, args.ignores, skips_single="SkipReservationFitsNode" in features)
        self._choosing = Choosing(
            self.name, self.fitting, lambda pod: self.matching.terms(pod).affinity, handle.reserved_allocations
        )
        self._take_over = TakeOver(cluster, handle.writes, self.cache.allocated)
        self._pre_allocation = PreAllocation(
            cluster,
            self.cache,
            self.matching,
            self.fitting,
            args.pre_allocation_config,
            handle.reserved_allocations,
            partial(Stayers, self.name, handle),
        )
        self._judging = Judging(self.name, handle.reasons, self._choosing, self._pre_allocation)
        self._waking = Waking(
            self.name, cluster.table, self.cache, self.matching, self._pre_allocation.may_come_to_take
        )
        self._explaining = Explaining(self.cache, self.matching, cluster.table, self._why_not)
        self._evaluator: Evaluator | None = None
        if args.enable_preemption:
            preemption = DefaultPreemptionArgs(
                min_candidate_nodes_percentage=args.min_candidate_nodes_percentage,
                min_candidate_nodes_absolute=args.min_candidate_nodes_absolute,
            )
            self._evaluator = Evaluator(self.name, preemption, handle, _is_spared)
        self._owner = Tally((Reservation, "owner"), lambda pod: int(self.cache.allocated.of(pod) is not None))
        intern = handle.reasons.intern
        self._conflict = intern(self.name, Code.UNRESOLVABLE, POLICY_CONFLICT)
        self._other_node = intern(self.name, Code.UNRESOLVABLE, OTHER_NODE)
        self._no_reservation = intern(self.name, Code.UNRESOLVABLE, NO_RESERVATION)

    # --- PreFilter and Filter ------------------------------------------------------------------------

    def before_pre_filter(self, cycle: CycleState, pod: Pod) -> Status:
        """Finds the Reservations that the pod may use, whose room counts as free for it. SKIP if there are none that
        concern it."""
        cycle.reservations = None
        index = self.cache.index
        if (
            index.non_owners.get(pod.labels) is pod.shape
            and not pod.virtual
            and (not index.others or not index.concerns_otherwise(pod))
        ):
            return SKIP
        if pod.virtual:
            info = self.cache.get(pod.uid)
            return self._pre_allocation.prepare(cycle, info) if info is not None else SUCCESS
        terms = self.matching.terms(pod)
        if terms.problem:
            return Status(Code.ERROR, (terms.problem,))
        if not terms.only_owns or index.concerns(pod):
            cycle.reservations = matched = self.matching.match(cycle, terms)
            if matched is not None and matched.usable.acting:
                matched.stayers = Stayers(self.name, self._handle, cycle, matched.acting())
        elif not is_operating(pod.labels.labels):
            index.add_non_owner(pod)
            return SKIP
        return SUCCESS

    def pre_filter(self, cycle: CycleState, pod: Pod) -> PreFilterResult | Status:
        """SKIP if no Reservation concerns the pod; the nodes of those that it may use if it needs one."""
        if pod.virtual:
            if self.cache.get(pod.uid) is None:
                return Status(Code.ERROR, ("cannot get reservation, err: not found",))
            taking = _taking(cycle)
            if taking is None or not taking.required:
                return SUCCESS
            if not taking.by_row:
                return Status(Code.UNRESOLVABLE, (NO_POD,))
            return PreFilterResult(frozenset(self.table.names[row] for row in taking.by_row))
        skipped = SUCCESS if is_operating(pod.labels.labels) else SKIP
        if cycle.reservations is None or (matched := _matched(cycle)) is None:
            return skipped
        if not matched.required:
            return SUCCESS if matched.by_row else skipped
        if not matched.by_row:
            return Status(Code.UNRESOLVABLE, (NO_RESERVATION,))
        return PreFilterResult(frozenset(self._cluster.table.names[row] for row in matched.by_row))

    def filter(self, cycle: CycleState, pod: Pod, table: NodeTable, rows: RowArray) -> Codes | None:
        """Rows where the pod may use Reservations, but fits into none and not beside them; of a reserve pod, rows with
        Reservations of another policy."""
        if pod.virtual:
            return self._filter_reserve_pod(cycle, pod, table, rows)
        codes = np.zeros(len(rows), dtype=np.int32)
        matched = _matched(cycle)
        if matched is not None and matched.ignored:
            if matched.stayers is not None:
                self._judging.ignoring(cycle, rows, codes, matched.stayers)
        elif matched is not None:
            if matched.required:
                codes[:] = self._no_reservation
            if matched.stayers is not None:
                self._judging.beside(cycle, pod, rows, codes, matched, matched.stayers)
            else:
                self._judging.matched(cycle, pod, rows, codes, matched)
        if is_operating(pod.labels.labels):
            codes[self.cache.unbound.data[rows] > 0] = self._conflict
        return codes if codes.any() else None

    def refused_among_all(
        self, cycle: CycleState, pod: Pod, reaches: Callable[[int], bool]
    ) -> list[tuple[int, int]] | None:
        """Where the pod may use Reservations on few rows, but need not: those of them where it has no room."""
        matched = _matched(cycle)
        if matched is None or matched.ignored or matched.required or matched.usable.overlay.lasting:
            return None
        if len(matched.by_row) > FEW or not matched.decides or matched.stayers is not None:
            return None
        if pod.virtual or is_operating(pod.labels.labels):
            return None
        return self._judging.few(cycle, pod, reaches, matched)

    def dry_run(self, cycle: CycleState, pod: Pod, coming: Iterable[Pod]) -> FilterDryRun:
        """Where owners of Reservations leave or come, what these have left changes: a what-if for each."""
        matched = _matched(cycle)
        stay = matched is not None and matched.stayers is not None and matched.stayers.matter(coming)
        return PodIndependent(self, cycle, pod, one_by_one=_ANY if stay else self._owner)

    def _filter_reserve_pod(self, cycle: CycleState, pod: Pod, table: NodeTable, rows: RowArray) -> Codes | None:
        info = self.cache.get(pod.uid)
        if info is None:
            return None
        others = self.cache.unbound if info.bound_policy else self.cache.bound
        codes = np.where(others.data[rows] > 0, np.int32(self._conflict), np.int32(PASS)).astype(np.int32)
        pinned = pod.wire.metadata.annotations.get(RESERVATION_NODE, "") if pod.wire is not None else ""
        if pinned:
            codes[rows != table.row_of.get(pinned, -1)] = self._other_node
        taking = _taking(cycle)
        if taking is not None and taking.stayers is not None:
            self._judging.taking(cycle, rows, codes, taking, taking.stayers)
        return codes if codes.any() else None

    # --- score -------------------------------------------------------------------------------------

    def abstains(self, cycle: CycleState, pod: Pod) -> bool:
        """Where no Reservation concerns the pod."""
        if cycle.reservations is None:
            return True
        if pod.virtual:
            taking = _taking(cycle)
            return taking is None or not taking.by_row
        matched = _matched(cycle)
        return matched is None or matched.ignored or not matched.by_row

    def few(self, cycle: CycleState, pod: Pod, codes: Codes) -> FewScores | None:
        """What `score` and `normalize` say of the rows that Filter decided about, where no order does."""
        matched = _matched(cycle)
        if matched is None or not matched.decided or matched.usable.orders:
            return None
        if (single := matched.scored_alone(codes)) is not None:
            return FewScores(single[:1], single[1:], (100,))
        rows, scores = matched.scored(codes)
        return FewScores(rows, scores, scores * 100 // scores.max() if len(scores) else scores)

    def pre_score(self, cycle: CycleState, pod: Pod, rows: RowArray) -> Status:
        """Finds the row with the smallest order."""
        if pod.virtual:
            return SKIP if self.abstains(cycle, pod) else SUCCESS
        matched = _matched(cycle)
        if matched is None or matched.ignored or not matched.by_row:
            return SKIP
        if orders := matched.usable.orders:
            feasible = {row for _, row in among(rows, matched)}
            matched.preferred = min(
                ((order, row) for row, order in orders.items() if row in feasible), default=(0, -1)
            )[1]
        return SUCCESS

    def score(self, cycle: CycleState, pod: Pod, table: NodeTable, rows: RowArray) -> Scores:
        """How full the Reservation would become that the pod would use; of one that takes pods over, how few it
        takes, or how full the one makes it."""
        if (taking := _taking(cycle)) is not None:
            return np.array([self._pre_allocation.score(row, taking) for row in rows.tolist()], dtype=np.int64)
        scores = np.zeros(len(rows), dtype=np.int16)
        matched = _matched(cycle)
        assert matched is not None, "it abstains where no Reservation concerns the pod"
        if matched.decided:
            where, found = matched.kept_scores(rows)
            scores[where] = found
        else:
            for at, row in among(rows, matched):
                if (info := matched.chosen_info(row)) is not None:
                    scores[at] = utilization(pod, info)
        if matched.preferred >= 0:
            scores[rows == matched.preferred] = _PREFERRED
        return scores

    def normalize(self, cycle: CycleState, pod: Pod, scores: Scores) -> Scores:
        """By the highest."""
        if pod.virtual or isinstance(scores, int):
            return scores
        some = scores.nonzero()[0]  # few rows have Reservations
        if not len(some):
            return scores
        scored = scores[some]
        normalized = np.zeros(len(scores), dtype=np.int8)
        normalized[some] = scored.astype(np.int64) * 100 // scored.max()
        return normalized

    # --- reserve and bind ----------------------------------------------------------------------------

    def reserve(self, cycle: CycleState, pod: Pod, row: int) -> Status:
        """The pod uses the Reservation from now on."""
        if cycle.reservations is None:
            return SUCCESS
        if pod.virtual:
            return self._take_over.take(cycle, row, _taking(cycle))
        matched = _matched(cycle)
        if matched is None or matched.ignored:
            return SUCCESS
        info = matched.chosen_info(row)
        if info is None:
            return Status(Code.UNSCHEDULABLE, (NO_RESERVATION,)) if matched.required else SUCCESS
        if self.cache.get(info.uid) is not info or self.cache.row_of(info) != row:
            return Status(Code.ERROR, ("cannot find target reservation",))
        used = Allocated(info.name, info.uid)
        cycle.state[self.name] = used
        self._cluster.allocate(pod, self.cache.allocated, used)
        return SUCCESS

    def unreserve(self, cycle: CycleState, pod: Pod, row: int) -> None:
        """Gives back what Reserve took."""
        self._take_over.give_back(cycle)
        if cycle.state.pop(self.name, None) is not None and self.cache.allocated.of(pod) is not None:
            self._cluster.allocate(pod, self.cache.allocated, None)

    def pre_bind_pre_flight(self, cycle: CycleState, pod: Pod, node: str) -> Status:
        """SKIP for pods that use none, and do not say so."""
        if pod.virtual:
            return SUCCESS if self._take_over.took(cycle) else SKIP
        shown = pod.wire is not None and RESERVATION_ALLOCATED in pod.wire.metadata.annotations
        return SUCCESS if self.name in cycle.state or shown else SKIP

    async def pre_bind(self, cycle: CycleState, pod: Pod, node: str) -> Status:
        """Annotates the pod with the Reservation that it uses; what an earlier attempt in vain wrote goes.

        A Reservation that takes running pods over has these annotated.
        """
        if pod.virtual:
            return await self._take_over.annotate(cycle)
        used: Allocated | None = cycle.state.get(self.name)
        cycle.patch.annotate(RESERVATION_ALLOCATED, allocated_text(*used) if used is not None else None)
        return SUCCESS

    async def bind(self, cycle: CycleState, pod: Pod, node: str) -> Status:
        """Reserve pods: the Reservation becomes available. Others are left to the next plugin."""
        if not pod.virtual:
            return SKIP
        try:
            await self._handle.writes.bind(pod, node)
        except WriteFailed as error:
            return Status(Code.ERROR, (str(error),))
        return SUCCESS

    # --- PostFilter ----------------------------------------------------------------------------------

    def post_filter(self, cycle: CycleState, pod: Pod, codes: Codes) -> PostFilterResult:
        """Looks for pods that can make room, if that is enabled; says why the pod could not use its Reservations."""
        result = PostFilterResult(Status(Code.UNSCHEDULABLE))
        if self._evaluator is not None:
            result = self._evaluator.post_filter(cycle, pod, codes)
            if result.status.code is not Code.UNSCHEDULABLE:
                return result
        matched = _matched(cycle)
        texts: tuple[str, ...] = ()
        if matched is not None and not pod.virtual:
            texts = self._diagnose(matched, codes)
        result.status = Status(Code.UNSCHEDULABLE, (*result.status.reasons, *texts))
        return result

    def _diagnose(self, matched: MatchedReservations, codes: Codes) -> tuple[str, ...]:
        table = self._handle.reasons
        nodes = [
            diagnosis.counts(table[codes.item(row)].texts if row < len(codes) else ())
            for row, diagnosis in matched.diagnosis.items()
        ]
        return reasons(nodes, required=matched.required)

    def after_post_filter(self, cycle: CycleState, pod: Pod, codes: Codes, result: PostFilterResult) -> None:
        """The pod waits for Reservations, too. One that needs a Reservation gets an event of its own."""
        result.refused_by |= {self.name}
        if pod.virtual or self.matching.terms(pod).affinity is None:
            return
        reasons_of = self._handle.reasons
        counted: Counter[str] = Counter()
        for code, count in reasons_of.counted(codes):
            for text in reasons_of[code].texts:
                counted[text] += count
        listed = ", ".join(sorted(f"{count} {text}" for text, count in counted.items()))
        note = event_text(f"0/{self._cluster.table.count} nodes are available: {listed}. {result.status.message}")
        if note:
            result.also(lambda: self._handle.events.pod_event(pod, WARNING, "FailedScheduling-Reservation", note))

    # --- explaining ----------------------------------------------------------------------------------

    def explain_pod(self, cycle: CycleState) -> list[str]:
        """Each Reservation whose owners match, and what speaks against it."""
        return self._explaining.lines(cycle)

    def _why_not(self, cycle: CycleState, row: int, info: ReservationInfo) -> Status | None:
        matched = _matched(cycle)
        if matched is None or row not in matched.by_row:
            return None
        with matched.as_filtered(row):
            return self._choosing.why_not(cycle, cycle.pod, row, (info,), matched.by_row[row], matched, required=True)

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """See `waking`."""
        return self._waking.events()


_ANY = Tally((Reservation, "any"), lambda pod: 1)
"""Where pods stay that act as Reservations, any other may matter to what the filters say beside these."""


def _is_spared(pod: Pod) -> bool:
    """Whether a label protects the pod from preemption by or for Reservations."""
    return pod.labels.labels.get(DISABLE_PREEMPTIBLE) == "true"


def _matched(cycle: CycleState) -> MatchedReservations | None:
    found = cycle.reservations
    return found if isinstance(found, MatchedReservations) else None


def _taking(cycle: CycleState) -> PreAllocatable | None:
    found = cycle.reservations
    return found if isinstance(found, PreAllocatable) else None
