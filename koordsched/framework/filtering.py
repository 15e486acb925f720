"""PreFilter and Filter: from a pod to a verdict on every node.

Same answers as the chain evaluated node by node (core spec 3.6, steps 3 to 6): the first rejecting plugin
names the reason, and a node with nominated pods of at least the pod's priority must pass with and without
them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import ALL_FACETS
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.cluster.state import ClusterState
from koordsched.framework.besides import AskedAnew
from koordsched.framework.dryruns import ChainDryRun, DryRunFilter
from koordsched.framework.evaluation import Evaluation, Evaluations
from koordsched.framework.interface import (
    BeforePreFilter,
    CycleState,
    FindOneNode,
    PodFilter,
    PodScore,
    PreFilter,
    PreFilterResult,
    ShapeFilter,
)
from koordsched.framework.nominatedrows import NominatedRows
from koordsched.framework.nominations import Nominations
from koordsched.framework.overlay import Overlay
from koordsched.framework.plan import Chains, ShapePlan
from koordsched.framework.status import NO_NODE, PASS, SUCCESS, Code, Codes, ReasonTable, Status
from koordsched.framework.verdicts import PreFiltered, Verdicts

ELSEWHERE = "node(s) are not in the placement of the pod group"
"""Why a node is no candidate."""


class Filtering:
    """Runs PreFilter and Filter of one profile."""

    def __init__(
        self,
        chains: Chains,
        evaluations: Evaluations,
        cluster: ClusterState,
        nominations: Nominations,
        reasons: ReasonTable,
        before_pre_filters: Sequence[BeforePreFilter] = (),
        node_finders: Sequence[FindOneNode] = (),
    ) -> None:
        self._before_pre_filters = before_pre_filters
        self._node_finders = node_finders
        self._chains = chains
        self._evaluations = evaluations
        self._cluster = cluster
        self._nominated_rows = NominatedRows(cluster, nominations)
        self._reasons = reasons

    def pre_filter(self, cycle: CycleState, plan: ShapePlan) -> PreFiltered:
        """Runs the PreFilter plugins in order (core spec 3.6, step 3)."""
        return self._pre_filter(cycle, plan, frozenset())

    def _pre_filter(self, cycle: CycleState, plan: ShapePlan, without: Container[str]) -> PreFiltered:
        """The same without the plugins of these names."""
        pod, result = cycle.pod, PreFiltered(plan.skipped)
        skipped = result.skipped
        for plugin in self._before_pre_filters:
            status = plugin.before_pre_filter(cycle, pod) if plugin.name not in without else SUCCESS
            if status.code is Code.SKIP:
                skipped.add(plugin.name)
            elif not status.ok:
                result.status = status.of(plugin.name, f'running BeforePreFilter of plugin "{plugin.name}"')
                cycle.not_pre_filtered = frozenset(each.name for each in self._chains.pre_filters)
                return result
        for pod_filter in plan.skipping:
            if pod_filter.skips(pod):
                skipped.add(pod_filter.name)
        for name, step in plan.pre_filters:
            if name in skipped or name in without:
                continue
            if isinstance(step, Status | PreFilterResult):
                answer = step
            elif cycle.timed is None:
                answer = step.pre_filter(cycle, pod)
            else:
                answer = cycle.timed(name, "PreFilter", partial(step.pre_filter, cycle, pod))
            if isinstance(answer, PreFilterResult):
                if answer.node_names is None:
                    continue
                result.names = answer.node_names if result.names is None else result.names & answer.node_names
                result.named_by.append(name)
                if not result.names:
                    result.status = self._no_node_left(result.named_by)
                    self._stopped_at(cycle, name)
                    return result
            elif answer.code is Code.SKIP:
                skipped.add(name)
            elif not answer.ok:
                result.status = answer.of(name, f'running PreFilter plugin "{name}"')
                if answer.code is not Code.UNSCHEDULABLE:
                    self._stopped_at(cycle, name)
                    return result
        return result

    def _stopped_at(self, cycle: CycleState, name: str) -> None:
        names = [plugin.name for plugin in self._chains.pre_filters]
        cycle.not_pre_filtered = frozenset(names[names.index(name) + 1 :])

    @staticmethod
    def _find_one_node(finder: FindOneNode, cycle: CycleState, pre: PreFiltered) -> None:
        answer = finder.find_one_node(cycle, cycle.pod, pre.names)
        if isinstance(answer, PreFilterResult):
            pre.names = answer.node_names
            pre.named_by.append(finder.name)
        elif answer.code is not Code.SKIP and not answer.ok:
            pre.status = answer.of(finder.name, f'running FindOneNode plugin "{finder.name}"')

    @staticmethod
    def _no_node_left(named_by: list[str]) -> Status:
        if len(named_by) == 1:
            text = f"node(s) didn't satisfy plugin {named_by[0]}"
        else:
            text = f"node(s) didn't satisfy plugin(s) [{' '.join(named_by)}] simultaneously"
        return Status(Code.UNRESOLVABLE, (text,), named_by[-1])

    def filter(self, cycle: CycleState, *, all_nodes: bool = False) -> Verdicts:
        """PreFilter, then the verdict on every row; unless `all_nodes`, on some alone first.

        These are the nodes that PreFilter plugins prefer, in their order (loadaware spec D), and the nominated one.
        When PreFilter rejects, `pre_filtered.status` says so and no row is feasible.
        """
        plan = self._evaluations.plan_of(cycle.pod.shape)
        cycle.overlay = None
        pre = self.pre_filter(cycle, plan)
        cycle.skipped = pre.skipped
        for finder in self._node_finders if pre.status.ok else ():
            self._find_one_node(finder, cycle, pre)
        if not pre.status.ok:
            return Verdicts(self._all_refused(pre), plan, pre)
        if not cycle.overlay:
            return self._filter(cycle, plan, pre, all_nodes)
        evaluation = self._evaluations.of(cycle.pod.shape, cycle.timed)
        overlay, filters = cycle.overlay, list[PodFilter]()
        pre.alone = self._deciding_alone(cycle, plan, overlay)
        whole = pre.alone is None
        stale = evaluation.stale(overlay)
        try:
            with overlay.applied(self._cluster, cycle, rows=None if whole else self._asked(cycle, overlay, stale)):
                if whole:
                    cycle.overlay = Overlay()  # what the calls add once more is dropped
                    filters = self._pre_filter_again(cycle, plan, pre.skipped)
                    cycle.overlay = overlay
                if cycle.may_be_suspended:
                    evaluation = evaluation.overlaid(overlay, stale)
                else:
                    evaluation.overlay(overlay, stale)
                return self._filter(cycle, plan, pre, all_nodes, evaluation)
        finally:
            cycle.overlay = overlay
            overlay.take_back(cycle, filters)

    def prepare(self, cycle: CycleState, without: Container[str] = frozenset()) -> PreFiltered:
        """PreFilter for a pod that is looked at beside the one that is decided, for dry runs with its cycle.

        The plugins named in `without` are not asked.
        """
        plan = self._evaluations.plan_of(cycle.pod.shape)
        cycle.overlay = None
        pre = self._pre_filter(cycle, plan, without)
        cycle.skipped = pre.skipped
        if pre.status.ok and cycle.overlay:
            overlay, cycle.overlay = cycle.overlay, Overlay()
            filters: list[PodFilter] = []
            try:
                with overlay.applied(self._cluster, cycle):
                    filters = self._pre_filter_again(cycle, plan, pre.skipped)
            finally:
                cycle.overlay = overlay
                overlay.take_back(cycle, filters)
        return pre

    @staticmethod
    def _deciding_alone(cycle: CycleState, plan: ShapePlan, overlay: Overlay) -> list[tuple[int, PodFilter]] | None:
        """The pod filters that take part, if none of them looks at all rows at once and reads what the overlay changes.

        Those that PreFilter skipped would do so with fewer pods, too.
        """
        name = overlay.decided_by
        if not name:
            return None
        filters = plan.taking_part(cycle)
        return filters if all(plugin.name == name for _, plugin in filters) else None

    def _asked(self, cycle: CycleState, overlay: Overlay, stale: RowArray) -> list[int]:
        """The rows of the overlay that are looked at: the stale ones, and those that other pods are nominated to."""
        if len(self._nominated_rows):
            nominated = np.intersect1d(overlay.rows, self._nominated_rows.rows(cycle.pod))
            stale = np.union1d(stale, nominated)
        found: list[int] = stale.tolist()
        return found

    @staticmethod
    def _pre_filter_again(cycle: CycleState, plan: ShapePlan, skipped: set[str]) -> list[PodFilter]:
        """Inside the overlay: which PreFilter plugins say SKIP there. Returns the filters whose state was made anew."""
        filters: list[PodFilter] = []
        for name, step in plan.pre_filters:
            if isinstance(step, PreFilter) and isinstance(step, PodFilter) and not step.skips(cycle.pod):
                answer = step.pre_filter(cycle, cycle.pod)
                if isinstance(answer, Status) and answer.code is Code.SKIP:
                    skipped.add(name)
                else:
                    skipped.discard(name)
                    filters.append(step)
        return filters

    def overlaid(self, cycle: CycleState) -> AbstractContextManager[None]:
        """Inside, the table reads as the pod of the cycle has it read. `cycle` is one whose PreFilter ran."""
        if not cycle.overlay:
            return nullcontext()
        return cycle.overlay.applied(self._cluster, cycle, self.pod_filters(cycle))

    def scoring(self, cycle: CycleState, verdicts: Verdicts) -> AbstractContextManager[None]:
        """The same to score in, where that makes a difference."""
        return self.overlaid(cycle) if self.asked_outside(cycle, verdicts) is None else nullcontext()

    def asked_outside(self, cycle: CycleState, verdicts: Verdicts) -> Sequence[tuple[PodScore, int]] | None:
        """The plugins that score the pod, with weights, if none but the one that made the overlay does; else None."""
        overlay, plan = cycle.overlay, verdicts.plan
        if not overlay or cycle.may_be_suspended:
            return None
        if verdicts.pre_filtered.alone is None and self._deciding_alone(cycle, plan, overlay) is None:
            return None
        asked = [step for step in plan.pod_scores if not step[0].abstains(cycle, cycle.pod)]
        return asked if all(plugin.name == overlay.decided_by for plugin, _ in asked) else None

    def _filter(
        self,
        cycle: CycleState,
        plan: ShapePlan,
        pre: PreFiltered,
        all_nodes: bool,
        overlaid: Evaluation | None = None,
    ) -> Verdicts:
        """`overlaid`: inside an overlay, what is known as that has it."""
        pod = cycle.pod
        if not all_nodes and (cycle.preferred_nodes or pod.nominated_node):
            rows = self._rows(pre, (*cycle.preferred_nodes, pod.nominated_node))
            if cycle.candidates is not None:
                rows = rows[np.isin(rows, cycle.candidates)]
            verdicts = self._among(cycle, plan, pre, np.unique(rows), overlaid)
            if verdicts.feasible > 1:
                first = rows[verdicts.codes[rows] == PASS][:1]
                verdicts = self._among(cycle, plan, pre, first, overlaid)
            if verdicts.feasible:
                verdicts.alone = True
                return verdicts
        if pre.names is not None:
            rows = np.sort(self._rows(pre, pre.names))
            if cycle.candidates is not None:
                rows = rows[np.isin(rows, cycle.candidates)]
            return self._among(cycle, plan, pre, rows, overlaid)
        if overlaid is None:
            overlaid = self._evaluations.of(pod.shape, cycle.timed)
        if cycle.candidates is not None:
            return self._among(cycle, plan, pre, cycle.candidates, overlaid)
        return self._everywhere(cycle, plan, pre, overlaid)

    def _rows(self, pre: PreFiltered, names: Iterable[str]) -> RowArray:
        """The rows of those of the nodes that exist and are candidates."""
        row_of = self._cluster.table.row_of
        allowed = (name for name in names if name in row_of and (pre.names is None or name in pre.names))
        return np.fromiter((row_of[name] for name in allowed), dtype=np.intp)

    def _all_refused(self, pre: PreFiltered) -> Codes:
        """Every node gets the status of the PreFilter plugin that rejected the pod."""
        table, status = self._cluster.table, pre.status
        pre.reason = self._reasons.hold(status.plugin, status.code, *status.reasons)
        return np.where(table.alive.data[: table.size], pre.reason.number, NO_NODE).astype(np.int32)

    def _everywhere(self, cycle: CycleState, plan: ShapePlan, pre: PreFiltered, evaluation: Evaluation) -> Verdicts:
        verdicts = Verdicts(evaluation.codes, plan, pre, evaluation=evaluation)
        filters = plan.taking_part(cycle) if pre.alone is None else pre.alone
        if filters and (codes := self._run(filters, cycle, evaluation.codes, None)) is not evaluation.codes:
            verdicts = Verdicts(codes, plan, pre, wider=evaluation)
        if not len(self._nominated_rows):
            return verdicts  # the usual case
        to_others, as_nominated = self._as_nominated(cycle, plan)
        broken = (as_nominated != PASS) & (as_nominated != verdicts.codes[to_others])
        if broken.any():
            codes = verdicts.codes.copy()
            codes[to_others[broken]] = as_nominated[broken]
            verdicts = Verdicts(codes, plan, pre, wider=evaluation)
        return verdicts

    def _among(
        self, cycle: CycleState, plan: ShapePlan, pre: PreFiltered, rows: RowArray, overlaid: Evaluation | None
    ) -> Verdicts:
        """Only these rows are candidates; the others get the absent status of core spec 3.6, step 5."""
        table = self._cluster.table
        absent = NO_NODE
        if cycle.candidates is not None:
            absent = self._reasons.intern("", Code.UNRESOLVABLE, ELSEWHERE)
        if pre.named_by:
            absent = self._reasons.intern(
                "", Code.UNRESOLVABLE, f"node(s) didn't satisfy plugin(s) [{' '.join(pre.named_by)}]"
            )
        codes = np.where(table.alive.data[: table.size], absent, NO_NODE).astype(np.int32)
        if overlaid is None:
            codes[rows] = self._chain(cycle, plan, rows)
        else:
            codes[rows] = self._run(plan.taking_part(cycle), cycle, overlaid.codes[rows], rows)
        for row in np.intersect1d(self._nominated_rows.rows(cycle.pod), rows).tolist():
            code = self._with_nominated(cycle, plan, row)
            if code != PASS:
                codes[row] = code
        return Verdicts(codes, plan, pre, wider=overlaid)

    def dry_run(self, cycle: CycleState, row: int, facets: int = ALL_FACETS) -> int:
        """The verdict on one row as the table reads now, inside a what-if, with and without nominated pods.

        Shape plugins that read none of the facets are left out. `cycle` is one that `filter` ran in: the state that
        PreFilter left is used.
        """
        plan = self._evaluations.plan_of(cycle.pod.shape)
        code = self._with_nominated(cycle, plan, row, facets)
        return code if code != PASS else self._on_row(cycle, plan, row, facets)

    def asked_anew(self, cycle: CycleState, without: str) -> AskedAnew:
        """The pod filters with state of their own, for the table as it reads now; `without`: a plugin not asked."""
        plan = self._evaluations.plan_of(cycle.pod.shape)
        return AskedAnew(cycle, plan, self._cluster.table, self._reasons, without)

    def pod_filters(self, cycle: CycleState) -> list[PodFilter]:
        """The plugins whose state in this cycle must be updated for hypothetical pods."""
        return [plugin for _, plugin in self._evaluations.plan_of(cycle.pod.shape).taking_part(cycle)]

    def node_filters(self, cycle: CycleState) -> list[ShapeFilter]:
        """The shape plugins that take part for the cycle's pod."""
        return [plugin for _, plugin in self._evaluations.plan_of(cycle.pod.shape).node_filters]

    def looking_at_pods(self, shape: PodShape) -> list[PreFilter | PodFilter]:
        """The plugins that take part for pods of the shape and may look at more of a pod than its shape."""
        plan = self._evaluations.plan_of(shape)
        looking = [step for _, step in plan.pre_filters if isinstance(step, PreFilter)]
        return list(dict.fromkeys([*looking, *(plugin for _, plugin in plan.pod_filters)]))

    def asleep(self, cycle: CycleState) -> list[PreFilter]:
        """The filters that said SKIP in this cycle, but may not once other pods are there."""
        return self._evaluations.plan_of(cycle.pod.shape).asleep(cycle)

    def on_rows(self, cycle: CycleState, rows: RowArray) -> Codes:
        """The verdict of the whole chain on some rows as the table reads now; nominated pods are left out.

        `cycle` is one that `filter` or `prepare` ran in.
        """
        return self._chain(cycle, self._evaluations.plan_of(cycle.pod.shape), rows)

    def chain_on(self, cycle: CycleState, rows: RowArray, facets: int = ALL_FACETS) -> Codes:
        """The verdict on some rows, as the table reads now, of the shape plugins that read one of the facets."""
        plan = self._evaluations.plan_of(cycle.pod.shape)
        return plan.filter_nodes(self._cluster.table, rows, facets)

    def nomination_stamps(self, pod: Pod) -> npt.NDArray[np.int64]:
        """By row, a number that changes with the nominations to it; 0 where no pod of at least this pod's priority is
        nominated. Not to be changed by the caller.
        """
        return self._nominated_rows.stamps(pod.priority)

    def nominated_on(self, row: int, pod: Pod) -> list[Pod]:
        """The pods of at least this pod's priority nominated to a row, itself left out."""
        return self._nominated_rows.nominated_on(row, pod)

    def chain_dry_run(self, cycle: CycleState, coming: Iterable[Pod]) -> ChainDryRun | None:
        """Dry runs of the chain on many rows at once; None if a filter takes part that has none.

        `coming`: all pods that may come to one of the rows. `cycle` is one that `filter` ran in.
        """
        plan = self._evaluations.plan_of(cycle.pod.shape)
        steps = []
        for position, plugin in plan.taking_part(cycle):
            if not isinstance(plugin, DryRunFilter):
                return None
            steps.append((plugin.dry_run(cycle, cycle.pod, coming), partial(self._reaching, position)))
        return ChainDryRun(plan, self._cluster.table, steps)

    def _chain(self, cycle: CycleState, plan: ShapePlan, rows: RowArray, facets: int = ALL_FACETS) -> Codes:
        """The whole chain, uncached, on some rows as the table reads right now."""
        codes = plan.filter_nodes(self._cluster.table, rows, facets)
        return self._run(plan.taking_part(cycle), cycle, codes, rows)

    def _on_row(self, cycle: CycleState, plan: ShapePlan, row: int, facets: int) -> int:
        return int(self._chain(cycle, plan, np.array([row], dtype=np.intp), facets)[0])

    def _run(
        self, filters: list[tuple[int, PodFilter]], cycle: CycleState, codes: Codes, rows: RowArray | None
    ) -> Codes:
        """Puts the rows that reach each plugin to it; `codes` are those of `rows` (None: of all rows), and stay as they
        are. Returns the codes after that, the same array if none changed.

        A row rejected by a ShapeFilter further down the chain still reaches the plugin, which then is the
        first to reject it.
        """
        table, before = self._cluster.table, codes
        for position, plugin in filters:
            if rows is None and cycle.timed is None:
                few = plugin.refused_among_all(cycle, cycle.pod, partial(self._reaches, position, codes))
                if few is not None:
                    if few and codes is before:
                        codes = codes.copy()
                    for row, code in few:
                        codes[row] = code
                    continue
            at = np.flatnonzero(self._reaching(position, codes))
            if not len(at):
                continue
            asked = at if rows is None else rows[at]
            if cycle.timed is None:
                verdicts = plugin.filter(cycle, cycle.pod, table, asked)
            else:
                verdicts = cycle.timed(plugin.name, "Filter", partial(plugin.filter, cycle, cycle.pod, table, asked))
            if verdicts is None:
                continue
            rejected = verdicts != PASS
            if rejected.any():
                codes = codes.copy() if codes is before else codes
                if len(at) == len(codes):
                    np.copyto(codes, verdicts, where=rejected)
                else:
                    codes[at[rejected]] = verdicts[rejected]
        return codes

    def _reaching(self, position: int, codes: Codes) -> npt.NDArray[np.bool_]:
        """Which rows reach the plugin at a position of the chain, given what the others say."""
        reached: npt.NDArray[np.bool_] = codes == PASS
        if position + 1 < len(self._chains.filters) and codes.max(initial=PASS) > NO_NODE:
            for code, _ in self._reasons.counted(codes):
                if self._evaluations.position_of(code) > position:
                    reached |= codes == code
        return reached

    def _reaches(self, position: int, codes: Codes, row: int) -> bool:
        code = codes.item(row)
        return code == PASS or (code > NO_NODE and self._evaluations.position_of(code) > position)

    # --- nominated pods --------------------------------------------------------------------------

    def _as_nominated(self, cycle: CycleState, plan: ShapePlan) -> tuple[RowArray, Codes]:
        """(rows that other pods are nominated to, the verdict on each as if those were there)."""
        filters = self.pod_filters(cycle)
        if cycle.overlay:
            pass  # cached verdicts on nominated rows do not include overlays
        elif not filters:
            return self._nominated_rows.codes(cycle.pod, plan)
        elif all(isinstance(plugin, DryRunFilter) for plugin in filters):
            return self._dry_run_nominated(cycle, plan, *self._nominated_rows.codes(cycle.pod, plan))
        rows = self._nominated_rows.rows(cycle.pod)
        codes = [self._with_nominated(cycle, plan, row) for row in rows.tolist()]
        return rows, np.array(codes, dtype=np.int32)

    def _dry_run_nominated(
        self, cycle: CycleState, plan: ShapePlan, rows: RowArray, codes: Codes
    ) -> tuple[RowArray, Codes]:
        """The verdicts of the shape plugins on rows with nominated pods, completed by those of the other filters."""
        if len(rows):
            nominated = [self._nominated_rows.nominated_on(row, cycle.pod) for row in rows.tolist()]
            chain = self.chain_dry_run(cycle, [other for others in nominated for other in others])
            assert chain is not None, "all filters have dry runs"
            chain.refuse(codes, rows, chain.tallied(nominated))
            for i, others in enumerate(nominated) if chain.one_by_one else ():
                if chain.any_one_by_one(others):
                    codes[i] = self._with_nominated(cycle, plan, int(rows[i]))
        return rows, codes

    def _with_nominated(self, cycle: CycleState, plan: ShapePlan, row: int, facets: int = ALL_FACETS) -> int:
        """The verdict on a row as if the pods nominated to it were there; PASS if there are none."""
        nominated = self._nominated_rows.nominated_on(row, cycle.pod)
        if not nominated:
            return PASS
        filters = self.pod_filters(cycle)
        with self._cluster.what_if(add=[(row, other) for other in nominated]):
            for plugin in filters:
                for other in nominated:
                    plugin.add_pod(cycle, cycle.pod, other, row)
            try:
                return self._on_row(cycle, plan, row, facets)
            finally:
                for plugin in filters:
                    for other in nominated:
                        plugin.remove_pod(cycle, cycle.pod, other, row)
