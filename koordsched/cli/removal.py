"""Which nodes of a group could go: empty ones, and those whose pods fit on the other nodes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import msgspec

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cli.addednodes import as_object, is_daemon
from koordsched.cli.nodegroups import GroupNodes
from koordsched.cluster.interning import LabelSet
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.engine.attempt import Attempt
from koordsched.engine.transaction import Placed, Transaction, take_back
from koordsched.framework.scoring import ScoringFailed
from koordsched.plugins.shared.preemption.budgets import Budgets
from koordsched.scheduling.offline import OfflineScheduler


class Removable(msgspec.Struct, rename="camel"):
    """A node that could go, after those before it in the list. `pods`: where its pods would go, by their names."""

    group: str
    node: str
    pods: dict[str, str]


class _Removed(NamedTuple):
    """A node that was taken away, and the copies of its pods elsewhere."""

    node: core.Node
    placed: list[Placed]


class Removal:
    """The search. It leaves everything as it was."""

    def __init__(self, scheduler: OfflineScheduler, seed: int) -> None:
        self._scheduler = scheduler
        self._rng = Random(seed)
        self._budgets = scheduler.cluster.shared(Budgets)
        self._moved: list[Pod] = []
        """Those with a disruption budget."""
        self._examples: dict[tuple[str, PodShape, LabelSet], Pod] = {}

    def removable(self, groups: Sequence[GroupNodes]) -> list[Removable]:
        """One after the other, the emptiest first, down to the minimum of each group."""
        found: list[Removable] = []
        removed: list[_Removed] = []
        seen: set[str] = set()
        for group in groups:
            members = [name for name in group.members if name not in seen]
            seen.update(members)
            spare = len(members) - group.group.min
            for name in sorted(members, key=lambda name: (len(self._pods(name)), name)):
                if spare <= 0:
                    break
                gone = self._remove(name)
                if gone is not None:
                    spare -= 1
                    removed.append(gone)
                    moves = {
                        placed.pod.title: self._scheduler.cluster.table.names[placed.row] for placed in gone.placed
                    }
                    found.append(Removable(group.name, name, moves))
        for gone in reversed(removed):
            for placed in reversed(gone.placed):
                take_back(placed, self._scheduler.cluster, self._scheduler.nominator)
            self._scheduler.cluster.upsert_node(gone.node)
        return found

    def _pods(self, name: str) -> list[Pod]:
        """The pods on a node that would have to go elsewhere: by priority, then by name."""
        cluster = self._scheduler.cluster
        pods = cluster.pods_on(cluster.table.row_of[name]).values()
        moving = [pod for pod in pods if not is_daemon(pod) and not _is_mirror(pod) and not pod.deleting]
        return sorted(moving, key=lambda pod: (-pod.priority, pod.key))

    def _remove(self, name: str) -> _Removed | None:
        """Takes the node away, if its pods fit elsewhere."""
        cluster, nominator = self._scheduler.cluster, self._scheduler.nominator
        row = cluster.table.row_of[name]
        node, pods = cluster.table.nodes[row], self._pods(name)
        assert node is not None, "a known name has a node"
        if not self._may_go(pods) or not self._fit_elsewhere(pods, row):
            return None
        copies = [self._copy(pod) for pod in pods]
        cluster.remove_node(name)
        with Transaction(cluster, nominator) as transaction:
            if all(self._place(copy, transaction) for copy in copies):
                self._moved += filter(self._budgets.protects, pods)
                return _Removed(node, transaction.commit())
        cluster.upsert_node(node)
        return None

    def _may_go(self, pods: list[Pod]) -> bool:
        """Whether each of them would be made anew, by a scheduler that is known, and no budget is broken."""
        profiles, assumed = self._scheduler.profiles, self._scheduler.cluster.assumed
        for pod in pods:
            if pod.shape.scheduler_name not in profiles or (pod.owner is None and pod.uid not in assumed):
                return False
        protected = [*filter(self._budgets.protects, pods)]
        return not protected or not any(self._budgets.broken_by([*self._moved, *protected]))

    def _fit_elsewhere(self, pods: list[Pod], row: int) -> bool:
        """Whether each of them fits on another node by itself, as it is: most nodes fail here, at little cost."""
        for key, pod in {(pod.namespace, pod.shape, pod.labels): pod for pod in pods}.items():
            if key not in self._examples:
                self._examples[key] = self._copy(pod)
            verdicts = self._attempt(self._examples[key]).filter(all_nodes=True)
            if verdicts.feasible - int(verdicts.codes[row] == 0) <= 0:
                return False
        return True

    def _copy(self, pod: Pod) -> Pod:
        shown = as_object(self._scheduler, pod)
        shown["metadata"]["uid"] = f"moved/{pod.uid}"
        shown["spec"].pop("nodeName", None)
        return self._scheduler.cluster.pods.build(convert(shown, core.Pod))

    def _attempt(self, pod: Pod) -> Attempt:
        return Attempt(self._scheduler.profiles[pod.shape.scheduler_name], self._scheduler.cluster, pod)

    def _place(self, pod: Pod, transaction: Transaction) -> bool:
        attempt = self._attempt(pod)
        if not attempt.has_nodes or not attempt.filter().feasible or attempt.error() is not None:
            return False
        try:
            row = attempt.choose(self._rng).row
        except ScoringFailed:
            return False
        return transaction.place(attempt.cycle, attempt.profile, row).ok


def _is_mirror(pod: Pod) -> bool:
    """A static pod, which the node's kubelet runs by itself."""
    return pod.owner is not None and pod.owner.kind == "Node"
