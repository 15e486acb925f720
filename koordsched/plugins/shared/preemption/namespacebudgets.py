"""The PodDisruptionBudgets of one namespace, asked all at once.

Any user of a namespace may create them, thousands of them or with thousands of requirements each. So what a pod costs
depends on its labels: budgets are the bits of numbers.
"""

from __future__ import annotations

from koordsched.api.meta import LabelSelector
from koordsched.api.policy import PodDisruptionBudget
from koordsched.api.selectors import EVERYTHING, Selector, SelectorError, compile_selector
from koordsched.cluster.pod import Pod
from koordsched.plugins.shared.podcounts.bits import BitIndex, Counters
from koordsched.plugins.shared.podcounts.labelselectors import LabelSelectors

Left = dict[str, Counters]
"""By namespace, how many disruptions each budget still allows."""


class _Budget:
    __slots__ = ("allowed", "disrupted", "number", "selector")

    def __init__(self, number: int, selector: LabelSelector) -> None:
        self.number = number
        self.selector = selector
        self.allowed = 0
        self.disrupted: frozenset[str] = frozenset()


class NamespaceBudgets:
    """Those that protect any pod. `exhausted`: which break with any pod that they protect, as bits."""

    __slots__ = ("_allowed", "_by_name", "_charged", "_free", "_selectors", "exhausted")

    def __init__(self) -> None:
        self._by_name: dict[str, _Budget] = {}
        self._free: list[int] = []
        self._selectors = LabelSelectors()
        self._charged: BitIndex[str] = BitIndex()
        """By name of a pod, the budgets that were charged for its eviction."""
        self._allowed = Counters()
        self.exhausted = 0

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def put(self, name: str, wire: PodDisruptionBudget | None) -> tuple[bool, bool]:
        """A budget was written, or is gone (None). Returns whether others are protected now, and are allowed."""
        selector = wire.spec.selector if wire is not None else None
        budget = self._by_name.get(name)
        selects = False
        if budget is not None and budget.selector != selector:
            self._remove(name, budget)
            budget, selects = None, True
        if budget is None and selector is not None:
            compiled = _compiled(selector)
            if not compiled.empty:
                number = self._free.pop() if self._free else len(self._by_name)
                budget = self._by_name[name] = _Budget(number, selector)
                self._selectors.put(number, compiled)
                self._allow(budget, 0, frozenset())
                selects = True
        if budget is None or wire is None:
            return selects, False
        now = wire.status.disruptions_allowed, frozenset(wire.status.disrupted_pods)
        if now == (budget.allowed, budget.disrupted):
            return selects, False
        self._allow(budget, *now)
        return selects, True

    def _remove(self, name: str, budget: _Budget) -> None:
        del self._by_name[name]
        self._selectors.drop(budget.number, _compiled(budget.selector))
        self._allow(budget, 0, frozenset())
        self.exhausted &= ~(1 << budget.number)
        self._free.append(budget.number)

    def _allow(self, budget: _Budget, allowed: int, disrupted: frozenset[str]) -> None:
        bit = 1 << budget.number
        for name in budget.disrupted - disrupted:
            self._charged.remove(name, budget.number)
        for name in disrupted - budget.disrupted:
            self._charged.add(name, budget.number)
        budget.allowed, budget.disrupted = allowed, disrupted
        self.exhausted = self.exhausted & ~bit | (bit if allowed <= 0 and not disrupted else 0)
        self._allowed.set(budget.number, max(0, allowed))

    def protecting(self, pod: Pod) -> int:
        """The budgets that protect the pod, as bits."""
        labels = pod.labels.labels
        return self._selectors.matching(labels) if labels else 0

    def least_allowed(self, found: int) -> int:
        """The fewest disruptions that one of these budgets allows."""
        return self._allowed.least(found)

    def take(self, pod: Pod, found: int, left: Left) -> bool:
        """Evicts a pod that these budgets protect, and counts `left` down; whether that breaks one."""
        allowed = left.get(pod.namespace)
        if allowed is None:
            allowed = left[pod.namespace] = self._allowed.copy()
        found &= ~self._charged.of((pod.name,))
        some = allowed.positive
        allowed.count_down(found & some)
        return found & ~some > 0


def _compiled(selector: LabelSelector) -> Selector:
    try:
        return compile_selector(selector)
    except SelectorError:
        return EVERYTHING  # the API server refuses such selectors; they protect no pod, like empty ones
