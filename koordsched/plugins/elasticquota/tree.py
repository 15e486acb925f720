"""A quota, its place in a tree, and what it may use now. What changes its numbers is in `accounting`.

What a quota may use is worked out when asked for. As long as the requests of all fit into what the tree has to give,
and no parent is asked for more than its max, everybody may use what it requests, which needs no look at anybody else
(`QuotaTree.is_calm_for`). Otherwise siblings are looked at together, and what came of it is kept while it holds:
`fresh` quotas have it, and `accounting` takes that away where a change of requests makes a difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from koordsched.api.quota import ROOT_QUOTA
from koordsched.plugins.elasticquota.amounts import EMPTY, Amounts, add_to, difference, larger, to_units, unit
from koordsched.plugins.elasticquota.runtime import Stake, redistribute, scale


@dataclass(frozen=True, slots=True)
class Definition:
    """What is declared of a quota, readable and with nothing missing.

    `parent`: a name, "" for the root of the tree. `total`: what a tree has to give, on the root quota of a tree of
    its own. `binary`: resources whose max is written in powers of 1024.
    """

    name: str
    max: Amounts
    min: Amounts
    weight: Amounts
    parent: str = ""
    tree_id: str = ""
    is_parent: bool = False
    lent: bool = True
    is_root: bool = False
    total: Amounts | None = None
    ignore_default_tree: bool = False
    binary: frozenset[str] = frozenset()


class Quota:
    """A node of a quota tree; all amounts in nano-units. Read only for everybody outside of this computation.

    `self_*` is of pods attached directly, the others of those below, too (spec 3.1, 3.3). `takes_part`: shares what
    its parent has with its siblings; root, default and system quotas do not.
    """

    __slots__ = (
        "_limit",
        "_lineage",
        "_ordered",
        "_used",
        "allocated",
        "apart",
        "binary",
        "children",
        "contended",
        "fresh",
        "guaranteed",
        "is_parent",
        "is_tree_root",
        "lent",
        "max",
        "max_names",
        "min",
        "name",
        "non_preemptible_request",
        "non_preemptible_used",
        "over",
        "parent",
        "requested",
        "self_non_preemptible_request",
        "self_non_preemptible_used",
        "self_request",
        "self_used",
        "settled",
        "shares",
        "takes_part",
        "tree",
        "weight",
    )

    def __init__(self, name: str, tree: QuotaTree, *, takes_part: bool = True) -> None:
        self.name = name
        self.tree = tree
        self.takes_part = takes_part
        self.parent: Quota | None = None
        self.children: dict[str, Quota] = {}
        self._ordered: list[Quota] | None = None
        self._lineage: tuple[Quota, ...] | None = None
        # Declared.
        self.max: Amounts = EMPTY
        self.max_names: frozenset[str] = frozenset()
        """The resources that are counted: those that max names."""
        self.min: Amounts = EMPTY
        self.weight: Amounts = EMPTY
        self.lent = True
        self.is_parent = False
        self.is_tree_root = False
        self.binary: frozenset[str] = frozenset()
        # Counted.
        self.self_request: Amounts = {}
        self.self_used: Amounts = {}
        self.self_non_preemptible_request: Amounts = {}
        self.self_non_preemptible_used: Amounts = {}
        self.non_preemptible_request: Amounts = {}
        self.non_preemptible_used: Amounts = {}
        self.allocated: Amounts = {}
        self.guaranteed: Amounts = {}
        self._used: Amounts = {}
        self.settled: Amounts = {}
        """What of `self_used` the quotas above know of."""
        self.requested: Amounts = {}
        """What its pods and its children request, as far as the max of each child lets it through."""
        self.apart: Amounts = self.self_request
        """What of that is not from children that take part."""
        self.over = 0
        """In how many resources that is more than max."""
        # Worked out, where the quotas are not all satisfied; holds while fresh.
        self.fresh = False
        """If not, nothing below is fresh either."""
        self.contended = False
        """Whether its children could not all have what they want."""
        self.shares: Amounts = {}
        """What it may use, in steps of runtime arithmetic (`amounts.unit`)."""
        self._limit: Amounts | None = None

    # --- numbers --------------------------------------------------------------------------------------

    @property
    def is_root(self) -> bool:
        """The abstract root of a tree."""
        return self is self.tree.root

    @property
    def child_request(self) -> Amounts:
        """What its pods and children request, before min counts; not told of a root."""
        return EMPTY if self.is_root else self.requested

    @property
    def request(self) -> Amounts:
        """What it requests: a quota that does not lend requests at least its min."""
        return self.requested if self.lent or not self.takes_part else larger(self.requested, self.min)

    @property
    def limited(self) -> Amounts:
        """The request as far as max allows, which is what the parent sees; without zero entries."""
        found = {name: self.limited_in(name) for name in self.request}
        return {name: amount for name, amount in found.items() if amount}

    def limited_in(self, name: str) -> int:
        """`limited` in one resource."""
        amount = self.requested.get(name, 0)
        if not self.lent and self.takes_part:
            amount = max(amount, self.min.get(name, 0))
        bound = self.max.get(name)
        return amount if bound is None or amount < bound else bound

    def wants(self, name: str) -> int:
        """What it asks of its parent, in steps of runtime arithmetic."""
        want = to_units(name, self.limited_in(name))
        if self.tree.guarantees:
            want = max(want, to_units(name, self.guaranteed.get(name, 0)))
        return want

    @property
    def used(self) -> Amounts:
        """What its pods with a node, and those of the quotas below, request."""
        if not self.children:
            return self.self_used
        self.tree.settle()
        return self._used

    @property
    def runtime(self) -> Amounts:
        """What it may use now; {} where nothing is computed (root, default, system)."""
        if not self.takes_part:
            return EMPTY
        return {name: units * unit(name) for name, units in self.tree.shares_of(self).items()}

    @property
    def limit(self) -> Amounts:
        """The runtime in the resources that max names: what usage is held against."""
        if not self.takes_part:
            return EMPTY
        tree = self.tree
        if tree.is_calm_for(self):
            shared = self.max_names
            parent = self.parent
            if parent is not None and parent is not tree.root and not parent.max_names >= shared:
                shared &= parent.max_names
            return {name: self.limited_in(name) for name in shared}
        if not self.fresh or tree.unmarked or self._limit is None:
            shares = tree.shares_of(self)
            self._limit = {name: shares[name] * unit(name) for name in self.max if name in shares}
        return self._limit

    @property
    def scaled_min(self) -> Amounts:
        """Min as far as the parent can honour it (spec 3.5)."""
        return self.tree.scaled_min(self) if self.takes_part else self.min

    # --- place ----------------------------------------------------------------------------------------

    @property
    def lineage(self) -> tuple[Quota, ...]:
        """From itself up to the root of its tree, that included."""
        found = self._lineage
        if found is None:
            above = self.parent.lineage if self.parent is not None else ()
            found = self._lineage = (self, *above)
        return found

    def ancestors(self) -> tuple[Quota, ...]:
        """From the parent up, without the root."""
        return self.lineage[1:-1]

    def path(self) -> list[Quota]:
        """From the topmost quota below the root down to this one."""
        return [*reversed(self.ancestors()), self]

    @property
    def ordered_children(self) -> list[Quota]:
        """The children that take part, by name."""
        if self._ordered is None:
            self._ordered = [child for _, child in sorted(self.children.items()) if child.takes_part]
        return self._ordered

    def forget_order(self) -> None:
        """The children are not the same any more."""
        self._ordered = None

    def moved(self) -> None:
        """Its place is another one, and with it that of all below."""
        stack = [self]
        while stack:
            quota = stack.pop()
            quota._lineage = None
            stack.extend(quota.children.values())

    # --- what holds -----------------------------------------------------------------------------------

    def mark_stale(self) -> None:
        """What was worked out for this quota and all below it does not hold any more."""
        if not self.fresh:
            return
        stack = [self]
        while stack:
            quota = stack.pop()
            quota.fresh = False
            quota._limit = None
            stack.extend(child for child in quota.children.values() if child.fresh)

    def mark_children_stale(self) -> None:
        """What its children may use is to be worked out anew."""
        self.tree.shifted = True
        for child in self.children.values():
            child.mark_stale()

    def asked_by_children(self, name: str) -> int:
        """What its children that take part request of a resource together, as far as the max of each allows."""
        return self.requested.get(name, 0) - self.apart.get(name, 0)

    def __repr__(self) -> str:
        return f"Quota({self.name})"


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
