"""plugin_evaluation_total without a counter per plugin: one increment for all plugins that a cycle evaluates."""

from __future__ import annotations

from koordsched.framework.filtering import PreFiltered
from koordsched.framework.plan import Chains, ShapePlan
from koordsched.observability.instruments import Counter
from koordsched.observability.metrics import Metrics

_Skipped = frozenset[str]


class EvaluationCounts:
    """The counters of one profile. Which plugins a cycle evaluates follows from the plan and from who said Skip."""

    def __init__(self, metrics: Metrics, profile: str, chains: Chains) -> None:
        self._metrics = metrics
        self._profile = profile
        self._chains = chains

    def filtered(self, plan: ShapePlan, pre: PreFiltered) -> None:
        """A cycle ran PreFilter, and Filter unless that rejected the pod."""
        counters = plan.shape.compiled(self, _new_counters)
        key = (pre.status.ok, frozenset(pre.skipped))
        counter = counters.get(key)
        if counter is None:
            counter = counters[key] = self._filtering(plan, *key)
        counter.value += 1

    def scored(self, plan: ShapePlan) -> None:
        """A cycle scored the feasible nodes. Plugins asked in every cycle count even if they had no opinion."""
        counters = plan.shape.compiled(self, _new_counters)
        counter = counters.get(None)
        if counter is None:
            counter = counters[None] = self._scoring(plan)
        counter.value += 1

    def _filtering(self, plan: ShapePlan, passed: bool, skipped: _Skipped) -> Counter:
        left_out = plan.skipped | skipped
        evaluated = [(p.name, "PreFilter") for p in self._chains.pre_filters if p.name not in left_out]
        if passed:
            evaluated += [(p.name, "Filter") for p in self._chains.filters if p.name not in left_out]
        return self._metrics.evaluations(self._profile, tuple(evaluated))

    def _scoring(self, plan: ShapePlan) -> Counter:
        names = {plugin.name for plugin, _ in (*plan.node_scores, *plan.pod_scores)}
        scoring = [plugin.name for plugin, _ in self._chains.scores if plugin.name in names]
        evaluated = [(name, point) for point in ("PreScore", "Score") for name in scoring]
        return self._metrics.evaluations(self._profile, tuple(evaluated))


def _new_counters(shape: object) -> dict[tuple[bool, _Skipped] | None, Counter]:
    return {}
