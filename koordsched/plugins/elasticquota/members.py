"""Pods as quotas count them."""

from __future__ import annotations

from koordsched.api.quota import PREEMPTIBLE
from koordsched.cluster.pod import Pod
from koordsched.cluster.resources import effective_requests
from koordsched.cluster.shape import PodShape
from koordsched.plugins.elasticquota.amounts import Amounts, masked, renamed, unit
from koordsched.plugins.elasticquota.mapping import Claim
from koordsched.plugins.elasticquota.quota import Quota


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


class Member:
    """A pod in the books.

    `quota`: None if it belongs to none; `counted`: what it counts there; `assigned`: it has a node, if only assumed.
    """

    __slots__ = ("assigned", "claim", "counted", "non_preemptible", "pod", "quota", "requested")

    def __init__(self, pod: Pod, claim: Claim, asked: Requested, *, assigned: bool) -> None:
        self.pod = pod
        self.claim = claim
        self.requested = asked
        self.assigned = assigned
        self.non_preemptible = not is_preemptible(pod)
        self.quota: Quota | None = None
        self.counted: Amounts = {}

    def __repr__(self) -> str:
        return f"Member({self.pod.key} in {self.quota})"
