"""A tree of quotas, and what each may use now.

Pods are tallied first (`unsettled`). They are added to the numbers of their quota and of those above it when one of
these numbers is read (`settle`), all that came meanwhile together.

The runtime of a quota is computed when it is read. While the requests of all quotas fit into the total of the tree, and
no parent is asked for more than its max, each quota may use what it requests, whatever its siblings do
(`QuotaTree.grants_requests_of`). Otherwise the runtimes of siblings are computed together and kept: such quotas are
`fresh`, until `accounting` finds a change of requests that makes a difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, InitVar, dataclass

from koordsched.plugins.elasticquota.arithmetic.amounts import Amounts, to_units, unit
from koordsched.plugins.elasticquota.arithmetic.quota import Quota
from koordsched.plugins.elasticquota.arithmetic.runtime import Stake, redistribute, scale
from koordsched.plugins.elasticquota.arithmetic.tally import Tally
from koordsched.plugins.elasticquota.arithmetic.timing import REFRESH, RESET, Timed, untimed
from koordsched.plugins.elasticquota.kinds import ROOT_QUOTA

__all__ = ["Quota", "QuotaTree"]

MOST_UNSETTLED = 1000
"""With more changed tallies than this the tree is settled at once: in a scheduler that does not lead, its numbers may
never be read."""


@dataclass(eq=False, repr=False)
class QuotaTree:
    """A tree: an abstract root that has something to give (elasticquota spec 3.4 to 3.7).

    `enter` takes a tally to the numbers of the quotas; `refill` offers anew what quotas that take no part have left.
    `scales_mins`, `guarantees`: argument enableMinQuotaScale and gate ElasticQuotaGuaranteeUsage. `shifted` is set by
    every change after which a quota may be allowed more than before; its reader resets it. A tree that `is_watched` has
    to be settled for that.
    """

    tree_id: InitVar[str]
    enter: Callable[[Tally], None]
    refill: Callable[[], None] | None = None
    _: KW_ONLY
    scales_mins: bool = True
    guarantees: bool = False

    def __post_init__(self, tree_id: str) -> None:
        self.id = tree_id
        self.timed: Timed = untimed
        self.shifted = False
        self.total: Amounts = {}
        self._available: Amounts = {}
        self.resources: Counter[str] = Counter()
        """The resources that quotas name in max -> how many do."""
        self.tight: set[str] = set()
        """Resources of which all quotas together request more than there is."""
        self.capped = 0
        """Quotas of which more is requested than their max."""
        self.irregular = self.guarantees
        """Sums of requests alone do not decide: floors that guarantee more, weights of zero, fractions of
        a step. Once set it stays, which costs time and nothing else."""
        self.unmarked = False
        """Requests changed, and what depends on them was not invalidated yet."""
        self.unsettled: dict[Tally, None] = {}
        """Tallies that the numbers of the quotas do not contain in full."""
        self.arrived: Amounts = {}
        """At least what is requested more, or offered less, than the settled numbers say."""
        self.unvetted = False
        """Pods came that have a node without an admission here, and the settled numbers do not contain them."""
        self.overdrawn = False
        """Some quota used more than its max, because that was lowered or pods were added with a node: of what these
        request, only as much as max counts above, and more requests may mean more room there. Once set it stays."""
        self.epoch = 0
        """Grows when the settled numbers change."""
        self.root = Quota(ROOT_QUOTA, self, takes_part=False)
        self.root.apart = {}
        self.root._requested = {}
        self.root._used = {}
        self.root.fresh = True

    # --- tallies --------------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether tallies can wait until a number is read: no quota lacks anything, and they are not too many."""
        return not (self.tight or self.irregular or len(self.unsettled) > MOST_UNSETTLED)

    def settle(self) -> None:
        """Takes what was tallied to the numbers of all quotas that it concerns."""
        if not self.unsettled:
            return
        tallies, self.unsettled = self.unsettled, {}
        self.arrived = {}
        self.epoch += 1
        shifted = self.shifted
        only_more = True
        reserves = False
        for tally in tallies:
            less = tally.asked < tally.counted_asked or tally.placed < tally.counted_placed
            # What runs is guaranteed, and with the floor the share may grow.
            raised = self.guarantees and tally.placed > tally.counted_placed
            only_more = only_more and not less and not raised
            reserves = reserves or not tally.quota.takes_part
            self.enter(tally)
        self.unvetted = False
        if reserves and self.refill is not None:
            self.refill()
        if only_more:
            self.shifted = shifted  # more requests and more usage leave no quota more than before

    def grants_requests_of(self, quota: Quota, *, and_above: bool = False) -> bool:
        """Whether the quota certainly may use all that its own pods request. Does not settle; False means unknown.

        `and_above`: and those above it, what is requested of them. True if no quota lacks anything, neither this
        quota nor one above is asked for more than its max, and what arrived since that was known would fit even if
        all of it were under each of these. Quotas with others below must not have granted these more than their max.
        """
        if self.tight or self.irregular:
            return False
        if (self.capped or self.unvetted) and (and_above or quota.children):
            return False
        if quota._room_epoch != self.epoch:
            quota._room_epoch = self.epoch
            quota._room = None if any(level.over for level in quota.lineage) else {}
        room = quota._room
        if room is None:
            return False
        for name, amount in self.arrived.items():
            left = room.get(name)
            if left is None:
                left = room[name] = self._room_for(quota, name)
            if amount > left:
                return False
        return True

    def _room_for(self, quota: Quota, name: str) -> int:
        """By how much requests of a resource may grow before a quota on the way up, or the tree, cannot grant all."""
        room = self._available.get(name, 0) * unit(name) - self.root.asked_by_children(name)
        for level in quota.lineage:
            bound = level.max.get(name)
            if bound is not None:
                room = min(room, bound - level._requested.get(name, 0))
            elif level is not self.root and name in quota.max:
                return 0  # nothing is shared out to a quota above that does not name it
        return room

    @property
    def available(self) -> Amounts:
        """What the root has to give, in steps of runtime arithmetic; may be negative."""
        self.settle()
        return self._available

    # --- what each may use ------------------------------------------------------------------------------

    @property
    def is_watched(self) -> bool:
        """Whether some quota may not get what it requests."""
        return self.irregular or self.capped > 0 or bool(self.tight)

    def is_calm_for(self, quota: Quota) -> bool:
        """Whether the quota may certainly use what it requests, whatever its siblings do; in a settled tree."""
        if self.tight or self.irregular:
            return False
        if self.capped:
            for above in quota.lineage[1:]:
                if above.over:
                    return False
        return True

    def shares_of(self, quota: Quota) -> Amounts:
        """What a quota may use, in steps, in a settled tree; nothing is worked out that need not be known for that."""
        if not self.is_calm_for(quota):
            if self.unmarked:
                with self.timed(RESET):
                    self.unmarked = False
                    self.root.mark_children_stale()
            if not quota.fresh:
                with self.timed(REFRESH):
                    self._refresh(quota)
            return quota.shares
        return {name: quota.wants(name) for name in self.names_below(quota.parent)}

    def names_below(self, parent: Quota | None) -> Iterable[str]:
        """The resources that the children of a quota share."""
        return self.resources if parent is None or parent is self.root else parent.max

    def _given_to(self, parent: Quota) -> Amounts:
        return self._available if parent is self.root else parent.shares

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
        names = list(self.names_below(parent))
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
        given = self._available if parent is self.root else self.shares_of(parent)
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
