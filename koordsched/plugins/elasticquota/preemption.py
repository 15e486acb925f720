"""Preemption inside a quota: room for a pod is made by less important pods of the same quota, by nobody else.

Source: elasticquota spec 3.11; upstream `plugins/elasticquota/preempt.go`. Unlike upstream, a node whose pods cannot
free enough of the quota is no candidate, so nobody is evicted in vain (spec 6.6).
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from koordsched.api.quota import DEFAULT_QUOTA
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Handle
from koordsched.framework.interface import Cycle, PostFilterResult
from koordsched.framework.status import PASS, SUCCESS, Code, Codes, Status
from koordsched.plugins.elasticquota import messages
from koordsched.plugins.elasticquota.admission import Admission, Claimant
from koordsched.plugins.elasticquota.amounts import Amounts, add_to, take_from
from koordsched.plugins.elasticquota.books import QuotaBooks
from koordsched.plugins.elasticquota.quota import Quota
from koordsched.plugins.preemption.budgets import Budgets
from koordsched.plugins.preemption.candidates import Candidate, best_of, by_importance, verdicts_of
from koordsched.plugins.preemption.dryrun import DryRun
from koordsched.plugins.preemption.lockstep import Lockstep
from koordsched.plugins.preemption.victims import VictimTable
from koordsched.plugins.preemption.visibility import why_not

NODES_NAMED = 20
"""Up to this many nodes without victims are named one by one, as upstream does for all of them."""

_PREFIX = "preemption: "


class QuotaHoldings:
    """The quota in one hypothetical world: `Holdings` of the preemptor's quota."""

    __slots__ = ("_freed", "_held", "_needed")

    def __init__(self, needed: Amounts, held: dict[str, Amounts]) -> None:
        """`needed`: what must be freed of the quota; `held`: by uid, what each pod frees when it goes."""
        self._needed = needed
        self._held = held
        self._freed: Amounts = {}
        for amounts in held.values():
            add_to(self._freed, amounts)

    @property
    def suffice(self) -> bool:
        """Whether enough is free."""
        return all(self._freed.get(name, 0) >= amount for name, amount in self._needed.items())

    def spare(self, pod: Pod) -> bool:
        """Whether enough stays free with the pod back."""
        back = self._held[pod.uid]
        return all(self._freed.get(name, 0) - back.get(name, 0) >= amount for name, amount in self._needed.items())

    def put_back(self, pod: Pod) -> None:
        """The pod is back."""
        take_from(self._freed, self._held[pod.uid])


