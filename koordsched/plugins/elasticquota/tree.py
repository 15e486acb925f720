"""A quota, its place in a tree, and what it may use now. What changes its numbers is in `accounting`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from koordsched.api.quota import ROOT_QUOTA
from koordsched.plugins.elasticquota.amounts import EMPTY, Amounts, larger, to_units, unit
from koordsched.plugins.elasticquota.runtime import Share, redistribute, scale


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

    `self_*` is of pods attached directly, the others of those below, too (spec 3.1, 3.3). `limited`: the request
    as far as max allows, which is what the parent sees. `takes_part`: shares what its parent has with its siblings;
    root, default and system quotas do not.
    """

    __slots__ = (
        "_limit",
        "_ordered",
        "_requested",
        "allocated",
        "binary",
        "children",
        "contended",
        "fresh",
        "guaranteed",
        "is_parent",
        "is_tree_root",
        "lent",
        "limited",
        "max",
        "max_names",
        "min",
        "name",
        "non_preemptible_request",
        "non_preemptible_used",
        "parent",
        "runtime_units",
        "self_non_preemptible_request",
        "self_non_preemptible_used",
        "self_request",
        "self_used",
        "starved",
        "takes_part",
        "tree",
        "used",
        "want",
        "wanted",
        "weight",
    )

    def __init__(self, name: str, tree: QuotaTree, *, takes_part: bool = True) -> None:
        self.name = name
        self.tree = tree
        self.takes_part = takes_part
        self.parent: Quota | None = None
        self.children: dict[str, Quota] = {}
        self._ordered: list[Quota] | None = None
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
        self.used: Amounts = {}
        self.non_preemptible_request: Amounts = {}
        self.non_preemptible_used: Amounts = {}
        self.allocated: Amounts = {}
        self.guaranteed: Amounts = {}
        self._requested: Amounts = {}
        self.limited: Amounts = {}
        # What it asks of its parent, and its children of it, in steps of runtime arithmetic (`amounts.unit`).
        self.want: Amounts = {}
        self.wanted: Counter[str] = Counter()
        self.starved: Counter[str] = Counter()
        """Per resource, children that want some and have no weight to get it by."""
        # Worked out by `runtime`; meaningful while fresh.
        self.fresh = False
        """If not, nothing below is fresh either."""
        self.contended = False
        """Whether the children could not all have what they want, when that was worked out last."""
        self.runtime_units: Amounts = {}
        self._limit: Amounts | None = None

    @property
    def is_root(self) -> bool:
        """The abstract root of a tree."""
        return self is self.tree.root

    @property
    def child_request(self) -> Amounts:
        """What its pods and children request, before min counts; not told of a root."""
        return EMPTY if self.is_root else self._requested

    @property
    def request(self) -> Amounts:
        """What it requests: a quota that does not lend requests at least its min."""
        return self._requested if self.lent or not self.takes_part else larger(self._requested, self.min)

    @property
    def runtime(self) -> Amounts:
        """What it may use now; {} where nothing is computed (root, default, system)."""
        if not self.takes_part:
            return EMPTY
        self.tree.refresh(self)
        return {name: units * unit(name) for name, units in self.runtime_units.items()}

    @property
    def limit(self) -> Amounts:
        """The runtime in the resources that max names: what usage is held against."""
        if not self.takes_part:
            return EMPTY
        if not self.fresh or self._limit is None:
            self.tree.refresh(self)
            units = self.runtime_units
            self._limit = {name: units[name] * unit(name) for name in self.max if name in units}
        return self._limit

    @property
    def scaled_min(self) -> Amounts:
        """Min as far as the parent can honour it (spec 3.5)."""
        return self.tree.scaled_min(self) if self.takes_part else self.min

    @property
    def ordered_children(self) -> list[Quota]:
        """The children that take part, by name."""
        if self._ordered is None:
            self._ordered = [child for _, child in sorted(self.children.items()) if child.takes_part]
        return self._ordered

    def forget_order(self) -> None:
        """The children are not the same any more."""
        self._ordered = None

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

    def is_short_of(self, name: str) -> bool:
        """Whether the children cannot all have what they want of a resource; to be asked of a fresh quota."""
        return self.wanted[name] > self.runtime_units.get(name, 0) or self.starved[name] > 0

    def ancestors(self) -> Iterator[Quota]:
        """From the parent up, without the root."""
        quota = self.parent
        while quota is not None and quota.parent is not None:
            yield quota
            quota = quota.parent

    def path(self) -> list[Quota]:
        """From the topmost quota below the root down to this one."""
        return [*reversed(list(self.ancestors())), self]

    def __repr__(self) -> str:
        return f"Quota({self.name})"


