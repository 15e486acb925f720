"""All quota trees of a cluster: which quota belongs under which, and what each tree has to give.

Source: elasticquota spec 3.4, 3.17. What a user may get wrong (parents that do not exist, cycles, parents in other
trees) puts the quota directly below the root of its tree, so that it still has its max, and is reported by `problems`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from koordsched.plugins.elasticquota.arithmetic import accounting
from koordsched.plugins.elasticquota.arithmetic.amounts import Amounts
from koordsched.plugins.elasticquota.arithmetic.quota import Definition, Quota
from koordsched.plugins.elasticquota.arithmetic.timing import Timed, untimed
from koordsched.plugins.elasticquota.arithmetic.tree import QuotaTree
from koordsched.plugins.elasticquota.kinds import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA

BUILT_IN = (ROOT_QUOTA, DEFAULT_QUOTA, SYSTEM_QUOTA)


class QuotaTrees:
    """The default tree, with the default and the system quota in it, and any number of trees by their ids.

    `quotas`: every quota by name, roots excepted.
    """

    def __init__(
        self, *, default_max: Amounts, system_max: Amounts, scales_mins: bool = True, guarantees: bool = False
    ) -> None:
        self._built_in_max = {DEFAULT_QUOTA: default_max, SYSTEM_QUOTA: system_max}
        self._scales_mins = scales_mins
        self._guarantees = guarantees
        self.node_total: Amounts = {}
        """What all nodes have to allocate."""
        self._offering: Counter[str] = Counter()
        self._timed: Timed = untimed
        self.default_tree = QuotaTree(
            "", accounting.enter, self._offer_default, scales_mins=scales_mins, guarantees=guarantees
        )
        self.trees: dict[str, QuotaTree] = {"": self.default_tree}
        self.quotas: dict[str, Quota] = {}
        self._declared: dict[str, Definition] = {}
        self._declared_children: dict[str, dict[str, None]] = {}
        self._roots: dict[str, set[str]] = {}
        """Tree id -> names of the quotas that declare themselves root of it."""
        for name in self._built_in_max:
            quota = self.quotas[name] = Quota(name, self.default_tree, takes_part=False)
            self._declare_built_in(name, None)
            accounting.attach(quota, self.default_tree.root)

    def time_steps(self, timed: Timed) -> None:
        """From now on the steps of keeping the trees are measured."""
        self._timed = timed
        for tree in self.trees.values():
            tree.timed = timed

    @property
    def default_quota(self) -> Quota:
        """The quota of pods that belong to no other."""
        return self.quotas[DEFAULT_QUOTA]

    # --- what is declared -----------------------------------------------------------------------------

    def define(self, definition: Definition) -> bool:
        """A quota appeared or is declared differently. Returns whether that changes anything."""
        name = definition.name
        before = self._declared.get(name)
        if before == definition:
            return False
        self._declared[name] = definition
        if name == ROOT_QUOTA:
            return False
        if name in self._built_in_max:
            self._declare_built_in(name, definition)
            return True
        affected = self._affected_by(name, before) if before is not None else {}
        if before is not None:
            self._unlist(before)
        self._declared_children.setdefault(definition.parent, {})[name] = None
        if definition.is_root:
            self._roots.setdefault(definition.tree_id, set()).add(name)
        tree = self._tree(definition.tree_id)
        quota = self.quotas.get(name)
        if quota is None:
            quota = self.quotas[name] = Quota(name, tree)
        elif quota.tree is not tree:
            accounting.detach(quota)
            accounting.join(quota, tree)
        accounting.declare(quota, definition)
        self._place({**affected, **self._affected_by(name, definition)})
        self._drop_empty_trees()
        self._offer()
        return True

    def undefine(self, name: str) -> None:
        """A quota is gone; its pods must have been taken out before. Nothing happens if it was not there."""
        definition = self._declared.pop(name, None)
        if definition is None or name == ROOT_QUOTA:
            return
        if name in self._built_in_max:
            self._declare_built_in(name, None)
            return
        self._unlist(definition)
        affected = self._affected_by(name, definition)
        affected.pop(name, None)
        self._place(affected)
        quota = self.quotas.pop(name)
        accounting.detach(quota)
        accounting.leave(quota)
        self._drop_empty_trees()
        self._offer()

    def problems(self, name: str) -> list[str]:
        """What is wrong with the place of a quota."""
        definition = self._declared.get(name)
        if definition is None or name in BUILT_IN:
            return []
        found: list[str] = []
        parent = definition.parent
        if self._is_below_root(definition):
            pass
        elif parent in BUILT_IN:
            found.append(f"parent {parent} cannot have children: treated as a child of {ROOT_QUOTA}")
        elif parent not in self._declared:
            found.append(f"parent {parent} does not exist: treated as a child of {ROOT_QUOTA}")
        elif self._declared[parent].tree_id != definition.tree_id:
            theirs = self._declared[parent].tree_id
            found.append(
                f"parent {parent} is in another quota tree ({theirs!r}, not {definition.tree_id!r}): "
                f"treated as a child of {ROOT_QUOTA}"
            )
        elif self._is_on_cycle(name):
            found.append(f"its chain of parents leads back to it: treated as a child of {ROOT_QUOTA}")
        elif not self._declared[parent].is_parent:
            found.append(f"parent {parent} is not declared as one (label is-parent)")
        if definition.is_root:
            first = min(self._roots[definition.tree_id])
            if not definition.tree_id:
                found.append("declared as root of a quota tree without a tree-id")
            elif first != name:
                found.append(f"tree {definition.tree_id} has another root, {first}, whose total counts")
            elif definition.total is None:
                found.append("root of a quota tree without a total that can be read: the tree has no resources")
        return found

    def _declare_built_in(self, name: str, definition: Definition | None) -> None:
        bounds = self._built_in_max[name] if definition is None else definition.max
        binary = frozenset[str]() if definition is None else definition.binary
        accounting.declare(self.quotas[name], Definition(name, bounds, {}, bounds, binary=binary))

    def _unlist(self, definition: Definition) -> None:
        name = definition.name
        siblings = self._declared_children[definition.parent]
        del siblings[name]
        if not siblings:
            del self._declared_children[definition.parent]
        if definition.is_root:
            self._roots[definition.tree_id].discard(name)

    # --- places ---------------------------------------------------------------------------------------

    @staticmethod
    def _is_below_root(definition: Definition) -> bool:
        return definition.parent in ("", ROOT_QUOTA)

    def _affected_by(self, name: str, definition: Definition) -> dict[str, None]:
        """The quotas whose place may depend on this declaration: itself, its children, and all on a cycle with it."""
        affected = {name: None, **self._declared_children.get(name, {})}
        passed: dict[str, None] = {}
        above = definition.parent
        while above in self._declared and above not in passed and above != name:
            passed[above] = None
            above = self._declared[above].parent
        return {**affected, **passed} if above == name else affected

    def _declared_parent(self, name: str) -> str | None:
        """The parent that a quota names, if there can be such a one."""
        definition = self._declared[name]
        parent = self._declared.get(definition.parent)
        if parent is None or definition.parent in BUILT_IN or parent.tree_id != definition.tree_id:
            return None
        return definition.parent

    def _is_on_cycle(self, name: str) -> bool:
        seen: set[str] = set()
        above = self._declared_parent(name)
        while above is not None and above not in seen:
            if above == name:
                return True
            seen.add(above)
            above = self._declared_parent(above)
        return False

    def _place(self, names: dict[str, None]) -> None:
        """Puts quotas where they belong: all are taken out first, so that no cycle arises on the way."""
        moving: list[tuple[Quota, Quota]] = []
        for name in names:
            quota = self.quotas.get(name)
            if quota is None or name in BUILT_IN:
                continue
            above = self._declared_parent(name)
            parent = quota.tree.root if above is None or self._is_on_cycle(name) else self.quotas[above]
            if quota.parent is not parent:
                moving.append((quota, parent))
        for quota, _ in moving:
            accounting.detach(quota)
        for quota, parent in moving:
            accounting.attach(quota, parent)

    def _tree(self, tree_id: str) -> QuotaTree:
        tree = self.trees.get(tree_id)
        if tree is None:
            tree = QuotaTree(tree_id, accounting.enter, scales_mins=self._scales_mins, guarantees=self._guarantees)
            tree.timed = self._timed
            self.trees[tree_id] = tree
        return tree

    def _drop_empty_trees(self) -> None:
        for tree_id in [tree_id for tree_id, tree in self.trees.items() if tree_id and not tree.root.children]:
            del self.trees[tree_id]

    # --- totals ---------------------------------------------------------------------------------------

    def nodes_changed(self, added: Amounts, removed: Amounts) -> None:
        """What nodes have to allocate changed by `added` less `removed`."""
        for amounts, sign in ((removed, -1), (added, 1)):
            for name, amount in amounts.items():
                self._offering[name] += sign
                self.node_total[name] = self.node_total.get(name, 0) + sign * amount
        for name in removed:
            # A resource that some node offers none of is there; one that no node names is not (spec 3.5).
            if not self._offering[name]:
                del self._offering[name], self.node_total[name]
        self._offer_default()

    def _offer(self) -> None:
        for tree_id, tree in self.trees.items():
            if tree_id:
                tree.total = self._declared_total(tree_id) or {}
                accounting.offer(tree, tree.total)
        self._offer_default()

    def _offer_default(self) -> None:
        """What the default and the system quota use, others do not get."""
        total = dict(self.node_total)
        for tree_id in self.trees:
            definition = self._root_definition(tree_id)
            if definition is not None and definition.total is not None and not definition.ignore_default_tree:
                for name, amount in definition.total.items():
                    total[name] = total.get(name, 0) - amount
        self.default_tree.total = total
        available = dict(total)
        for quota in self._system_quotas():
            for name, amount in quota.used.items():
                available[name] = available.get(name, 0) - amount
        accounting.offer(self.default_tree, available)

    def _system_quotas(self) -> Iterator[Quota]:
        for name in self._built_in_max:
            yield self.quotas[name]

    def _root_definition(self, tree_id: str) -> Definition | None:
        """The declaration of the root of a tree other than the default one."""
        roots = self._roots.get(tree_id)
        return self._declared[min(roots)] if tree_id and roots else None

    def _declared_total(self, tree_id: str) -> Amounts | None:
        definition = self._root_definition(tree_id)
        return definition.total if definition is not None else None
