"""Core spec 3.8."""

from collections import Counter

from tests.reference import preemption
from tests.reference.postfilter import PostFiltered
from tests.reference.status import unschedulable


class DefaultPreemption:
    def __init__(self, args):
        self.percentage = args.get("minCandidateNodesPercentage", 10)
        self.absolute = args.get("minCandidateNodesAbsolute", 100)

    def post_filter(self, pod, world, profile, outcome, nominated, now):
        why_not = preemption.ineligible(pod, world, outcome)
        if why_not:
            return PostFiltered(unschedulable(f"preemption: {why_not}"))
        candidates, reasons = preemption.dry_runs(pod, world, profile, outcome, nominated, now)
        if not candidates:
            counts = Counter(reason for texts in reasons.values() for reason in texts)
            parts = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
            return PostFiltered(
                unschedulable(f"preemption: 0/{len(world.nodes)} nodes are available: {parts}."), cleared=True
            )
        return PostFiltered(candidates=candidates, best=self.acceptable(candidates, world, outcome, now))

    def acceptable(self, candidates, world, outcome, now):
        """The nodes that may be picked: those that are best, or any if only a part of the nodes has to be tried."""
        tried = len(preemption.potential_nodes(world, outcome))
        if max(tried * self.percentage // 100, self.absolute) >= tried:
            return preemption.best(candidates, now)
        clean = {name for name, (_, violations) in candidates.items() if not violations}
        return clean or preemption.best(candidates, now)
