"""Pods as quotas count them."""

from __future__ import annotations

from koordsched.cluster.pod import Pod
from koordsched.cluster.resources import effective_requests
from koordsched.cluster.shape import PodShape
from koordsched.plugins.elasticquota.arithmetic.amounts import EMPTY, Amounts, masked, renamed, unit
from koordsched.plugins.elasticquota.arithmetic.quota import Quota
from koordsched.plugins.elasticquota.arithmetic.tally import Tally
from koordsched.plugins.elasticquota.kinds import PREEMPTIBLE, QUOTA_NAME
from koordsched.plugins.elasticquota.mapping import Claim


class Requested:
    """What pods of one shape request, exactly; and what of it counts in a quota.

    `is_whole`: in whole steps of runtime arithmetic, as nearly all pods do.
    """

    __slots__ = ("_counted", "amounts", "is_whole")

    def __init__(self, amounts: Amounts) -> None:
        self.amounts = amounts
        self.is_whole = not any(amount % unit(name) for name, amount in amounts.items())
        self._counted: dict[frozenset[str], Amounts] = {}

    def counted_in(self, quota: Quota) -> Amounts:
        """The resources that the quota's max names."""
        names = quota.max_names
        found = self._counted.get(names)
        if found is None:
            found = self._counted[names] = masked(self.amounts, sorted(names))
        return found


def requested(pod: Pod, *, overhead: bool) -> Requested:
    """What the pod requests by its spec; its overhead is left out with gate ElasticQuotaIgnorePodOverhead."""
    return pod.shape.compiled(*(_WITH_OVERHEAD if overhead else _WITHOUT_OVERHEAD))


def _compile(shape: PodShape) -> Requested:
    return Requested(renamed(effective_requests(shape.spec)))


def _compile_without_overhead(shape: PodShape) -> Requested:
    return Requested(renamed(effective_requests(shape.spec, overhead=False)))


_WITH_OVERHEAD = ("elasticquota requests", _compile)
_WITHOUT_OVERHEAD = ("elasticquota requests without overhead", _compile_without_overhead)


def is_preemptible(pod: Pod) -> bool:
    """Whether others may take the pod's place."""
    return pod.labels.labels.get(PREEMPTIBLE) != "false"


GroupKey = tuple[str | None, str | None, str, PodShape]
"""What decides how a pod counts: its labels that name a quota and forbid preemption, its namespace, its shape."""


def group_key(pod: Pod) -> GroupKey:
    """By what a pod is grouped."""
    labels = pod.labels.labels
    return labels.get(QUOTA_NAME), labels.get(PREEMPTIBLE), pod.namespace, pod.shape


class Group:
    """Pods in the books that count alike.

    `members`: by uid; `priority`: of each of them; `tally`: how they count in their quota, None if they belong to none.
    """

    __slots__ = ("__weakref__", "claim", "key", "members", "non_preemptible", "priority", "requested", "tally")

    def __init__(self, key: GroupKey, claim: Claim, asked: Requested, *, non_preemptible: bool) -> None:
        self.key = key
        self.priority = key[3].priority
        self.claim = claim
        self.requested = asked
        self.non_preemptible = non_preemptible
        self.members: dict[str, Member] = {}
        self.tally: Tally | None = None


class Member:
    """A pod in the books. `assigned`: it has a node, if only assumed."""

    __slots__ = ("assigned", "group", "pod")

    def __init__(self, pod: Pod, group: Group, *, assigned: bool) -> None:
        self.pod = pod
        self.group = group
        self.assigned = assigned

    @property
    def quota(self) -> Quota | None:
        """None if it belongs to none."""
        tally = self.group.tally
        return tally.quota if tally is not None else None

    @property
    def counted(self) -> Amounts:
        """What it counts in its quota."""
        tally = self.group.tally
        return tally.amounts if tally is not None else EMPTY

    @property
    def requested(self) -> Requested:
        """What it requests."""
        return self.group.requested

    @property
    def non_preemptible(self) -> bool:
        """Whether it must not be preempted."""
        return self.group.non_preemptible

    def __repr__(self) -> str:
        return f"Member({self.pod.key} in {self.quota})"
