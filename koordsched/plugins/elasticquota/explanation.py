"""A refusal in detail: which quota, how much is missing of each resource, and which pods or quotas hold it."""

from __future__ import annotations

from heapq import nlargest

import msgspec

from koordsched.cluster.pod import Pod
from koordsched.plugins.elasticquota.admission import Admission, Bound, Refusal
from koordsched.plugins.elasticquota.arithmetic.amounts import Amounts, text
from koordsched.plugins.elasticquota.arithmetic.quota import Quota
from koordsched.plugins.elasticquota.books import QuotaBooks

HOLDERS = 10
"""How many of the largest holders are named."""


class Holder(msgspec.Struct, rename="camel"):
    """A pod (`namespace/name`) or a quota, and what it has of a resource."""

    name: str
    amount: str


class Dimension(msgspec.Struct, rename="camel"):
    """A resource in which the pod does not fit; amounts as Kubernetes prints them.

    `held_by`: the pods of the quota that use most of it, or the quotas below it if it has no such pods. `lent_to`:
    sibling quotas that use more than their min, that is, what this quota could have used.
    """

    resource: str
    limit: str
    used: str
    requested: str
    missing: str
    held_by: list[Holder]
    lent_to: list[Holder]


class Details(msgspec.Struct, rename="camel"):
    """Why a quota refuses a pod.

    `bound`: `runtime` or `max` of `quota`, or `min`, which pods that must not be preempted have to fit. `pods_quota`
    is the pod's own quota, which `quota` is or is above.
    """

    quota: str
    tree: str
    pods_quota: str
    bound: str
    dimensions: list[Dimension]


def explain_refusal(books: QuotaBooks, admission: Admission, pod: Pod) -> Details | None:
    """The details; None if the pod's quota does not refuse it."""
    claimant = admission.claimant(pod)
    refusal = admission.refusal(claimant) if claimant is not None else None
    if refusal is None:
        return None
    bound = "min" if refusal.bound is Bound.MIN else "runtime" if admission.by_runtime else "max"
    own = refusal.claimant.quota
    dimensions = [_dimension(books, refusal, resource) for resource in refusal.resources]
    return Details(refusal.quota.name, refusal.quota.tree.id, own.name, bound, dimensions)


def _dimension(books: QuotaBooks, refusal: Refusal, resource: str) -> Dimension:
    def shown(amount: int) -> str:
        return text(resource, amount)

    quota = refusal.quota
    return Dimension(
        resource,
        limit=shown(refusal.limit[resource]),
        used=shown(refusal.used.get(resource, 0)),
        requested=shown(refusal.claimant.counted.get(resource, 0)),
        missing=shown(refusal.missing[resource]),
        held_by=_largest(resource, _holdings(books, quota, resource)),
        lent_to=_largest(resource, _borrowed(quota, resource)) if refusal.bound is not Bound.MIN else [],
    )


def _holdings(books: QuotaBooks, quota: Quota, resource: str) -> Amounts:
    held = {
        member.pod.key: amount
        for member in books.members(quota)
        if member.assigned and (amount := member.counted.get(resource, 0))
    }
    held.update({child.name: amount for child in quota.children.values() if (amount := child.used.get(resource, 0))})
    return held


def _borrowed(quota: Quota, resource: str) -> Amounts:
    if quota.parent is None or not quota.takes_part:
        return {}
    return {
        sibling.name: beyond
        for sibling in quota.parent.ordered_children
        if sibling is not quota and (beyond := sibling.used.get(resource, 0) - sibling.min.get(resource, 0)) > 0
    }


def _largest(resource: str, amounts: Amounts) -> list[Holder]:
    first = nlargest(HOLDERS, amounts.items(), key=lambda entry: (entry[1], entry[0]))
    return [Holder(name, text(resource, amount)) for name, amount in first]
