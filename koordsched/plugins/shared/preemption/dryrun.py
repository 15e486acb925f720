"""The dry run on one node, for any kind of filter: all victims off, then put back one by one.

Source: upstream `defaultpreemption/default_preemption.go` SelectVictimsOnNode; core spec 3.8.
"""

from __future__ import annotations

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.filtering import Filtering
from koordsched.framework.interface import CycleState
from koordsched.framework.status import PASS
from koordsched.plugins.shared.preemption.budgets import Budgets
from koordsched.plugins.shared.preemption.candidates import Candidate, by_importance
from koordsched.plugins.shared.preemption.holdings import Holdings


class DryRun:
    """Tries nodes one at a time."""

    def __init__(self, cluster: ClusterState, filtering: Filtering, budgets: Budgets) -> None:
        self._cluster = cluster
        self._filtering = filtering
        self._budgets = budgets

    def on(
        self, cycle: CycleState, row: int, lower: list[Pod], now: float, holdings: Holdings | None = None
    ) -> Candidate | int:
        """The candidate, or the code of the filter that refuses the pod even with all lower pods gone.

        `lower`: the pods on the row that may go. A candidate without victims means that the pod fits as it is.
        With `holdings`, victims are also those the preemptor needs the
        holdings of; they stay in the order in which they were tried, and only those that the node has no room for
        count as violations (elasticquota spec 3.11).
        """
        pod = cycle.pod
        filters = self._filtering.pod_filters(cycle)
        gone: list[Pod] = []
        with self._cluster.what_if() as hypothesis:

            def remove(other: Pod) -> None:
                hypothesis.remove(other, row)
                for plugin in filters:
                    plugin.remove_pod(cycle, pod, other, row)
                gone.append(other)

            def put_back(other: Pod) -> None:
                hypothesis.add(other, row)
                for plugin in filters:
                    plugin.add_pod(cycle, pod, other, row)
                gone.remove(other)

            try:
                for other in lower:
                    remove(other)
                code = self._filtering.dry_run(cycle, row)
                if code != PASS:
                    return code
                victims: list[Pod] = []
                violations = 0
                ordered = by_importance(lower, now)
                violating, others = self._budgets.violations(ordered)
                for other in (*violating, *others):
                    put_back(other)
                    fits = self._filtering.dry_run(cycle, row) == PASS
                    if not fits:
                        violations += other in violating
                    if fits and (holdings is None or holdings.spare(other)):
                        if holdings is not None:
                            holdings.put_back(other)
                    else:
                        remove(other)
                        victims.append(other)
                if holdings is None:
                    victims = [other for other in ordered if other in victims]
                return Candidate(row, tuple(victims), violations)
            finally:
                for other in reversed(gone):
                    for plugin in filters:
                        plugin.add_pod(cycle, pod, other, row)
