"""A quota as upstream's plugin shows it at its own path (elasticquota spec 3.19)."""

from __future__ import annotations

from typing import Any

from koordsched.plugins.elasticquota.arithmetic.amounts import Amounts, texts
from koordsched.plugins.elasticquota.arithmetic.tree import Quota
from koordsched.plugins.elasticquota.books import QuotaBooks


def summary(books: QuotaBooks, quota: Quota, *, pods: bool) -> dict[str, Any]:
    """One quota, as JSON values; with `pods` also each of its own pods."""
    amounts: dict[str, Amounts] = {
        "max": quota.max,
        "min": quota.min,
        "autoScaleMin": quota.scaled_min,
        "used": quota.used,
        "nonPreemptibleUsed": quota.non_preemptible_used,
        "request": quota.request,
        "nonPreemptibleRequest": quota.non_preemptible_request,
        "sharedWeight": quota.weight,
        "runtime": quota.runtime,
        "childRequest": quota.child_request,
        "allocated": quota.allocated,
        "guaranteed": quota.guaranteed,
        "selfUsed": quota.self_used,
        "selfNonPreemptibleUsed": quota.self_non_preemptible_used,
        "selfRequest": quota.self_request,
        "selfNonPreemptibleRequest": quota.self_non_preemptible_request,
    }
    shown: dict[str, Any] = {
        "name": quota.name,
        "parentName": quota.parent.name if quota.parent is not None else "",
        "isParent": quota.is_parent,
        # Upstream counts changes per quota; ours are counted for all together.
        "runtimeVersion": books.version,
        "allowLentResource": quota.lent,
        "tree": quota.tree.id,
        **{name: texts(value) for name, value in amounts.items()},
    }
    if pods:
        shown["podCache"] = {
            member.pod.key: {"isAssigned": member.assigned, "resource": texts(member.counted)}
            for member in sorted(books.members(quota), key=lambda member: member.pod.key)
        }
    return shown


def summaries(books: QuotaBooks, tree: str | None, *, pods: bool) -> dict[str, dict[str, Any]]:
    """All quotas by name, without the root; `tree`: only those of this tree, None for all."""
    return {
        quota.name: summary(books, quota, pods=pods)
        for quota in books.quotas()
        if not quota.is_root and tree in (None, quota.tree.id)
    }
