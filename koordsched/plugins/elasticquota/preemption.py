"""Preemption inside a quota: only less important pods of the same quota are evicted for a pod.

Source: elasticquota spec 3.11; upstream `plugins/elasticquota/preempt.go`. Unlike upstream, a node whose pods cannot
free enough of the quota is no candidate, so no pod is evicted without making room (spec 6.6).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Handle
from koordsched.framework.interface import CycleState, PostFilterResult
from koordsched.framework.status import PASS, SUCCESS, Code, Codes, Status
from koordsched.plugins.elasticquota import messages
from koordsched.plugins.elasticquota.admission import Admission, Claimant
from koordsched.plugins.elasticquota.arithmetic.amounts import Amounts
from koordsched.plugins.elasticquota.books import QuotaBooks
from koordsched.plugins.elasticquota.victims import QuotaVictims
from koordsched.plugins.shared.preemption.budgets import Budgets
from koordsched.plugins.shared.preemption.candidates import Candidate, best_of, by_importance, verdicts_of
from koordsched.plugins.shared.preemption.dryrun import DryRun
from koordsched.plugins.shared.preemption.lockstep import Lockstep
from koordsched.plugins.shared.preemption.victims import Mask, victim_table
from koordsched.plugins.shared.preemption.visibility import why_not

NODES_NAMED = 20
"""Up to this many nodes without victims are named one by one, as upstream does for all of them."""

_PREFIX = "preemption: "


class QuotaHoldings:
    """What the victims of each row hold of the preemptor's quota, one dry run per row: `DryRunHoldings`.

    Amounts are exact, whatever their size.
    """

    __slots__ = ("_held", "_to_spare")

    def __init__(self, needed: Amounts, lists: Sequence[Sequence[Pod]], counted: Mapping[str, Amounts]) -> None:
        """`needed`: what must be freed of the quota; `lists`: the pods of each row that are gone, in the order in
        which they come back; `counted`: by uid, what each of them frees.
        """
        depth = max(map(len, lists), default=0)
        self._held = []
        self._to_spare = []
        for name, amount in needed.items():
            held = np.zeros((depth, len(lists)), dtype=object)
            for i, pods in enumerate(lists):
                held[: len(pods), i] = [counted[pod.uid].get(name, 0) for pod in pods]
            self._held.append(held)
            self._to_spare.append(held.sum(axis=0) - amount)

    def spare(self, step: int, at: RowArray) -> Mask:
        """Where enough stays free with the pods of a step back."""
        spared: Mask = np.ones(len(at), dtype=np.bool_)
        for held, to_spare in zip(self._held, self._to_spare, strict=True):
            spared &= (to_spare[at] >= held[step, at]).astype(np.bool_)
        return spared

    def put_back(self, step: int, at: RowArray) -> None:
        """The pods of a step are back."""
        for held, to_spare in zip(self._held, self._to_spare, strict=True):
            to_spare[at] -= held[step, at]


class _OneRow:
    """`Holdings` of a single row."""

    __slots__ = ("_all", "_step_of")

    def __init__(self, needed: Amounts, pods: Sequence[Pod], counted: Mapping[str, Amounts]) -> None:
        self._all = QuotaHoldings(needed, [pods], counted)
        self._step_of = {pod.uid: step for step, pod in enumerate(pods)}

    def spare(self, pod: Pod) -> bool:
        return bool(self._all.spare(self._step_of[pod.uid], _ONLY)[0])

    def put_back(self, pod: Pod) -> None:
        self._all.put_back(self._step_of[pod.uid], _ONLY)


_ONLY: RowArray = np.zeros(1, dtype=np.intp)


class QuotaPreemption:
    """Finds the node where making room costs least."""

    def __init__(
        self, plugin: str, handle: Handle, books: QuotaBooks, admission: Admission, victims: QuotaVictims
    ) -> None:
        self._plugin = plugin
        self._handle = handle
        self._books = books
        self._admission = admission
        self._victims = victims
        self._budgets = handle.cluster.shared(Budgets)
        self._table = victim_table(handle.cluster)

    def post_filter(self, cycle: CycleState, pod: Pod, codes: Codes) -> PostFilterResult:
        """See `framework.interface.PostFilter`."""
        claimant = self._admission.claimant(pod)
        refusal = self._ineligible(pod, claimant, codes)
        if refusal:
            # In upstream, only the plugins that rejected the pod decide when its victims are gone.
            waits = claimant is not None and refusal == messages.NOT_ELIGIBLE_TERMINATING
            refused_by = frozenset((self._plugin,)) if waits else frozenset()
            return PostFilterResult(Status(Code.UNSCHEDULABLE, (_PREFIX + refusal,)), refused_by=refused_by)
        candidates, texts, refused_by = self._search(cycle, claimant, codes)
        if not candidates:
            total = self._handle.cluster.table.count
            parts = sorted(f"{count} {text}" for text, count in texts.items())
            message = f"{_PREFIX}0/{total} nodes are available: {', '.join(parts)}."
            return PostFilterResult(Status(Code.UNSCHEDULABLE, (message,)), nominated_node="", refused_by=refused_by)
        best = candidates[best_of(verdicts_of(candidates), self._handle.clock.wall())]
        node = self._handle.cluster.table.names[best.row]
        return PostFilterResult(
            SUCCESS, node, best.victims, lambda: self._handle.evictions.start(pod, node, best.victims)
        )

    def _ineligible(self, pod: Pod, claimant: Claimant | None, codes: Codes) -> str:
        if pod.shape.never_preempts:
            return messages.NOT_ELIGIBLE_NEVER
        if hidden := why_not(self._handle.cluster):
            return hidden
        # A nomination made a moment ago counts, also if the pod's status does not show it yet.
        row = self._handle.cluster.table.row_of.get(self._handle.nominations.node_of(pod.uid) or pod.nominated_node)
        if row is not None and self._handle.reasons[int(codes[row])].code is not Code.UNRESOLVABLE:
            own = claimant.quota if claimant is not None else None
            evicting = self._handle.evictions.evicting
            for other in self._handle.cluster.pods_on(row).values():
                leaves = other.deleting or evicting(other.uid)
                if leaves and other.priority < pod.priority and self._books.quota_of(other) is own:
                    return messages.NOT_ELIGIBLE_TERMINATING
        return ""

    def _search(
        self, cycle: CycleState, claimant: Claimant | None, codes: Codes
    ) -> tuple[list[Candidate], Counter[str], frozenset[str]]:
        """Candidates among the nodes that refused in a way that fewer pods may cure; texts say why others are none.

        Last come the plugins that refuse it with all potential victims evicted. None are named for a pod that its quota
        refuses: that one is tried again when the quota's state allows it (`prospects`).
        """
        reasons = self._handle.reasons
        texts: Counter[str] = Counter()
        refusing: list[int] = []
        for code, count in reasons.counted(codes):
            if reasons[code].code is Code.UNSCHEDULABLE:
                refusing.extend((codes == code).nonzero()[0].tolist())
            else:
                texts[messages.NOT_HELPFUL] += count
        victims = self._victims_of(cycle, claimant)
        candidates_on = victims.keys() & set(refusing)
        self._count_others(texts, [row for row in refusing if row not in candidates_on], cycle.pod)
        if claimant is None or not candidates_on:
            return [], texts, frozenset()
        needed = self._admission.shortage(claimant)
        if needed is None:
            texts[messages.not_enough(claimant.quota.name)] += len(candidates_on)
            return [], texts, frozenset()
        rows: list[int] = []
        counted: dict[str, Amounts] = {}
        for row in sorted(candidates_on):
            of_row = victims[row]
            freed = [(name, sum(held.get(name, 0) for _, held in of_row)) for name in needed]
            if all(amount >= needed[name] for name, amount in freed):
                rows.append(row)
                counted.update((pod.uid, held) for pod, held in of_row)
            else:
                texts[messages.not_enough(claimant.quota.name)] += 1
        now = self._handle.clock.wall()
        lists = [by_importance([pod for pod, _ in victims[row]], now) for row in rows]
        results = self._dry_runs(cycle, rows, lists, needed, counted)
        refusing_plugins = {reasons[result].plugin for result in results if isinstance(result, int)}
        refused_by = frozenset() if cycle.beyond_nodes else frozenset(refusing_plugins)
        return self._candidates(results, texts), texts, refused_by

    def _victims_of(self, cycle: CycleState, claimant: Claimant | None) -> dict[int, list[tuple[Pod, Amounts]]]:
        """By row, pods of the quota that may leave for this one, and what they hold."""
        if claimant is None:
            return {}
        found: dict[int, list[tuple[Pod, Amounts]]] = {}
        for row, pods in self._victims.by_row(cycle.pod, claimant.quota).items():
            away = cycle.overlay.away(row) if cycle.overlay else ()
            leaving = [(pod, held) for pod, held in pods if self._table.may_leave(pod, away)]
            if leaving:
                found[row] = leaving
        return found

    def _candidates(self, results: list[Candidate | int], texts: Counter[str]) -> list[Candidate]:
        found: list[Candidate] = []
        for result in results:
            if isinstance(result, int):
                for text in self._handle.reasons[result].texts:
                    texts[text] += 1
            elif result.victims:
                found.append(result)
            else:
                texts[messages.NOT_HELPFUL] += 1  # what refused the pod is neither this node nor its quota
        return found

    def _dry_runs(
        self,
        cycle: CycleState,
        rows: list[int],
        lists: list[list[Pod]],
        needed: Amounts,
        counted: Mapping[str, Amounts],
    ) -> list[Candidate | int]:
        """The results for the rows, in lockstep except for those that must be tried one by one."""
        lockstep = Lockstep(self._handle.cluster, self._handle.filtering, cycle)
        if lockstep.applies and not lockstep.any_one_by_one:
            return self._in_lockstep(lockstep, rows, lists, needed, counted)
        apart = [True] * len(rows)
        if lockstep.applies:
            potential = self._table.potential_victims_of(np.array(rows, dtype=np.intp), lists)
            apart = lockstep.apart(potential, self._table.kinds).tolist()
        together = [i for i, alone in enumerate(apart) if not alone]
        found = (
            self._in_lockstep(lockstep, [rows[i] for i in together], [lists[i] for i in together], needed, counted)
            if together
            else []
        )
        results = dict(zip(together, found, strict=True))
        dry_run = DryRun(self._handle.cluster, self._handle.filtering, self._budgets)
        now = self._handle.clock.wall()
        for i in (i for i, alone in enumerate(apart) if alone):
            holdings = _OneRow(needed, lists[i], counted)
            results[i] = dry_run.on(cycle, rows[i], lists[i], now, holdings)
        return [results[i] for i in range(len(rows))]

    def _in_lockstep(
        self,
        lockstep: Lockstep,
        rows: list[int],
        lists: list[list[Pod]],
        needed: Amounts,
        counted: Mapping[str, Amounts],
    ) -> list[Candidate | int]:
        potential = self._table.potential_victims_of(np.array(rows, dtype=np.intp), lists)
        kinds = self._table.kinds
        broken = self._budgets.broken_in(potential, kinds, lists.__getitem__)
        if broken is not None:
            # Those whose eviction breaks a budget come back first.
            order = np.argsort(~broken, axis=0, kind="stable")
            potential, broken = potential.reordered(order), np.take_along_axis(broken, order, axis=0)
            lists = [[pods[k] for k in order[: len(pods), i]] for i, pods in enumerate(lists)]
        holdings = QuotaHoldings(needed, lists, counted)
        outcome = lockstep.on(potential, kinds, holdings)
        # A budget counts as violated only for the node's sake, not for the quota's (elasticquota spec 3.11).
        violations = np.zeros(len(rows)) if broken is None else np.count_nonzero(outcome.no_room & broken, axis=0)
        results: list[Candidate | int] = []
        for i, (row, code, pods) in enumerate(zip(rows, outcome.codes.tolist(), lists, strict=True)):
            if code != PASS:
                results.append(code)
            else:
                victims = tuple(pods[k] for k in np.flatnonzero(outcome.victims[:, i]).tolist())
                results.append(Candidate(row, victims, int(violations[i])))
        return results

    def _count_others(self, texts: Counter[str], rows: list[int], pod: Pod) -> None:
        names = self._handle.cluster.table.names
        if len(rows) > NODES_NAMED:
            texts[f"No victims found for preemptor pod {pod.name}"] += len(rows)
            return
        for row in rows:
            texts[messages.no_victims(names[row], pod.name)] += 1