class QuotaPreemption:
    """Finds the node where making room costs least."""

    def __init__(self, handle: Handle, books: QuotaBooks, admission: Admission, *, spares_default_quota: bool) -> None:
        self._handle = handle
        self._books = books
        self._admission = admission
        self._spares_default_quota = spares_default_quota
        self._budgets = handle.cluster.shared(Budgets)
        self._table = handle.cluster.shared(VictimTable)

    def post_filter(self, cycle: Cycle, pod: Pod, codes: Codes) -> PostFilterResult:
        """See `framework.interface.PostFilter`."""
        claimant = self._admission.claimant(pod)
        refusal = self._ineligible(pod, claimant, codes)
        if refusal:
            return PostFilterResult(Status(Code.UNSCHEDULABLE, (_PREFIX + refusal,)))
        candidates, texts = self._search(cycle, claimant, codes)
        if not candidates:
            total = self._handle.cluster.table.count
            parts = sorted(f"{count} {text}" for text, count in texts.items())
            message = f"{_PREFIX}0/{total} nodes are available: {', '.join(parts)}."
            return PostFilterResult(Status(Code.UNSCHEDULABLE, (message,)), nominated_node="")
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
        row = self._handle.cluster.table.row_of.get(pod.nominated_node) if pod.nominated_node else None
        if row is not None and self._handle.reasons[int(codes[row])].code is not Code.UNRESOLVABLE:
            own = claimant.quota if claimant is not None else None
            evicting = self._handle.evictions.evicting
            for other in self._handle.cluster.pods_on(row).values():
                leaves = other.deleting or evicting(other.uid)
                if leaves and other.priority < pod.priority and self._books.quota_of(other) is own:
                    return messages.NOT_ELIGIBLE_TERMINATING
        return ""

    def _search(self, cycle: Cycle, claimant: Claimant | None, codes: Codes) -> tuple[list[Candidate], Counter[str]]:
        """Candidates among the nodes that refused in a way that fewer pods may cure; texts say why others are none."""
        reasons = self._handle.reasons
        texts: Counter[str] = Counter()
        refusing: list[int] = []
        for code, count in reasons.counted(codes):
            if reasons[code].code is Code.UNSCHEDULABLE:
                refusing.extend((codes == code).nonzero()[0].tolist())
            else:
                texts[messages.NOT_HELPFUL] += count
        victims = self._victims(cycle.pod, claimant)
        candidates_on = victims.keys() & set(refusing)
        self._count_others(texts, [row for row in refusing if row not in candidates_on], cycle.pod)
        if claimant is None or not candidates_on:
            return [], texts
        needed = self._admission.shortage(claimant)
        if needed is None:
            texts[messages.not_enough(claimant.quota.name)] += len(candidates_on)
            return [], texts
        rows: list[int] = []
        holdings: list[QuotaHoldings] = []
        for row in sorted(candidates_on):
            held = QuotaHoldings(needed, {uid: counted for uid, (_, counted) in victims[row].items()})
            if held.suffice:
                rows.append(row)
                holdings.append(held)
            else:
                texts[messages.not_enough(claimant.quota.name)] += 1
        now = self._handle.clock.wall()
        lists = [by_importance([pod for pod, _ in victims[row].values()], now) for row in rows]
        found = self._dry_runs(cycle, rows, lists, holdings, now, texts)
        return found, texts

    def _dry_runs(
        self,
        cycle: Cycle,
        rows: list[int],
        lists: list[list[Pod]],
        holdings: list[QuotaHoldings],
        now: float,
        texts: Counter[str],
    ) -> list[Candidate]:
        cluster, filtering = self._handle.cluster, self._handle.filtering
        lockstep = Lockstep(cluster.table, filtering)
        if lockstep.applies(cycle):
            results = self._in_lockstep(lockstep, cycle, rows, lists, holdings)
        else:
            dry_run = DryRun(cluster, filtering, self._budgets)
            results = [
                dry_run.on(cycle, row, pods, now, held) for row, pods, held in zip(rows, lists, holdings, strict=True)
            ]
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

    def _in_lockstep(
        self,
        lockstep: Lockstep,
        cycle: Cycle,
        rows: list[int],
        lists: list[list[Pod]],
        holdings: list[QuotaHoldings],
    ) -> list[Candidate | int]:
        kinds = self._table.kinds
        crew = self._table.crew_of(np.array(rows, dtype=np.intp), lists)
        broken = self._budgets.broken_in(crew, kinds, lists.__getitem__)
        if broken is not None:
            # Those whose eviction breaks a budget come back first.
            order = np.argsort(~broken, axis=0, kind="stable")
            crew, broken = crew.reordered(order), np.take_along_axis(broken, order, axis=0)
            lists = [[pods[k] for k in order[: len(pods), i]] for i, pods in enumerate(lists)]
        outcome = lockstep.on(cycle, crew, kinds, list(zip(holdings, lists, strict=True)))
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

    def _victims(self, pod: Pod, claimant: Claimant | None) -> dict[int, dict[str, tuple[Pod, Amounts]]]:
        """Row -> uid -> the pods that may be evicted for this one, with what they hold of the quota."""
        found: dict[int, dict[str, tuple[Pod, Amounts]]] = {}
        if claimant is None or self._is_spared(claimant.quota):
            return found
        assigned = self._handle.cluster.assigned
        own = self._handle.own_replicas
        for member in self._books.members(claimant.quota):
            if not member.assigned or member.non_preemptible or member.pod.shape.priority >= pod.priority:
                continue
            placed = assigned.get(member.pod.uid)
            if placed is not None and placed.row >= 0 and placed not in own:
                found.setdefault(placed.row, {})[placed.uid] = (placed, member.counted)
        return found

    def _is_spared(self, quota: Quota) -> bool:
        return self._spares_default_quota and quota.name == DEFAULT_QUOTA

    def _count_others(self, texts: Counter[str], rows: list[int], pod: Pod) -> None:
        names = self._handle.cluster.table.names
        if len(rows) > NODES_NAMED:
            texts[f"No victims found for preemptor pod {pod.name}"] += len(rows)
            return
        for row in rows:
            texts[messages.no_victims(names[row], pod.name)] += 1
