"""Whether preemption may help a pod, on which nodes, and which victims it costs.

Source: upstream `plugins/defaultpreemption`, `framework/preemption`; core spec 3.8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.config.plugin_args import DefaultPreemptionArgs
from koordsched.framework.handle import Handle
from koordsched.framework.interface import CycleState, PostFilterResult
from koordsched.framework.preemption import PreemptionOffer, Victims
from koordsched.framework.status import NO_NODE, PASS, SUCCESS, Code, Codes, Status
from koordsched.plugins.shared.preemption.candidates import Candidate, best_of, by_importance, verdicts_of
from koordsched.plugins.shared.preemption.search import Found, Search
from koordsched.plugins.shared.preemption.visibility import why_not

NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_CANDIDATE = "no candidate node for preemption"
VICTIMS_LEAVE = "not eligible due to a terminating pod on the nominated node."
ERRORS_NAMED = 20
"""How many nodes an error names at most."""
_FEWEST = 16
"""Nodes tried at once, at least: stepping few together costs nearly as much as stepping many."""


class Evaluator:
    """Preemption on behalf of a plugin."""

    def __init__(
        self,
        plugin: str,
        args: DefaultPreemptionArgs,
        handle: Handle,
        spares: Callable[[Pod], bool] | None = None,
    ) -> None:
        """`plugin`: waits for victims that are leaving. `spares`: pods that are never victims; it is part of what makes
        potential victims of all preemptors, so it must be the same object every time."""
        self._plugin = plugin
        self._args = args
        self._handle = handle
        self._dry_runs = Search(handle, spares)

    def post_filter(self, cycle: CycleState, pod: Pod, codes: Codes) -> PostFilterResult:
        """Looks for the node where making room costs least."""
        refusal = self._ineligible(pod, codes)
        if refusal:
            refused_by = frozenset((self._plugin,)) if refusal == VICTIMS_LEAVE else frozenset()
            return PostFilterResult(Status(Code.UNSCHEDULABLE, (f"preemption: {refusal}",)), refused_by=refused_by)
        candidates, texts, errors, refused_by = self._search(cycle, codes)
        if not candidates and errors:
            text = errors[0] if len(errors) == 1 else f"[{', '.join(errors[:ERRORS_NAMED])}]"
            return PostFilterResult(Status(Code.ERROR, (f"preemption: {text}",)), refused_by=refused_by)
        if not candidates:
            total = self._handle.cluster.table.count
            parts = sorted(f"{count} {text}" for text, count in texts.items())
            message = f"preemption: 0/{total} nodes are available: {', '.join(parts)}."
            return PostFilterResult(Status(Code.UNSCHEDULABLE, (message,)), nominated_node="", refused_by=refused_by)
        return PreemptionOffer(
            self._result(pod, candidates.best(self._handle.clock.wall())),
            lambda: self._by_node(candidates),
            lambda remaining: self._choose(pod, self._of_nodes(remaining), refused_by),
        )

    def _choose(self, pod: Pod, candidates: Sequence[Candidate], refused_by: frozenset[str]) -> PostFilterResult:
        if not candidates:
            return PostFilterResult(Status(Code.UNSCHEDULABLE, (NO_CANDIDATE,)), refused_by=refused_by)
        return self._result(pod, candidates[best_of(verdicts_of(candidates), self._handle.clock.wall())])

    def _result(self, pod: Pod, best: Candidate) -> PostFilterResult:
        node = self._handle.cluster.table.names[best.row]
        return PostFilterResult(
            SUCCESS, node, best.victims, lambda: self._handle.evictions.start(pod, node, best.victims)
        )

    def _by_node(self, candidates: Iterable[Candidate]) -> dict[str, Victims]:
        names = self._handle.cluster.table.names
        return {names[each.row]: Victims(each.victims, each.violations) for each in candidates}

    def _of_nodes(self, remaining: Mapping[str, Victims]) -> list[Candidate]:
        row_of, now = self._handle.cluster.table.row_of, self._handle.clock.wall()
        return [
            Candidate(row_of[node], tuple(by_importance(list(victims.pods), now)), victims.violations)
            for node, victims in remaining.items()
        ]

    def _ineligible(self, pod: Pod, codes: Codes) -> str:
        if pod.shape.never_preempts:
            return "not eligible due to preemptionPolicy=Never."
        if hidden := why_not(self._handle.cluster):
            return hidden
        # A nomination made a moment ago counts, also if the pod's status does not show it yet.
        row = self._handle.cluster.table.row_of.get(self._handle.nominations.node_of(pod.uid) or pod.nominated_node)
        if row is not None and self._handle.reasons[int(codes[row])].code is not Code.UNRESOLVABLE:
            evicting = self._handle.evictions.evicting
            others = self._handle.cluster.pods_on(row).values()
            if any(o.priority < pod.priority and (o.preempted or evicting(o.uid)) for o in others):
                return VICTIMS_LEAVE
        return ""

    def _search(self, cycle: CycleState, codes: Codes) -> tuple[_Candidates, Counter[str], list[str], frozenset[str]]:
        """Candidates among the nodes refused in a way that fewer pods may cure.

        Texts count why others are none; errors name those where the pod would fit with no pod evicted; last come the
        plugins that refuse it with all potential victims evicted, none if a node would not help the pod anyway.
        """
        texts: Counter[str] = Counter()
        errors: list[str] = []
        refused_by: set[str] = set()
        reasons, names = self._handle.reasons, self._handle.cluster.table.names
        is_curable = np.zeros(int(codes.max(initial=NO_NODE)) + 1, dtype=np.bool_)
        for code, count in reasons.counted(codes):
            if reasons[code].code is Code.UNSCHEDULABLE:
                is_curable[code] = True
            else:
                texts[NOT_HELPFUL] += count
        potential = np.flatnonzero(is_curable.take(codes))
        wanted = self._wanted(len(potential))
        start = self._handle.rng.randrange(len(potential)) if len(potential) > wanted else 0
        order = np.concatenate((potential[start:], potential[:start]))
        decision = self._dry_runs.of(cycle)
        found = _Candidates()
        clean = False
        tried = 0
        while tried < len(order):
            some = order[tried : tried + _so_many(wanted, len(found), tried)]
            tried += len(some)
            results, without_victims = decision.on(some)
            if without_victims:
                texts[NO_VICTIMS] += without_victims
            for code, count in reasons.counted(results.verdicts["code"]):
                for text in reasons[code].texts:
                    texts[text] += count
                if not cycle.beyond_nodes:
                    refused_by.add(reasons[code].plugin)
            passing = results.verdicts["code"] == PASS
            in_vain = results.rows[passing & (results.verdicts["victims"] == 0)].tolist()
            errors.extend(f'expected at least one victim pod on node "{names[row]}"' for row in in_vain)
            candidates = np.flatnonzero(passing & (results.verdicts["victims"] > 0))
            if cycle.beyond_nodes:
                if len(candidates):
                    texts[NOT_HELPFUL] += len(candidates)  # the pod would be refused all the same
                continue
            found.extend(results, candidates)
            clean |= bool((results.verdicts["violations"][candidates] == 0).any())
            if clean and len(found) >= wanted:
                break
        return found, texts, errors, frozenset(refused_by)

    def _wanted(self, nodes: int) -> int:
        share = nodes * self._args.min_candidate_nodes_percentage // 100
        return min(nodes, max(share, self._args.min_candidate_nodes_absolute))


def _so_many(wanted: int, found: int, tried: int) -> int:
    """How many nodes to try next, so that the candidates that are missing are found if others are like those so far."""
    missing = wanted - found
    if missing <= 0 or not tried:
        return wanted
    return max(_FEWEST, missing * tried * 5 // (max(found, 1) * 4))


class _Candidates:
    """What the dry runs of one decision found, in the order in which nodes were tried."""

    def __init__(self) -> None:
        self._parts: list[tuple[Found, RowArray]] = []
        self._count = 0

    def extend(self, found: Found, at: RowArray) -> None:
        """Adds the results at some positions."""
        if len(at):
            self._parts.append((found, at))
            self._count += len(at)

    def best(self, now: float) -> Candidate:
        """The best of them, of which there must be one."""
        best = best_of(np.concatenate([found.verdicts[at] for found, at in self._parts]), now)
        for found, at in self._parts:
            if best < len(at):
                return _candidate(found, int(at[best]))
            best -= len(at)
        raise AssertionError("the best candidate is one of the candidates")

    def __iter__(self) -> Iterator[Candidate]:
        return (_candidate(found, i) for found, at in self._parts for i in at.tolist())

    def __len__(self) -> int:
        return self._count


def _candidate(found: Found, i: int) -> Candidate:
    return Candidate(int(found.rows[i]), found.victims(i), int(found.verdicts["violations"][i]))
