"""The plugin: whether preemption may help, where, and whom it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from koordsched.cluster.events import POD, ActionType, ClusterEvent
from koordsched.cluster.objects import POD_DISRUPTION_BUDGETS
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Handle
from koordsched.framework.interface import Cycle, PostFilter, PostFilterResult, PreEnqueue
from koordsched.framework.preemption import PreemptionOffer, Victims
from koordsched.framework.status import SUCCESS, Code, Codes, Status
from koordsched.plugins.preemption.budgets import Budgets
from koordsched.plugins.preemption.candidates import Candidate, by_importance
from koordsched.plugins.preemption.dryrun import DryRun
from koordsched.plugins.preemption.lockstep import Lockstep, VictimLists
from koordsched.plugins.preemption.remembered import RememberedRuns
from koordsched.plugins.preemption.visibility import why_not
from koordsched.queue.hints import HintRegistration, QueueingHint, Scope

NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_CANDIDATE = "no candidate node for preemption"
ERRORS_NAMED = 20
"""How many nodes an error names at most."""
_FEWEST = 16
"""Nodes tried at once, at least: stepping few together costs nearly as much as stepping many."""

WAITING = "waiting for the preemption for this pod to be finished"


class Args(Protocol):
    """DefaultPreemptionArgs."""

    @property
    def min_candidate_nodes_percentage(self) -> int: ...
    @property
    def min_candidate_nodes_absolute(self) -> int: ...


class DefaultPreemption(PreEnqueue, PostFilter):
    """Source: upstream `plugins/defaultpreemption`, `framework/preemption`; core spec 3.8."""

    name = "DefaultPreemption"

    def __init__(self, args: Args, handle: Handle) -> None:
        self._args = args
        self._handle = handle
        self._budgets = Budgets(handle.cluster.objects.of(POD_DISRUPTION_BUDGETS))
        self._lists = VictimLists(handle.cluster)
        self._remembered = RememberedRuns(handle.cluster.table, handle.nominations)

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """A deleted pod: never by itself; the plugins that rejected the pod decide."""
        return [
            HintRegistration(
                self.name, ClusterEvent(POD, ActionType.DELETE), lambda pod, old, new: QueueingHint.SKIP, Scope.SHAPE
            )
        ]

    def pre_enqueue(self, pod: Pod) -> Status:
        """A preemptor stays out of the queue until its victims have been told to go."""
        if self._handle.evictions.running_for(pod.uid):
            return Status(Code.UNRESOLVABLE, (WAITING,))
        return SUCCESS

    def post_filter(self, cycle: Cycle, pod: Pod, codes: Codes) -> PostFilterResult:
        """Looks for the node where making room costs least."""
        refusal = self._ineligible(pod, codes)
        if refusal:
            return PostFilterResult(Status(Code.UNSCHEDULABLE, (f"preemption: {refusal}",)))
        candidates, texts, errors = self._search(cycle, codes)
        if not candidates and errors:
            text = errors[0] if len(errors) == 1 else f"[{', '.join(errors[:ERRORS_NAMED])}]"
            return PostFilterResult(Status(Code.ERROR, (f"preemption: {text}",)))
        if not candidates:
            total = self._handle.cluster.table.count
            parts = sorted(f"{count} {text}" for text, count in texts.items())
            message = f"preemption: 0/{total} nodes are available: {', '.join(parts)}."
            return PostFilterResult(Status(Code.UNSCHEDULABLE, (message,)), nominated_node="")
        return PreemptionOffer(
            self._choose(pod, candidates),
            lambda: self._by_node(candidates),
            lambda remaining: self._choose(pod, self._of_nodes(remaining)),
        )

    def _choose(self, pod: Pod, candidates: Sequence[Candidate]) -> PostFilterResult:
        if not candidates:
            return PostFilterResult(Status(Code.UNSCHEDULABLE, (NO_CANDIDATE,)))
        now = self._handle.clock.wall()
        best = min(candidates, key=lambda candidate: candidate.rank(now))
        node = self._handle.cluster.table.names[best.row]
        return PostFilterResult(
            SUCCESS, node, best.victims, lambda: self._handle.evictions.start(pod, node, best.victims)
        )

    def _by_node(self, candidates: Sequence[Candidate]) -> dict[str, Victims]:
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
        row = self._handle.cluster.table.row_of.get(pod.nominated_node) if pod.nominated_node else None
        if row is not None and self._handle.reasons[int(codes[row])].code is not Code.UNRESOLVABLE:
            others = self._handle.cluster.pods_on(row).values()
            if any(other.preempted and other.priority < pod.priority for other in others):
                return "not eligible due to a terminating pod on the nominated node."
        return ""

    def _search(self, cycle: Cycle, codes: Codes) -> tuple[list[Candidate], Counter[str], list[str]]:
        """Candidates among the nodes refused in a way that fewer pods may cure.

        Texts count why others are none; errors name those where the pod would fit with nobody evicted.
        """
        potential: list[int] = []
        texts: Counter[str] = Counter()
        errors: list[str] = []
        reasons = self._handle.reasons
        curable = [code for code, _ in reasons.counted(codes) if reasons[code].code is Code.UNSCHEDULABLE]
        for code, count in reasons.counted(codes):
            if code not in curable:
                texts[NOT_HELPFUL] += count
        for code in curable:
            potential.extend((codes == code).nonzero()[0].tolist())
        potential.sort()
        wanted = self._wanted(len(potential))
        start = self._handle.rng.randrange(len(potential)) if len(potential) > wanted else 0
        order = potential[start:] + potential[:start]
        found: list[Candidate] = []
        clean = False
        tried = 0
        while tried < len(order):
            # Once most of the candidates are found, only about as many nodes are tried as are missing.
            missing = wanted - len(found)
            some = order[tried : tried + (max(missing, _FEWEST) if missing > 0 else wanted)]
            tried += len(some)
            for row, result in self._dry_runs(cycle, some):
                if result is None:
                    texts[NO_VICTIMS] += 1
                elif isinstance(result, int):
                    for text in reasons[result].texts:
                        texts[text] += 1
                elif not result.victims:
                    name = self._handle.cluster.table.names[row]
                    errors.append(f'expected at least one victim pod on node "{name}"')
                elif cycle.beyond_nodes:
                    texts[NOT_HELPFUL] += 1  # the pod would be refused all the same
                else:
                    found.append(result)
                    clean |= not result.violations
            if clean and len(found) >= wanted:
                break
        return found, texts, errors

    def _wanted(self, nodes: int) -> int:
        share = nodes * self._args.min_candidate_nodes_percentage // 100
        return min(nodes, max(share, self._args.min_candidate_nodes_absolute))

    def _dry_runs(self, cycle: Cycle, rows: list[int]) -> Iterator[tuple[int, Candidate | int | None]]:
        """(row, candidate or refusing code or None if there is nobody to evict)."""
        cluster, filtering = self._handle.cluster, self._handle.filtering
        now = self._handle.clock.wall()
        lockstep = Lockstep(cluster, filtering)
        one_by_one = DryRun(cluster, filtering, self._budgets)
        together = lockstep.applies(cycle)
        stepped: list[int] = []
        lists: list[list[Pod]] = []
        breaking: dict[int, list[Pod]] = {}
        for row in rows:
            lower = self._lists.on(row, cycle.pod.priority, now)
            if not lower:
                yield row, None
                continue
            if not together:
                yield row, one_by_one.on(cycle, row, lower, now)
                continue
            violating, others = self._budgets.violations(lower)
            if violating:
                breaking[row] = violating
                lower = [*violating, *others]
            elif (known := self._remembered.of(cycle.pod, row)) is not None:
                yield row, known
                continue
            stepped.append(row)
            lists.append(lower)
        if not stepped:
            return
        # Where only room matters, a pod that fits beside the nominated ones fits without them, too.
        with filtering.as_promised(cycle.pod, stepped):
            results = lockstep.on(cycle, stepped, lists)
        for row, result in zip(stepped, results, strict=True):
            if row not in breaking:
                self._remembered.keep(cycle.pod, row, result)
                yield row, result
            elif isinstance(result, Candidate):
                broken = sum(victim in breaking[row] for victim in result.victims)
                yield row, Candidate(row, tuple(by_importance(list(result.victims), now)), broken)
            else:
                yield row, result
