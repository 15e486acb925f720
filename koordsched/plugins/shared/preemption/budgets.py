"""PodDisruptionBudgets: which victims would break one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from koordsched.api.meta import LabelSelector
from koordsched.api.policy import PodDisruptionBudget
from koordsched.api.selectors import Selector, SelectorError, compile_selector
from koordsched.cluster.builtinkinds import POD_DISRUPTION_BUDGETS
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.plugins.shared.matching.lookup import Lookup
from koordsched.plugins.shared.preemption.kinds import KindArray, PodKinds
from koordsched.plugins.shared.preemption.victims import Mask, PotentialVictims

SAFE, BROKEN, COUNTED = 0, 1, 2
"""What budgets say about one more victim of a kind: nothing; it breaks one; that depends on the victims before it."""


class _Budget:
    __slots__ = ("allowed", "disrupted", "selector", "wire_selector")

    def __init__(self, wire_selector: LabelSelector, selector: Selector) -> None:
        self.wire_selector = wire_selector
        self.selector = selector
        self.allowed = 0
        self.disrupted: frozenset[str] = frozenset()

    def selects(self, pod: Pod) -> bool:
        return bool(pod.labels.labels) and self.selector.matches(pod.labels.labels)


_Group = tuple[_Budget, ...]


class Budgets:
    """The budgets of a cluster (`ClusterState.shared(Budgets)`).

    `version` grows when what they protect, or how many disruptions they allow, changes; most updates of their
    status do neither. Source: upstream `preemption.go` filterPodsWithPDBViolation: an empty selector protects no pod,
    nor does a budget count a pod whose eviction it has already been charged for (status.disruptedPods).
    """

    def __init__(self, cluster: ClusterState) -> None:
        self.version = 0
        self._by_namespace: dict[str, dict[str, _Budget]] = {}
        # Kinds protected by the same budgets are a group; what the budgets allow is looked at once per group.
        self._groups: list[_Group] = []
        self._group_numbers: dict[_Group, int] = {}
        self._grouped: tuple[PodKinds, Lookup[Pod | None]] | None = None
        self._states: KindArray = np.zeros(0, dtype=np.int32)
        self._states_version = -1
        self._least_allowed = 0  # this many pods under budgets on one row break none that is not exhausted
        cluster.objects.of(POD_DISRUPTION_BUDGETS).subscribe(self._on_change)

    def _on_change(self, old: PodDisruptionBudget | None, new: PodDisruptionBudget | None) -> None:
        changed = new if new is not None else old
        if changed is None:
            return
        namespace, name = changed.metadata.namespace, changed.metadata.name
        before = self._by_namespace.get(namespace, {}).get(name)
        budget = _compiled(new, before) if new is not None else None
        if budget is not before:
            if budget is None:
                del self._by_namespace[namespace][name]
                if not self._by_namespace[namespace]:
                    del self._by_namespace[namespace]
            else:
                self._by_namespace.setdefault(namespace, {})[name] = budget
            self._grouped = None
            self.version += 1
        if budget is not None and new is not None:
            now = new.status.disruptions_allowed, frozenset(new.status.disrupted_pods)
            if now != (budget.allowed, budget.disrupted):
                budget.allowed, budget.disrupted = now
                self.version += 1

    def _protecting(self, pod: Pod) -> _Group:
        return tuple(budget for budget in self._by_namespace.get(pod.namespace, {}).values() if budget.selects(pod))

    # --- one list of pods --------------------------------------------------------------------------

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._by_namespace)

    def protects(self, pod: Pod) -> bool:
        """Whether there is a budget for the pod, exhausted or not."""
        return bool(self._protecting(pod))

    def broken_by(self, pods: Sequence[Pod], left: dict[int, int] | None = None) -> list[bool]:
        """Whether the eviction of each pod breaks a budget, counting the budgets down along the given order.

        `left`: what was left of them after the pods before these, empty in the beginning; it is counted down.
        """
        left = {} if left is None else left
        broken = []
        for pod in pods:
            breaks = False
            for budget in self._protecting(pod):
                if pod.name in budget.disrupted:
                    continue
                remaining = left.get(id(budget), budget.allowed) - 1
                left[id(budget)] = remaining
                breaks |= remaining < 0
            broken.append(breaks)
        return broken

    def violations(self, pods: Iterable[Pod]) -> tuple[list[Pod], list[Pod]]:
        """(pods whose eviction breaks a budget, the others), each in the given order."""
        listed = list(pods)
        broken = self.broken_by(listed)
        return (
            [pod for pod, breaks in zip(listed, broken, strict=True) if breaks],
            [pod for pod, breaks in zip(listed, broken, strict=True) if not breaks],
        )

    # --- many kinds of pods ------------------------------------------------------------------------

    def states(self, kinds: PodKinds) -> KindArray | None:
        """By kind: SAFE, BROKEN or COUNTED; None if there are no budgets."""
        if not self._by_namespace:
            return None
        if self._grouped is None or self._grouped[0] is not kinds:
            self._groups, self._group_numbers = [], {}
            self._group_of(())
            self._grouped = kinds, kinds.lookup(lambda pod: self._group_of(self._protecting(pod)), np.int32)
            self._states_version = -1
        groups = self._grouped[1]
        groups.refresh()
        if self._states_version != self.version or len(self._states) != len(self._groups):
            self._states = np.array([_state(group) for group in self._groups], dtype=np.int32)
            self._states_version = self.version
            allowed = [
                b.allowed for g, state in zip(self._groups, self._states, strict=True) if state == COUNTED for b in g
            ]
            self._least_allowed = max(0, min(allowed, default=0))
        states: KindArray = self._states[groups.verdicts]
        return states

    def broken_in(
        self, potential: PotentialVictims, kinds: PodKinds, pods_of: Callable[[int], Sequence[Pod]]
    ) -> Mask | None:
        """bool[depth, rows]: `broken_by` for every row of the potential victims; None if no budget is broken anywhere.

        `pods_of(i)`: the pods of the row at position i.
        """
        states = self.states(kinds)
        if states is None:
            return None
        found = states[potential.kinds]
        broken: Mask = found == BROKEN
        protected = np.count_nonzero(found != SAFE, axis=0)
        counted = (found == COUNTED).any(axis=0) & (protected > self._least_allowed)
        for i in np.flatnonzero(counted).tolist():
            column = self.broken_by(pods_of(i))
            broken[: len(column), i] = column
        return broken if broken.any() else None

    def _group_of(self, group: _Group) -> int:
        number = self._group_numbers.get(group)
        if number is None:
            number = self._group_numbers[group] = len(self._groups)
            self._groups.append(group)
        return number


def _state(group: _Group) -> int:
    if not group:
        return SAFE
    if any(budget.allowed <= 0 and not budget.disrupted for budget in group):
        return BROKEN
    return COUNTED


def _compiled(wire: PodDisruptionBudget, before: _Budget | None) -> _Budget | None:
    """The same as before unless the selector changed; None if it protects no pod."""
    selector = wire.spec.selector
    if selector is None:
        return None
    if before is not None and before.wire_selector == selector:
        return before
    try:
        compiled = compile_selector(selector)
    except SelectorError:
        return None  # the API server refuses such selectors; they protect no pod
    return None if compiled.empty else _Budget(selector, compiled)
