"""How a quota has to fit its parent, its siblings and its children (elasticquota spec 3.18, topology checks b to f)."""

from __future__ import annotations

from collections.abc import Iterable

from koordsched.plugins.elasticquota.arithmetic.amounts import Amounts, add_to, larger
from koordsched.plugins.elasticquota.kinds import ROOT_QUOTA
from koordsched.plugins.elasticquota.webhook.declared import Declared, DeclaredQuotas, Refused


def check_tree(quota: Declared, before: Declared | None, quotas: DeclaredQuotas) -> None:
    """(b) A quota stays in its tree, and so do its parent and its children. Raises Refused."""
    if before is not None and before.tree_id != quota.tree_id:
        raise Refused(f"{quota.name} tree id changed [{before.tree_id}] vs [{quota.tree_id}]")
    parent = quotas.by_name.get(quota.parent) if quota.parent != ROOT_QUOTA else None
    if parent is not None and parent.tree_id != quota.tree_id:
        raise Refused(
            f"{quota.name} tree id is different from parent {parent.name}, [{quota.tree_id}] vs [{parent.tree_id}]"
        )
    for child in quotas.children(quota.name).values():
        if child.tree_id != quota.tree_id:
            raise Refused(
                f"{quota.name} tree id is different from child {child.name}, [{quota.tree_id}] vs [{child.tree_id}]"
            )


def check_parent(quota: Declared, quotas: DeclaredQuotas) -> None:
    """(c) The parent is there and may have children. Raises Refused."""
    if quota.parent == ROOT_QUOTA:
        return
    parent = quotas.by_name.get(quota.parent)
    if parent is None:
        raise Refused(f"{quota.name} has parentName {quota.parent} but not find parentInfo in quotaInfoMap")
    if not parent.is_parent:
        raise Refused(f"{quota.name} has parentName {quota.parent} but the parentQuotaInfo's IsParent is false")


def check_keys(quota: Declared, quotas: DeclaredQuotas, *, subset: bool) -> None:
    """(d) Which resources are named, in comparison with the parent and the children. Raises Refused.

    `subset`: with gate ElasticQuotaEnableUpdateResourceKey a child may name fewer in max than its parent.
    """
    problem = None
    parent = quotas.by_name.get(quota.parent) if quota.parent != ROOT_QUOTA else None
    if parent is not None:
        # Upstream names the parent first here, and the child first below.
        problem = _keys_problem(parent, quota, subset, (parent.name, quota.name))
    for _, child in sorted(quotas.children(quota.name).items()):
        problem = problem or _keys_problem(quota, child, subset, (child.name, quota.name))
    if problem is not None:
        raise Refused(
            f"failed to check sub and parent group quotaKey, err: checkSubAndParentGroupQuotaKey failed: {problem}"
        )


def _keys_problem(parent: Declared, child: Declared, subset: bool, unequal: tuple[str, str]) -> str | None:
    if subset and not child.max.keys() <= parent.max.keys():
        return f"{child.name}'s max keys are not all included in {parent.name}'s"
    if not subset and child.max.keys() != parent.max.keys():
        return f"{unequal[0]}'s max keys are not the same with {unequal[1]}'s"
    if not child.min.keys() <= parent.min.keys():
        return f"{child.name}'s min keys are not all included in {parent.name}'s"
    return None


def check_min_sums(quota: Declared, quotas: DeclaredQuotas) -> None:
    """(e) No more is guaranteed to the children of a quota than to itself. Raises Refused."""
    if quota.forced or quota.is_root:
        return
    if quota.parent != ROOT_QUOTA and quota.parent in quotas.by_name:
        siblings = [other for name, other in quotas.children(quota.parent).items() if name != quota.name]
        if not _at_most(_sum_of_mins([quota, *siblings]), quotas.by_name[quota.parent].min):
            raise Refused(f"checkMinQuotaSum all brothers' MinQuota > parent MinQuota, parent: {quota.parent}")
    if not _at_most(_sum_of_mins(quotas.children(quota.name).values()), quota.min):
        raise Refused(f"checkMinQuotaSum all children's MinQuota > current MinQuota, current: {quota.name}")


def check_guarantee(quota: Declared, quotas: DeclaredQuotas) -> None:
    """(f) With gate ElasticQuotaGuaranteeUsage: somewhere up its tree there is room for the new min. Raises Refused."""
    if quota.forced or quota.is_root or not quota.tree_id or _at_most(quota.min, quota.guaranteed):
        return
    needed = larger(quota.min, quota.guaranteed)
    current = quota
    seen: set[str] = set()
    while current.parent != ROOT_QUOTA and current.parent not in seen:
        seen.add(current.parent)
        parent = quotas.by_name.get(current.parent)
        if parent is None:
            raise Refused(f"parent {current.parent} not found")
        below = dict(needed)
        for name, sibling in quotas.children(parent.name).items():
            if name != current.name:
                add_to(below, sibling.guaranteed)
        needed = larger(parent.min, below)
        if _at_most(needed, parent.guaranteed):
            return
        current = parent
    raise Refused(f"tree root quota {current.name} can't guarantee for min {quota.name}")


def _sum_of_mins(quotas: Iterable[Declared]) -> Amounts:
    total: Amounts = {}
    for quota in quotas:
        add_to(total, quota.min)
    return total


def _at_most(amounts: Amounts, bound: Amounts) -> bool:
    """Whether every amount is at most the bound; what is missing counts as 0."""
    return all(amount <= bound.get(name, 0) for name, amount in amounts.items())