class QuotaTree:
    """A tree: an abstract root that has `available` to give (elasticquota spec 3.4 to 3.7).

    `scales_mins`, `guarantees`: argument enableMinQuotaScale and gate ElasticQuotaGuaranteeUsage. `shifted` is set
    by every change after which a quota may be allowed more than before, for whoever resets it.
    """

    def __init__(self, tree_id: str, *, scales_mins: bool = True, guarantees: bool = False) -> None:
        self.id = tree_id
        self.scales_mins = scales_mins
        self.guarantees = guarantees
        self.shifted = False
        self.total: Amounts = {}
        self.resources: Counter[str] = Counter()
        """The resources that quotas name in max -> how many do."""
        self.root = Quota(ROOT_QUOTA, self, takes_part=False)
        self.root.fresh = True

    def refresh(self, quota: Quota) -> None:
        """Works out what a quota may use now, and nothing that need not be known for that.

        As long as the siblings' requests fit, everybody gets what it asks for, which needs no look at the siblings.
        """
        if quota.fresh:
            return
        parent = quota.parent
        assert parent is not None, "a root is always fresh, and only quotas in a tree are asked"
        self.refresh(parent)
        available = parent.runtime_units
        names = self.resources if parent is self.root else parent.max
        short = [name for name in names if parent.is_short_of(name)]
        parent.contended = bool(short)
        if not short:
            want = quota.want
            quota.runtime_units = {name: want.get(name, 0) for name in names}
            quota.fresh = True
            return
        siblings = parent.ordered_children
        for sibling in siblings:
            want = sibling.want
            sibling.runtime_units = {name: want.get(name, 0) for name in names}
            sibling.fresh = True
        for name in short:
            shares = self._shares(siblings, name, available.get(name))
            for sibling, units in zip(siblings, redistribute(available.get(name, 0), shares), strict=True):
                sibling.runtime_units[name] = units

    def _shares(self, siblings: list[Quota], name: str, available: int | None) -> list[Share]:
        total = sum(to_units(name, sibling.min.get(name, 0)) for sibling in siblings)
        scaled = self.scales_mins and available is not None and available < total
        shares = []
        for sibling in siblings:
            floor = to_units(name, sibling.min.get(name, 0))
            if scaled and available is not None:
                floor = scale(floor, available, total)
            if self.guarantees:
                floor = max(floor, to_units(name, sibling.guaranteed.get(name, 0)))
            request = to_units(name, sibling.limited.get(name, 0))
            shares.append(Share(to_units(name, sibling.weight.get(name, 0)), request, floor, sibling.lent))
        return shares

    def scaled_min(self, quota: Quota) -> Amounts:
        """Min, in each resource that the parent has too little of for all its children scaled down (spec 3.5)."""
        parent = quota.parent
        if not self.scales_mins or parent is None:
            return quota.min
        self.refresh(parent)
        scaled: Amounts = {}
        for name, amount in quota.min.items():
            available = parent.runtime_units.get(name)
            scaled[name] = amount
            if available is not None:
                total = sum(to_units(name, sibling.min.get(name, 0)) for sibling in parent.ordered_children)
                if available < total:
                    scaled[name] = scale(to_units(name, amount), available, total) * unit(name)
        return scaled

    def __repr__(self) -> str:
        return f"QuotaTree({self.id!r})"
