"""How many nodes of which group let the pending pods run.

A plan is found by placing the pods in the order of the queue, as the scheduler would, and adding a node of the pod's
group when there is none for a pod. Then it is placed anew with all nodes of the plan there from the start, which may
take more of them, or fewer. The smallest number of nodes would take a search through all combinations: a plan is
enough, and no node of it can be left out, but another plan might do with fewer.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from random import Random

import msgspec

from koordsched.cli.nodegroups import GroupNodes
from koordsched.cluster.pod import Pod
from koordsched.engine.attempt import Attempt, gated_by
from koordsched.engine.transaction import Placed, Transaction, take_back
from koordsched.framework.scoring import ScoringFailed
from koordsched.framework.status import PASS
from koordsched.plugins.shared.workloads import workload_title
from koordsched.scheduling.offline import OfflineScheduler
from koordsched.scheduling.queueprofile import equivalence_keys

FULL = "has as many nodes as it may have"

_MOST_ROUNDS = 20
"""How often a plan is placed anew because it took more nodes."""


class Plan(msgspec.Struct, rename="camel"):
    """`nodes`: by group, how many to add; `total` of them; `cost`, if that of all these groups is known.

    `run`: how many of the pods would run then; `pending`: how many would not.
    """

    nodes: dict[str, int]
    total: int
    cost: float | None
    run: int
    pending: int


class Unhelped(msgspec.Struct, rename="camel"):
    """Pods of a workload that run on no new node of any group: how many, the first, and why, by group."""

    workload: str
    pods: int
    example: str
    reasons: dict[str, str]


class _Kind:
    """Pods that cannot be told apart. `hosts`: the groups that help them, with how many fit on one new node."""

    def __init__(self, first: Pod) -> None:
        self.pods = [first]
        self.hosts: dict[int, int] = {}
        self.reasons: dict[str, str] = {}


_Order = Mapping[int, Sequence[GroupNodes]]
"""By id of a kind, the groups to add nodes of, best first."""


class Capacity:
    """The search, on a scheduler whose pending pods have no node. It leaves everything as it was."""

    def __init__(self, scheduler: OfflineScheduler, groups: Sequence[GroupNodes], seed: int) -> None:
        self._scheduler = scheduler
        self._groups = groups
        self._seed = seed
        equivalence = {name: equivalence_keys(profile) for name, profile in scheduler.profiles.items()}
        self._kinds: dict[Hashable, _Kind] = {}
        self.pods: list[Pod] = []
        """Those that wait for a node, in the order of the queue; gated ones do not."""
        self._kind_of: dict[str, _Kind] = {}
        for key in scheduler.queue_order():
            pod = scheduler.pending[key]
            profile = scheduler.profiles[pod.shape.scheduler_name]
            if not gated_by(profile, pod).ok:
                continue
            identity = equivalence[profile.name](pod)
            known = pod.uid if identity is None else (pod.shape, identity, pod.nominated_node)
            if known in self._kinds:
                self._kinds[known].pods.append(pod)
            else:
                self._kinds[known] = _Kind(pod)
            self._kind_of[pod.uid] = self._kinds[known]
            self.pods.append(pod)
        if self.pods:
            self._try_groups()

    def plans(self) -> list[Plan]:
        """Those that let most pods run first, then those with fewest nodes, then the cheapest."""
        found: dict[tuple[int, ...], Plan] = {}
        for order in self._orders():
            plan = self._plan(order)
            if plan.total:
                found.setdefault(tuple(plan.nodes.get(group.name, 0) for group in self._groups), plan)
        return sorted(found.values(), key=lambda plan: (plan.pending, plan.total, plan.cost or 0.0))

    def helps(self, group: GroupNodes) -> bool:
        """Whether new nodes of the group would take any of the pods."""
        number = self._groups.index(group)
        return any(number in kind.hosts for kind in self._kinds.values())

    def unhelped(self) -> list[Unhelped]:
        """The pods that no group helps, by workload."""
        found: dict[tuple[str, tuple[tuple[str, str], ...]], Unhelped] = {}
        for kind in self._kinds.values():
            if kind.hosts:
                continue
            for pod in kind.pods:
                workload = workload_title(pod)
                key = workload, tuple(kind.reasons.items())
                one = found.setdefault(key, Unhelped(workload, 0, pod.title, kind.reasons))
                one.pods += 1
        return list(found.values())

    # --- which group helps which pods ----------------------------------------------------------------

    def _try_groups(self) -> None:
        for number, group in enumerate(self._groups):
            if group.full:
                for kind in self._kinds.values():
                    kind.reasons[group.name] = FULL
                continue
            row = self._scheduler.cluster.table.row_of[group.grow()]
            for kind in self._kinds.values():
                fitting = self._fitting(kind, group.name, row)
                if fitting:
                    kind.hosts[number] = fitting
            group.shrink()

    def _fitting(self, kind: _Kind, group: str, row: int) -> int:
        """How many of the pods fit on the node of this row; the reason, if none does."""
        scheduler = self._scheduler
        count = 0
        with Transaction(scheduler.cluster, scheduler.nominator) as transaction:
            for pod in kind.pods:
                attempt = scheduler.attempt(pod.key)
                verdicts = attempt.filter(all_nodes=True)
                code = int(verdicts.codes[row])
                if code != PASS:
                    if not count:
                        rejection = verdicts.pre_filtered.status
                        texts = rejection.reasons if rejection.code.rejects else _reason(attempt, code)
                        kind.reasons[group] = ", ".join(texts)
                    break
                status = transaction.place(attempt.cycle, attempt.profile, row)
                if not status.ok:
                    if not count:
                        kind.reasons[group] = status.message
                    break
                count += 1
        return count

    # --- plans -----------------------------------------------------------------------------------------

    def _orders(self) -> list[_Order]:
        """For each group alone; for the groups that take most of the pods to a node; for the cheapest for the pods."""
        groups, kinds = self._groups, [kind for kind in self._kinds.values() if kind.hosts]
        orders: list[_Order] = [
            {id(kind): [group] for kind in kinds if number in kind.hosts} for number, group in enumerate(groups)
        ]
        costs = [group.group.cost for group in groups]

        def fewest(kind: _Kind, number: int) -> tuple[float, float, int]:
            return -kind.hosts[number], costs[number] or 0.0, number

        def cheapest(kind: _Kind, number: int) -> tuple[float, float, int]:
            return (costs[number] or 0.0) / kind.hosts[number], -kind.hosts[number], number

        rules = (fewest, cheapest) if all(cost is not None for cost in costs) else (fewest,)
        orders += [
            {id(kind): [groups[number] for number in sorted(kind.hosts, key=partial(rule, kind))] for kind in kinds}
            for rule in rules
        ]
        return orders

    def _plan(self, order: _Order) -> Plan:
        left = self._fill(order)
        for _ in range(_MOST_ROUNDS):
            before = [len(group.added) for group in self._groups]
            left = self._fill(order)
            if before == [len(group.added) for group in self._groups]:
                break
        else:
            left = self._fill({})
        for group in sorted(self._groups, key=lambda group: -(group.group.cost or 0.0)):
            self._leave_out(group, left)
        counts = {group.name: len(group.added) for group in self._groups if group.added}
        costs = [(group.group.cost, len(group.added)) for group in self._groups if group.added]
        known = all(cost is not None for cost, _ in costs)
        for group in self._groups:
            group.resize(0)
        return Plan(
            counts,
            sum(counts.values()),
            round(sum((cost or 0.0) * count for cost, count in costs), 6) if known and costs else None,
            len(self.pods) - left,
            left,
        )

    def _leave_out(self, group: GroupNodes, left: int) -> None:
        """Leaves out as many nodes as can be without more than so many pods left."""
        step, growing = 1, True
        while step and group.added:
            count = len(group.added)
            group.resize(max(count - step, 0))
            if self._fill({}) <= left:
                step *= 2 if growing else 1
            else:
                group.resize(count)
                step, growing = step // 2, False

    def _fill(self, order: _Order) -> int:
        """Places the pods, adding nodes where `order` has groups for them, and takes the pods back.

        Returns how many got no node.
        """
        scheduler, rng = self._scheduler, Random(self._seed)
        placed: list[Placed] = []
        refused: set[int] = set()
        left = at = 0
        while at < len(self.pods):
            with Transaction(scheduler.cluster, scheduler.nominator) as transaction:
                while at < len(self.pods):
                    pod = self.pods[at]
                    if id(self._kind_of[pod.uid]) in refused:
                        left += 1
                    elif not self._place(pod, transaction, rng):
                        break
                    at += 1
                placed += transaction.commit()
            if at < len(self.pods):
                kind = id(self._kind_of[self.pods[at].uid])
                if not self._open(self.pods[at], order.get(kind, ()), placed, rng):
                    refused.add(kind)
                    left += 1
                at += 1
        for one in reversed(placed):
            take_back(one, scheduler.cluster, scheduler.nominator)
        return left

    def _open(self, pod: Pod, groups: Sequence[GroupNodes], placed: list[Placed], rng: Random) -> bool:
        """Adds a node of the first group that helps the pod, and places it."""
        scheduler = self._scheduler
        for group in groups:
            if group.full:
                continue
            group.grow()
            with Transaction(scheduler.cluster, scheduler.nominator) as transaction:
                if self._place(pod, transaction, rng):
                    placed += transaction.commit()
                    return True
            group.shrink()
        return False

    def _place(self, pod: Pod, transaction: Transaction, rng: Random) -> bool:
        attempt = self._scheduler.attempt(pod.key)
        if not attempt.has_nodes or not attempt.filter().feasible or attempt.error() is not None:
            return False
        try:
            row = attempt.choose(rng).row
        except ScoringFailed:
            return False
        return transaction.place(attempt.cycle, attempt.profile, row).ok


def _reason(attempt: Attempt, code: int) -> tuple[str, ...]:
    return attempt.profile.handle.reasons[code].texts
