"""A quota and its place in a tree. What changes its numbers is in `accounting`."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from koordsched.plugins.elasticquota.arithmetic.amounts import EMPTY, Amounts, larger, to_units, unit

if TYPE_CHECKING:
    from koordsched.plugins.elasticquota.arithmetic.tree import QuotaTree


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


class _Settled:
    """A number of a quota that is read when its tree is settled."""

    def __init__(self, counted: str) -> None:
        self._of = attrgetter(counted)

    def __get__(self, quota: Quota, kind: type[Quota]) -> Amounts:
        quota.tree.settle()
        amounts: Amounts = self._of(quota)
        return amounts


@dataclass(slots=True, eq=False)
class Quota:
    """A node of a quota tree; all amounts in nano-units. Read only outside of this computation.

    `self_*` is of pods attached directly, the others of those below, too (spec 3.1, 3.3). `takes_part`: shares what
    its parent has with its siblings; root, default and system quotas do not.
    """

    name: str
    tree: QuotaTree
    takes_part: bool = field(default=True, kw_only=True)
    parent: Quota | None = None
    children: dict[str, Quota] = field(default_factory=dict)
    _ordered: list[Quota] | None = None
    _lineage: tuple[Quota, ...] | None = None
    # Declared.
    max: Amounts = field(default_factory=dict)
    max_names: frozenset[str] = frozenset()
    """The resources that are counted: those that max names."""
    min: Amounts = field(default_factory=dict)
    weight: Amounts = field(default_factory=dict)
    lent: bool = True
    is_parent: bool = False
    is_tree_root: bool = False
    binary: frozenset[str] = frozenset()
    # Counted, as far as the tree is settled; only `accounting` changes these, others read the properties.
    _self_request: Amounts = field(default_factory=dict)
    _self_used: Amounts = field(default_factory=dict)
    _self_non_preemptible_request: Amounts = field(default_factory=dict)
    _self_non_preemptible_used: Amounts = field(default_factory=dict)
    _non_preemptible_request: Amounts = field(default_factory=dict)
    _non_preemptible_used: Amounts = field(default_factory=dict)
    _allocated: Amounts = field(default_factory=dict)
    _guaranteed: Amounts = field(default_factory=dict)
    _used: Amounts = field(init=False)
    """As long as it has no children, the same dict; so is the next."""
    _requested: Amounts = field(init=False)
    """What its pods and its children request, as far as the max of each child lets it through."""
    apart: Amounts = field(init=False)
    """What of that is not from children that take part."""
    over: int = 0
    """In how many resources that is more than max."""
    _room: Amounts | None = None
    """By how much requests may grow without a quota getting less, and when that was so; `QuotaTree` keeps it."""
    _room_epoch: int = -1
    # Worked out, where the quotas are not all satisfied; holds while fresh.
    fresh: bool = False
    """If not, nothing below is fresh either."""
    contended: bool = False
    """Whether not all of its children get what they want."""
    shares: Amounts = field(default_factory=dict)
    """What it may use, in steps of runtime arithmetic (`amounts.unit`)."""
    _limit: Amounts | None = None

    def __post_init__(self) -> None:
        self._used, self._requested, self.apart = self._self_used, self._self_request, self._self_request

    # --- numbers --------------------------------------------------------------------------------------

    @property
    def is_root(self) -> bool:
        """The abstract root of a tree."""
        return self is self.tree.root

    used = _Settled("_used")
    """What its pods with a node, and those of the quotas below, request."""
    self_request = _Settled("_self_request")
    """What its own pods request."""
    self_used = _Settled("_self_used")
    """What its own pods with a node request."""
    non_preemptible_request = _Settled("_non_preemptible_request")
    """`request` of pods that must not be preempted; never floored or capped."""
    non_preemptible_used = _Settled("_non_preemptible_used")
    """`used` of pods that must not be preempted."""
    self_non_preemptible_request = _Settled("_self_non_preemptible_request")
    """What its own pods that must not be preempted request."""
    self_non_preemptible_used = _Settled("_self_non_preemptible_used")
    """What its own pods with a node that must not be preempted request."""
    allocated = _Settled("_allocated")
    """What its pods use and its children guarantee; empty without gate ElasticQuotaGuaranteeUsage."""
    guaranteed = _Settled("_guaranteed")
    """The larger of that and min; empty without gate ElasticQuotaGuaranteeUsage."""

    @property
    def child_request(self) -> Amounts:
        """What its pods and children request, before min counts; empty for a root."""
        if self.is_root:
            return EMPTY
        self.tree.settle()
        return self._requested

    @property
    def request(self) -> Amounts:
        """What it requests: a quota that does not lend requests at least its min."""
        self.tree.settle()
        return self._requested if self.lent or not self.takes_part else larger(self._requested, self.min)

    @property
    def limited(self) -> Amounts:
        """The request as far as max allows, which is what the parent sees; without zero entries."""
        found = {name: self.limited_in(name) for name in self.request}
        return {name: amount for name, amount in found.items() if amount}

    def limited_in(self, name: str) -> int:
        """`limited` in one resource, in a settled tree."""
        amount = self._requested.get(name, 0)
        if not self.lent and self.takes_part:
            amount = max(amount, self.min.get(name, 0))
        bound = self.max.get(name)
        return amount if bound is None or amount < bound else bound

    def wants(self, name: str) -> int:
        """What it asks of its parent, in steps of runtime arithmetic, in a settled tree."""
        want = to_units(name, self.limited_in(name))
        if self.tree.guarantees:
            want = max(want, to_units(name, self._guaranteed.get(name, 0)))
        return want

    @property
    def runtime(self) -> Amounts:
        """What it may use now; {} where nothing is computed (root, default, system)."""
        if not self.takes_part:
            return EMPTY
        self.tree.settle()
        return {name: units * unit(name) for name, units in self.tree.shares_of(self).items()}

    @property
    def limit(self) -> Amounts:
        """The runtime, which is what usage is held against, at less cost.

        Also in resources that max does not name and those beside it share: there it is zero unless a quota below
        requests some.
        """
        if not self.takes_part:
            return EMPTY
        tree = self.tree
        tree.settle()
        if tree.is_calm_for(self):
            return {name: self.limited_in(name) for name in tree.names_below(self.parent)}
        if not self.fresh or tree.unmarked or self._limit is None:
            self._limit = {name: units * unit(name) for name, units in tree.shares_of(self).items()}
        return self._limit

    @property
    def scaled_min(self) -> Amounts:
        """Min as far as the parent can honour it (spec 3.5)."""
        self.tree.settle()
        return self.tree.scaled_min(self) if self.takes_part else self.min

    # --- place ----------------------------------------------------------------------------------------

    @property
    def lineage(self) -> tuple[Quota, ...]:
        """From itself up to the root of its tree, that included."""
        if self._lineage is None:
            levels = [self]
            while (above := levels[-1].parent) is not None:  # no recursion: users decide how deep a tree is
                levels.append(above)
            self._lineage = tuple(levels)
        return self._lineage

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
        """The children have changed."""
        self._ordered = None

    def moved(self) -> None:
        """Its place is another one, and with it that of all below."""
        stack = [self]
        while stack:
            quota = stack.pop()
            quota._lineage = None
            quota._room_epoch = -1
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
        """What its children may use must be computed again."""
        self.tree.shifted = True
        for child in self.children.values():
            child.mark_stale()

    def asked_by_children(self, name: str) -> int:
        """What its children that take part request together, as far as the max of each allows, in a settled tree."""
        return self._requested.get(name, 0) - self.apart.get(name, 0)

    def __repr__(self) -> str:
        return f"Quota({self.name})"
