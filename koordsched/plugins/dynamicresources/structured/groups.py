"""Pools that several nodes reach: nodes that see the same of all of them are a group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from koordsched.plugins.dynamicresources.structured.inuse import DevicesInUse, PoolInUse
from koordsched.plugins.dynamicresources.structured.pools import Pool
from koordsched.plugins.dynamicresources.structured.slices import PoolKey
from koordsched.plugins.dynamicresources.structured.views import Interned, View

GroupKey = tuple[frozenset[int], frozenset[PoolKey]]
"""The numbers of the selectors that match, and the pools that are seen otherwise because they name the node."""


class Group:
    """Nodes (`members`, by name) that see the same pools. `views` is sorted by pool."""

    __slots__ = ("key", "members", "number", "views")

    def __init__(self, number: int, key: GroupKey) -> None:
        self.number = number
        self.key = key
        self.members: dict[str, None] = {}
        self.views: dict[PoolKey, View] = {}


class Groups:
    """All groups. `states`: a number by number of group; the numbers of groups without members are reused."""

    def __init__(self, in_use: DevicesInUse, interned: Interned) -> None:
        self._in_use = in_use
        self._interned = interned
        self._everyone: dict[PoolKey, Pool] = {}
        """Pools with a slice that all nodes reach."""
        self._selected: dict[int, dict[PoolKey, Pool]] = {}
        """Pools by the number of the selectors of their slices."""
        self._reach: dict[PoolKey, tuple[bool, frozenset[int]]] = {}
        self.empty = Group(0, (frozenset(), frozenset()))
        self._groups: dict[GroupKey, Group] = {}
        self._holding: dict[PoolKey, dict[int, Group]] = {}
        self._by_selector: dict[int, dict[int, Group]] = {}
        self._free: list[int] = []
        self.states: list[int] = [0]

    def join(
        self, node: str, matched: frozenset[int], named: Iterable[PoolKey], pools: Mapping[PoolKey, Pool]
    ) -> Group:
        """The group of a node: which selectors match it, and which pools name it."""
        relevant = frozenset(number for number in matched if number in self._selected)
        key = (relevant, frozenset(each for each in named if each in self._reach))
        group = self._groups.get(key)
        if group is None:
            number = self._free.pop() if self._free else len(self.states)
            if number == len(self.states):
                self.states.append(0)
            group = self._groups[key] = Group(number, key)
            for selector in relevant:
                self._by_selector.setdefault(selector, {})[number] = group
            found = dict(self._everyone)
            for selector in relevant:
                found.update(self._selected[selector])
            for pool in found.values():
                self._view(group, pool)
            self._number(group)
        group.members[node] = None
        return group

    def leave(self, group: Group, node: str) -> None:
        """The node is not in this group any more."""
        group.members.pop(node, None)
        if not group.members and self._groups.get(group.key) is group:
            del self._groups[group.key]
            for selector in group.key[0]:
                del self._by_selector[selector][group.number]
                if not self._by_selector[selector]:
                    del self._by_selector[selector]
            for key in group.views:
                self._holding[key].pop(group.number, None)
            self.states[group.number] = 0
            self._free.append(group.number)

    def pool_changed(self, pool: Pool) -> list[Group]:
        """Looks at a pool again after `index`. Returns the groups for which it is, or was, there."""
        touched = dict(self._holding.pop(pool.key, {}))
        for group in touched.values():
            del group.views[pool.key]
        everyone, selectors = self._reach.get(pool.key, (False, frozenset()))
        found = list(self._groups.values()) if everyone else self._selecting(selectors)
        for group in found:
            if pool.key not in group.views and self._view(group, pool):
                touched[group.number] = group
        for group in touched.values():
            self._number(group)
        return list(touched.values())

    def _selecting(self, selectors: frozenset[int]) -> list[Group]:
        return [group for number in selectors for group in self._by_selector.get(number, {}).values()]

    def views_of(self, key: PoolKey) -> Iterator[tuple[Group, View]]:
        """The groups that see a pool."""
        for group in self._holding.get(key, {}).values():
            yield group, group.views[key]

    def use_changed(self, pool: Pool, in_use: PoolInUse | None, device: str) -> bool:
        """The use of a device changed. Returns whether the state of a group did."""
        changed = False
        for group, view in self.views_of(pool.key):
            if view.count_one(in_use, device):
                self._renumber(group)
                changed = True
        return changed

    def _view(self, group: Group, pool: Pool) -> bool:
        """Adds a view of the pool if the group reaches it."""
        matched, named = group.key
        if pool.key in named or not any(part.is_reached("", matched) for part in pool.shared_parts):
            return False
        view = View(pool, pool.seen_by("", matched), "", matched, self._interned)
        view.count_all(self._in_use.pools.get(pool.key))
        group.views[pool.key] = view
        self._holding.setdefault(pool.key, {})[group.number] = group
        return True

    def _number(self, group: Group) -> None:
        group.views = {view.pool.key: view for view in sorted(group.views.values(), key=lambda view: view.order)}
        self._renumber(group)

    def _renumber(self, group: Group) -> None:
        states = tuple(view.state for view in group.views.values())
        self.states[group.number] = self._interned.state(states) if any(states) else 0

    def index(self, pool: Pool) -> tuple[frozenset[int], bool]:
        """Reads again which nodes reach a pool. Returns the selectors that begin or end to matter to groups, and
        whether the pool begins or ends to be one of several nodes.
        """
        before = self._reach.pop(pool.key, None)
        everyone, selectors = before or (False, frozenset())
        mattered = selectors & self._selected.keys()
        self._everyone.pop(pool.key, None)
        for number in selectors:
            del self._selected[number][pool.key]
            if not self._selected[number]:
                del self._selected[number]
        left = frozenset(number for number in selectors if number not in self._selected)
        reaches = [reach for part in pool.shared_parts for reach in part.shared]
        everyone = any(reach.everyone for reach in reaches)
        selectors = frozenset(reach.selector.number for reach in reaches if reach.selector is not None)
        begun = frozenset(number for number in selectors if number not in self._selected)
        if everyone:
            self._everyone[pool.key] = pool
        for number in selectors:
            self._selected.setdefault(number, {})[pool.key] = pool
        if reaches:
            self._reach[pool.key] = (everyone, selectors)
        return (left ^ begun) & (mattered | selectors), (before is None) != (not reaches)
