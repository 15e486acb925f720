"""PodDisruptionBudgets: which victims would break one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from koordsched.api.policy import PodDisruptionBudget
from koordsched.cluster.builtinkinds import POD_DISRUPTION_BUDGETS
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.plugins.shared.preemption.kinds import KindArray, PodKinds
from koordsched.plugins.shared.preemption.namespacebudgets import Left, NamespaceBudgets
from koordsched.plugins.shared.preemption.victims import Mask, PotentialVictims

SAFE, BROKEN, COUNTED = 0, 1, 2
"""What budgets say about one more victim of a kind: nothing; it breaks one; that depends on the victims before it."""

_GROUPS_SPARE = 64


class Budgets:
    """The budgets of a cluster (`ClusterState.shared(Budgets)`).

    `version` grows when what they protect, or how many disruptions they allow, changes; most updates of their
    status do neither. Source: upstream `preemption.go` filterPodsWithPDBViolation: an empty selector protects no pod,
    nor does a budget count a pod whose eviction it has already been charged for (status.disruptedPods).
    """

    def __init__(self, cluster: ClusterState) -> None:
        self.version = 0
        self._by_namespace: dict[str, NamespaceBudgets] = {}
        self._groups = _Groups(PodKinds(), self._by_namespace)
        self._states: KindArray = np.zeros(0, dtype=np.int32)
        self._states_of: tuple[_Groups, int, int] | None = None
        self._least_allowed = 0  # this many pods under budgets on one row break none that is not exhausted
        cluster.objects.of(POD_DISRUPTION_BUDGETS).subscribe(self._on_change)

    def _on_change(self, old: PodDisruptionBudget | None, new: PodDisruptionBudget | None) -> None:
        changed = new if new is not None else old
        if changed is None:
            return
        namespace = changed.metadata.namespace
        budgets = self._by_namespace.get(namespace)
        if budgets is None:
            budgets = self._by_namespace[namespace] = NamespaceBudgets()
        selects, allows = budgets.put(changed.metadata.name, new)
        if selects:
            self._groups.forget(namespace)
        if selects or allows:
            self.version += 1
        if not budgets:
            del self._by_namespace[namespace]

    def _protecting(self, pod: Pod) -> int:
        """Those of its namespace that protect the pod, as bits."""
        budgets = self._by_namespace.get(pod.namespace)
        return 0 if budgets is None else budgets.protecting(pod)

    # --- one list of pods --------------------------------------------------------------------------

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._by_namespace)

    def protects(self, pod: Pod) -> bool:
        """Whether there is a budget for the pod, exhausted or not."""
        return self._protecting(pod) > 0

    def broken_by(self, pods: Sequence[Pod], left: Left | None = None) -> list[bool]:
        """Whether the eviction of each pod breaks a budget, counting the budgets down along the given order.

        `left`: what was left of them after the pods before these, empty in the beginning; it is counted down.
        """
        return self._broken(pods, map(self._protecting, pods), {} if left is None else left)

    def _broken(self, pods: Sequence[Pod], protecting: Iterable[int], left: Left) -> list[bool]:
        spaces = self._by_namespace
        return [
            found > 0 and spaces[pod.namespace].take(pod, found, left)
            for pod, found in zip(pods, protecting, strict=True)
        ]

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
        if self._groups.kinds is not kinds:
            self._groups = _Groups(kinds, self._by_namespace)
        self._groups.refresh()
        groups = self._groups.groups
        current = (self._groups, len(groups), self.version)
        if self._states_of != current:
            spaces = self._by_namespace
            self._states = np.array([_state(spaces.get(space), found) for space, found in groups], dtype=np.int32)
            self._states_of = current
            counted: dict[str, int] = {}
            for (space, found), state in zip(groups, self._states.tolist(), strict=True):
                if state == COUNTED:
                    counted[space] = counted.get(space, 0) | found
            self._least_allowed = min((spaces[name].least_allowed(found) for name, found in counted.items()), default=0)
        states: KindArray = self._states[self._groups.numbers]
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
        groups, numbers = self._groups.groups, self._groups.numbers
        for i in np.flatnonzero(counted).tolist():
            pods = pods_of(i)
            protecting = [groups[number][1] for number in numbers[potential.kinds[: len(pods), i]].tolist()]
            broken[: len(pods), i] = self._broken(pods, protecting, {})
        return broken if broken.any() else None


_Group = tuple[str, int]
"""(namespace, the budgets of it that protect a kind of pods, as bits)."""
_NO_GROUP = ("", 0)


class _Groups:
    """Kinds that are protected by the same budgets: what the budgets allow is looked at once for all of them.

    `numbers`: int32[kinds], where in `groups` that of each kind is; both are valid after `refresh`.
    """

    __slots__ = ("_numbered", "_of_namespace", "_spaces", "_stale", "groups", "kinds", "numbers")

    def __init__(self, kinds: PodKinds, spaces: Mapping[str, NamespaceBudgets]) -> None:
        self.kinds = kinds
        self._spaces = spaces
        self._of_namespace: dict[str, list[int]] = {}
        self.numbers: KindArray = np.zeros(0, dtype=np.int32)
        self._stale: dict[str, None] = {}
        self._begin_again()

    def _begin_again(self) -> None:
        self.groups: list[_Group] = [_NO_GROUP]
        self._numbered: dict[str, dict[int, int]] = {}

    def forget(self, namespace: str) -> None:
        """What the budgets of a namespace protect has changed; the kinds of the others stay in their groups."""
        self._stale[namespace] = None

    def refresh(self) -> None:
        """Looks at the kinds that are new, and at those of namespaces with other budgets."""
        known, examples = len(self.numbers), self.kinds.examples
        again = [number for name in self._stale for number in self._of_namespace.get(name, ())]
        for name in self._stale:
            for number in self._numbered.pop(name, {}).values():
                self.groups[number] = _NO_GROUP
        self._stale.clear()
        if again and len(self.groups) > 2 * known + _GROUPS_SPARE:
            self._begin_again()
            again = list(range(known))
        if known < len(examples):
            self.numbers = np.concatenate((self.numbers, np.zeros(len(examples) - known, dtype=np.int32)))
            for number in range(known, len(examples)):
                pod = examples[number]
                if pod is not None:
                    self._of_namespace.setdefault(pod.namespace, []).append(number)
            again += range(known, len(examples))
        for number in again:
            self.numbers[number] = self._group_of(examples[number])

    def _group_of(self, pod: Pod | None) -> int:
        budgets = None if pod is None else self._spaces.get(pod.namespace)
        found = 0 if pod is None or budgets is None else budgets.protecting(pod)
        if pod is None or not found:
            return 0
        numbered = self._numbered.setdefault(pod.namespace, {})
        number = numbered.get(found)
        if number is None:
            number = numbered[found] = len(self.groups)
            self.groups.append((pod.namespace, found))
        return number


def _state(budgets: NamespaceBudgets | None, found: int) -> int:
    if budgets is None or not found:
        return SAFE
    return BROKEN if budgets.exhausted & found else COUNTED
