"""plugin_evaluation_total without a counter per plugin: one increment for all plugins that a cycle evaluates.

What is counted is upstream's set (`pkg/scheduler/framework/runtime`, the instrumented plugins): every plugin that the
profile lists at PreFilter, Filter, PreScore and Score, from 0 on; one that says Skip in PreFilter or PreScore is not
counted there, nor at the point that follows. Upstream counts Filter and Score once per node, here it is once per cycle.
"""

from __future__ import annotations

from koordsched.framework.interface import CycleState
from koordsched.framework.plan import Chains, ShapePlan
from koordsched.framework.scoring import Choice
from koordsched.framework.verdicts import PreFiltered
from koordsched.observability.instruments import Counter
from koordsched.observability.metrics import Metrics

_Names = frozenset[str]


class EvaluationCounts:
    """The counters of one profile. Which plugins a cycle evaluates follows from the plan and from who said Skip."""

    def __init__(self, metrics: Metrics, profile: str, chains: Chains) -> None:
        self._metrics = metrics
        self._profile = profile
        self._chains = chains
        points = (
            ("PreFilter", [plugin.name for plugin in chains.pre_filters]),
            ("Filter", [plugin.name for plugin in chains.filters]),
            ("PreScore", chains.pre_scores),
            ("Score", [plugin.name for plugin, _ in chains.scores]),
        )
        metrics.evaluations(profile, tuple((name, point) for point, names in points for name in names))

    def filtered(self, plan: ShapePlan, pre: PreFiltered, cycle: CycleState) -> None:
        """A cycle ran PreFilter, and Filter unless that rejected the pod."""
        counters = plan.shape.compiled(self, _new_counters)
        key = (pre.status.ok, frozenset(pre.skipped), cycle.not_pre_filtered)
        counter = counters.get(key)
        if counter is None:
            counter = counters[key] = self._filtering(plan, *key)
        counter.value += 1

    def scored(self, choice: Choice) -> None:
        """A cycle scored the feasible nodes and made this choice."""
        plan = choice.verdicts.plan
        counters = plan.shape.compiled(self, _new_counters)
        key = choice.asked
        counter = counters.get(key)
        if counter is None:
            counter = counters[key] = self._scoring(plan, key)
        counter.value += 1

    def _filtering(self, plan: ShapePlan, passed: bool, skipped: _Names, not_reached: _Names) -> Counter:
        left_out = plan.skipped | skipped
        asked = [plugin.name for plugin in self._chains.pre_filters if plugin.name not in left_out | not_reached]
        evaluated = [(name, "PreFilter") for name in asked]
        if passed:
            evaluated += [(p.name, "Filter") for p in self._chains.filters if p.name not in left_out]
        return self._metrics.evaluations(self._profile, tuple(evaluated))

    def _scoring(self, plan: ShapePlan, asked: _Names) -> Counter:
        names = asked.union(plugin.name for plugin, _ in plan.node_scores)
        evaluated = [(name, "PreScore") for name in self._chains.pre_scores if name in names]
        evaluated += [(plugin.name, "Score") for plugin, _ in self._chains.scores if plugin.name in names]
        return self._metrics.evaluations(self._profile, tuple(evaluated))


def _new_counters(shape: object) -> dict[tuple[bool, _Names, _Names] | _Names, Counter]:
    return {}
