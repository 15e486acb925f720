"""PodDisruptionBudgets: which victims would break one."""

from __future__ import annotations

from collections.abc import Iterable

from koordsched.api.policy import PodDisruptionBudget
from koordsched.api.selectors import Selector, SelectorError, compile_selector
from koordsched.cluster.objects import Store
from koordsched.cluster.pod import Pod


class _Budget:
    __slots__ = ("allowed", "disrupted", "selector")

    def __init__(self, selector: Selector, budget: PodDisruptionBudget) -> None:
        self.selector = selector
        self.allowed = budget.status.disruptions_allowed
        self.disrupted = budget.status.disrupted_pods

    def protects(self, pod: Pod) -> bool:
        return bool(pod.labels.labels) and self.selector.matches(pod.labels.labels) and pod.name not in self.disrupted


class Budgets:
    """The budgets of the cluster, compiled again when one changed.

    Source: upstream `preemption.go` filterPodsWithPDBViolation: an empty selector protects nobody, nor does
    a budget count a pod whose eviction it has already been charged for (status.disruptedPods).
    """

    def __init__(self, store: Store[PodDisruptionBudget]) -> None:
        self._store = store
        self._version = -1
        self._by_namespace: dict[str, list[_Budget]] = {}

    def _current(self) -> dict[str, list[_Budget]]:
        if self._version != self._store.version:
            self._by_namespace = {}
            for budget in self._store:
                if budget.spec.selector is None:
                    continue
                try:
                    selector = compile_selector(budget.spec.selector)
                except SelectorError:
                    continue  # the API server refuses such selectors; nobody is protected by one
                if not selector.empty:
                    self._by_namespace.setdefault(budget.metadata.namespace, []).append(_Budget(selector, budget))
            self._version = self._store.version
        return self._by_namespace

    def protect_any(self, pods: Iterable[Pod]) -> bool:
        """Whether a budget protects one of the pods."""
        by_namespace = self._current()
        if not by_namespace:
            return False
        return any(budget.protects(pod) for pod in pods for budget in by_namespace.get(pod.namespace, ()))

    def violations(self, pods: Iterable[Pod]) -> tuple[list[Pod], list[Pod]]:
        """(pods whose eviction breaks a budget, the others), counting the budgets down along the given order."""
        by_namespace = self._current()
        left: dict[int, int] = {}
        violating: list[Pod] = []
        others: list[Pod] = []
        for pod in pods:
            broken = False
            for budget in by_namespace.get(pod.namespace, ()):
                if not budget.protects(pod):
                    continue
                remaining = left.get(id(budget), budget.allowed) - 1
                left[id(budget)] = remaining
                broken |= remaining < 0
            (violating if broken else others).append(pod)
        return violating, others
