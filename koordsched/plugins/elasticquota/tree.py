"""A tree of quotas, and what each may use now.

That is worked out when asked for. As long as the requests of all fit into what the tree has to give, and no parent is
asked for more than its max, everybody may use what it requests, which needs no look at anybody else
(`QuotaTree.is_calm_for`). Otherwise siblings are looked at together, and what came of it is kept while it holds:
`fresh` quotas have it, and `accounting` takes that away where a change of requests makes a difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from koordsched.api.quota import ROOT_QUOTA
from koordsched.plugins.elasticquota.amounts import Amounts, add_to, difference, to_units, unit
from koordsched.plugins.elasticquota.quota import Quota
from koordsched.plugins.elasticquota.runtime import Stake, redistribute, scale

__all__ = ["Quota", "QuotaTree"]


class QuotaTree:
    """A tree: an abstract root that has something to give (elasticquota spec 3.4 to 3.7).

    `scales_mins`, `guarantees`: argument enableMinQuotaScale and gate ElasticQuotaGuaranteeUsage. `shifted` is set
    by every change after which a quota may be allowed more than before, for whoever resets it.
    """

    def __init__(self, tree_id: str, *, scales_mins: bool = True, guarantees: bool = False) -> None:
        self.id = tree_id
        self.scales_mins = scales_mins
        self.guarantees = guarantees
        self.shifted = False
        self.total: Amounts = {}
        self.available: Amounts = {}
        """What the root has to give, in steps of runtime arithmetic; may be negative."""
        self.resources: Counter[str] = Counter()
        """The resources that quotas name in max -> how many do."""
        self.tight: set[str] = set()
        """Resources of which all quotas together request more than there is."""
        self.capped = 0
        """Quotas of which more is requested than their max."""
        self.irregular = guarantees
        """Something makes sums of requests say too little: floors that guarantee more, weights of zero, fractions of
        a step. Once set it stays, which costs time and nothing else."""
        self.unmarked = False
        """Requests changed without a look at what that makes stale."""
        self.unsettled: set[Quota] = set()
        """Quotas the usage of whose own pods changed; above them that counts when somebody asks."""
        self.root = Quota(ROOT_QUOTA, self, takes_part=False)
        self.root.apart = {}
        self.root.fresh = True

    # --- usage ----------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Takes changes of usage to all that they concern."""
        if not self.unsettled:
            return
        for quota in self.unsettled:
            delta = difference(quota.self_used, quota.settled)
            if delta:
                quota.settled = dict(quota.self_used)
                for level in quota.lineage:
                    if level.children:
                        add_to(level._used, delta)
        self.unsettled.clear()

    # --- what each may use ------------------------------------------------------------------------------

    @property
    def is_watched(self) -> bool:
        """Whether some quota may not get what it requests."""
        return self.irregular or self.capped > 0 or bool(self.tight)

    def is_calm_for(self, quota: Quota) -> bool:
        """Whether the quota may certainly use what it requests, whatever its siblings do."""
        if self.tight or self.irregular:
            return False
        if self.capped:
            for above in quota.lineage[1:]:
                if above.over:
                    return False
        return True

    def shares_of(self, quota: Quota) -> Amounts:
        """What a quota may use, in steps; nothing is worked out that need not be known for that."""
        if not self.is_calm_for(quota):
            if self.unmarked:
                self.unmarked = False
                self.root.mark_children_stale()
            self._refresh(quota)
            return quota.shares
        return {name: quota.wants(name) for name in self._names_below(quota.parent)}

    def _names_below(self, parent: Quota | None) -> Iterable[str]:
        return self.resources if parent is None or parent is self.root else parent.max

    def _given_to(self, parent: Quota) -> Amounts:
        return self.available if parent is self.root else parent.shares

    def is_short(self, parent: Quota, name: str) -> bool:
        """Whether the children cannot all have what they want of a resource; to be asked of a fresh quota."""
        given = self._given_to(parent).get(name, 0)
        if not self.irregular:
            return parent.asked_by_children(name) > given * unit(name)
        wanted = 0
        for child in parent.ordered_children:
            want = child.wants(name)
            wanted += want
            if want and child.weight.get(name, 0) <= 0:
                return True
        return wanted > given

    def _refresh(self, quota: Quota) -> None:
        if quota.fresh:
            return
        parent = quota.parent
        assert parent is not None, "a root is always fresh, and only quotas in a tree are asked"
        self._refresh(parent)
        names = list(self._names_below(parent))
        short = [name for name in names if self.is_short(parent, name)]
        parent.contended = bool(short)
        siblings = parent.ordered_children if short else [quota]
        for sibling in siblings:
            sibling.shares = {name: sibling.wants(name) for name in names}
            sibling.fresh = True
            sibling._limit = None
        given = self._given_to(parent)
        for name in short:
            stakes = self._stakes(siblings, name, given.get(name))
            for sibling, units in zip(siblings, redistribute(given.get(name, 0), stakes), strict=True):
                sibling.shares[name] = units

    def _stakes(self, siblings: list[Quota], name: str, available: int | None) -> list[Stake]:
        total = sum(to_units(name, sibling.min.get(name, 0)) for sibling in siblings)
        scaled = self.scales_mins and available is not None and available < total
        stakes = []
        for sibling in siblings:
            floor = to_units(name, sibling.min.get(name, 0))
            if scaled and available is not None:
                floor = scale(floor, available, total)
            if self.guarantees:
                floor = max(floor, to_units(name, sibling.guaranteed.get(name, 0)))
            request = to_units(name, sibling.limited_in(name))
            stakes.append(Stake(to_units(name, sibling.weight.get(name, 0)), request, floor, sibling.lent))
        return stakes

    def scaled_min(self, quota: Quota) -> Amounts:
        """Min, in each resource that the parent has too little of for all its children scaled down (spec 3.5)."""
        parent = quota.parent
        if not self.scales_mins or parent is None:
            return quota.min
        given = self.available if parent is self.root else self.shares_of(parent)
        scaled: Amounts = {}
        for name, amount in quota.min.items():
            available = given.get(name)
            scaled[name] = amount
            if available is not None:
                total = sum(to_units(name, sibling.min.get(name, 0)) for sibling in parent.ordered_children)
                if available < total:
                    scaled[name] = scale(to_units(name, amount), available, total) * unit(name)
        return scaled

    def __repr__(self) -> str:
        return f"QuotaTree({self.id!r})"
