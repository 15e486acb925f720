"""All ResourceSlices and nodes: which pools each node sees, and in which state these are.

Per row there are three numbers: the inventory (what there is), the state of the pools that name the node (`own`), and
a group. Nodes of a group see the same of all other pools, so that a device of such a pool changes one number of the
group and not of each row. Two rows with the same three numbers get the same answers, whatever their names.

Changes are collected, and applied at the next question.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from koordsched.api.core import Node
from koordsched.api.resource import ResourceSlice
from koordsched.api.selectors import SelectorError
from koordsched.plugins.dynamicresources.structured.devices import DeviceTypes
from koordsched.plugins.dynamicresources.structured.features import Features
from koordsched.plugins.dynamicresources.structured.groups import Group, Groups
from koordsched.plugins.dynamicresources.structured.inspection import PoolState, state_of
from koordsched.plugins.dynamicresources.structured.inuse import DevicesInUse
from koordsched.plugins.dynamicresources.structured.pools import Condition, Pool
from koordsched.plugins.dynamicresources.structured.slices import KnownSelector, Part, PoolKey, Selectors
from koordsched.plugins.dynamicresources.structured.views import Interned, Inventory, View

_LOG_KEPT = 4096
_ADDED_BEFORE_PURGE = 256

Numbers = npt.NDArray[np.int64]


class NodeEntry:
    """A node: its row, and the pools that it sees in the order in which devices are tried."""

    __slots__ = ("group", "inventory", "labels", "matched", "name", "own", "row", "views")

    def __init__(self, row: int, name: str, labels: dict[str, str], matched: frozenset[int], group: Group) -> None:
        self.row = row
        self.name = name
        self.labels = labels
        self.matched = matched
        self.own: tuple[View, ...] = ()
        self.views: tuple[View, ...] = ()
        self.inventory: Inventory | None = None
        self.group = group


class SliceIndex:
    """What nodes can reach. `serial` counts changes of rows, `epoch` those that may concern all rows."""

    def __init__(self, features: Features, in_use: DevicesInUse) -> None:
        self.features = features
        self._in_use = in_use
        in_use.on_change(self._use_changed)
        self._types = DeviceTypes(features)
        self._selectors = Selectors(self._selector_added)
        self._added = 0
        self._interned = Interned()
        self._slices: dict[str, Part] = {}
        self._pools: dict[PoolKey, Pool] = {}
        self._groups = Groups(in_use, self._interned)
        self._named: dict[str, dict[PoolKey, int]] = {}
        """How many slices of a pool name a node."""
        self._nodes: dict[int, NodeEntry] = {}
        self._by_name: dict[str, NodeEntry] = {}
        self.failures: dict[str, str] = {}
        """Errors of slices that cannot be read, by name: while there are any, no claim is allocated anywhere."""
        self._stale_pools: dict[PoolKey, tuple[tuple[object, ...] | None, set[str], bool]] = {}
        self._stale_nodes: dict[str, None] = {}
        self._stale_orders: dict[str, None] = {}
        self._uses: dict[tuple[PoolKey, str], None] = {}
        self._touched: dict[PoolKey, None] = {}
        self._troubled: dict[PoolKey, Condition] = {}
        self._foreign: dict[tuple[Condition, ...], npt.NDArray[np.bool_] | None] = {}
        self._foreign_at = (0, 0)
        self.inventories: Numbers = np.zeros(0, dtype=np.int64)
        self.own_states: Numbers = np.zeros(0, dtype=np.int64)
        self.groups: Numbers = np.zeros(0, dtype=np.int64)
        self._log: list[int] = []
        self._base = 0
        self.epoch = 0

    # --- events ------------------------------------------------------------------------------------------

    def put_slice(self, wire: ResourceSlice) -> None:
        """A slice was added or changed."""
        name = wire.metadata.name
        before = self._slices.get(name)
        if before is not None and before.wire.spec == wire.spec:
            return
        self.remove_slice(name)
        try:
            part = Part(wire, self._types, self._selectors, self.features)
        except SelectorError as error:
            self.failures[name] = (
                f"failed to perform node selection for slice {name}: failed to parse node selector {error}"
            )
            self.epoch += 1
            return
        self._slices[name] = part
        self._count_names(part, 1)
        pool = self._pools.get(part.key)
        if pool is None:
            pool = self._pools[part.key] = Pool(part.key, self.features)
        self._note(pool, part)
        pool.parts[name] = part

    def remove_slice(self, name: str) -> None:
        """A slice was deleted."""
        if self.failures.pop(name, None) is not None:
            self.epoch += 1
        part = self._slices.pop(name, None)
        if part is None:
            return
        pool = self._pools[part.key]
        self._note(pool, part)
        del pool.parts[name]
        self._count_names(part, -1)

    def put_node(self, row: int, node: Node) -> None:
        """A node was added, or its labels changed."""
        name, labels = node.metadata.name, node.metadata.labels
        entry = self._nodes.get(row)
        if entry is not None and entry.name == name and entry.labels == labels:
            return
        if entry is not None and entry.name != name:
            self.remove_node(row)
        self._grow(row)
        matched = frozenset(each.number for each in self._selectors if each.compiled.matches(name, labels))
        entry = self._nodes.get(row)
        if entry is None:
            entry = NodeEntry(row, name, labels, matched, self._groups.empty)
            self._nodes[row] = self._by_name[name] = entry
        entry.labels, entry.matched = labels, matched
        self._stale_nodes[name] = None

    def remove_node(self, row: int) -> None:
        """A node was deleted."""
        entry = self._nodes.pop(row, None)
        if entry is None:
            return
        if self._by_name.get(entry.name) is entry:
            del self._by_name[entry.name]
        self._groups.leave(entry.group, entry.name)
        self.inventories[row] = self.own_states[row] = self.groups[row] = 0
        self._changed(row)

    def _use_changed(self, key: PoolKey, device: str) -> None:
        self._uses[key, device] = None
        self._touched[key] = None

    def _selector_added(self, selector: KnownSelector) -> None:
        self._added += 1
        if self._added % _ADDED_BEFORE_PURGE == 0:
            # Numbers of selectors that no slice has any more would pile up.
            known = frozenset(each.number for each in self._selectors)
            for entry in self._nodes.values():
                entry.matched &= known
        for entry in self._nodes.values():
            if selector.compiled.matches(entry.name, entry.labels):
                entry.matched |= {selector.number}
                self._stale_nodes[entry.name] = None

    def _count_names(self, part: Part, more: int) -> None:
        for node in part.named:
            pools = self._named.setdefault(node, {})
            pools[part.key] = pools.get(part.key, 0) + more
            if not pools[part.key]:
                del pools[part.key]
                if not pools:
                    del self._named[node]

    def _note(self, pool: Pool, part: Part) -> None:
        self._touched[pool.key] = None
        facts, names, shared = self._stale_pools.get(pool.key, (pool.facts(), set(), False))
        names |= part.named
        self._stale_pools[pool.key] = (facts, names, shared or bool(part.shared))

    # --- questions ---------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Applies the changes since the last question."""
        if self._stale_pools:
            self._refresh_pools()
        if self._stale_nodes or self._stale_orders:
            self._refresh_nodes()
        if self._uses:
            self._refresh_uses()

    def node(self, row: int) -> NodeEntry | None:
        """The node of a row, after `refresh`."""
        return self._nodes.get(row)

    def pool_keys(self) -> list[PoolKey]:
        """Driver and name of all pools, sorted."""
        self.refresh()
        return sorted(self._pools)

    def pools_of(self, node: str) -> list[PoolKey]:
        """The pools that a node sees, sorted; none if the node is unknown."""
        self.refresh()
        entry = self._by_name.get(node)
        return sorted(view.pool.key for view in entry.views) if entry is not None else []

    def pool_state(self, key: PoolKey) -> PoolState | None:
        """A pool as it is now."""
        self.refresh()
        pool = self._pools.get(key)
        return state_of(pool, self._in_use.pools.get(key), self._views_of(pool)) if pool is not None else None

    def touched(self) -> list[PoolKey]:
        """The pools that may have changed since this was asked last, those that are gone included."""
        self.refresh()
        touched, self._touched = self._touched, {}
        return list(touched)

    def reaching(self, key: PoolKey) -> tuple[int, str]:
        """How many nodes see a pool, and which, if it is one."""
        pool = self._pools.get(key)
        if pool is None:
            return 0, ""
        names = [node for node in pool.named if self._sees(node, pool)]
        groups = [group for group, _ in self._groups.views_of(key)]
        count = len(names) + sum(len(group.members) for group in groups)
        first = next(iter(names), "") or next((name for group in groups for name in group.members), "")
        return count, first if count == 1 else ""

    def _sees(self, node: str, pool: Pool) -> bool:
        entry = self._by_name.get(node)
        return entry is not None and any(view.pool is pool for view in entry.own)

    def _views_of(self, pool: Pool) -> Iterator[View]:
        for name in pool.named:
            entry = self._by_name.get(name)
            yield from (view for view in (entry.own if entry is not None else ()) if view.pool is pool)
        yield from (view for _, view in self._groups.views_of(pool.key))

    @property
    def serial(self) -> int:
        """The number of changes of rows so far."""
        return self._base + len(self._log)

    def changed_since(self, serial: int) -> Sequence[int] | None:
        """The rows that changed since, perhaps some twice; None if it is not known any more."""
        return self._log[serial - self._base :] if serial >= self._base else None

    def keys(self, rows: npt.NDArray[np.intp]) -> Numbers:
        """int64[rows, 3]: rows with equal keys get equal answers, now and ever."""
        group_states = np.fromiter(self._groups.states, dtype=np.int64, count=len(self._groups.states))
        return np.stack((self.inventories[rows], self.own_states[rows], group_states[self.groups[rows]]), axis=1)

    def key(self, row: int) -> tuple[int, int, int]:
        """The key of one row."""
        return (
            int(self.inventories[row]),
            int(self.own_states[row]),
            self._groups.states[int(self.groups[row])],
        )

    @property
    def capacity(self) -> int:
        """The number of rows that there is room for."""
        return len(self.inventories)

    def foreign(self, entry: NodeEntry) -> list[Pool]:
        """Pools that the node only sees the counters of, and that are incomplete or invalid."""
        seen = {view.pool.key for view in entry.views}
        return [self._pools[key] for key in self._troubled if key not in seen]

    def foreign_condition(self, pool: Pool) -> Condition:
        """What such a pool is."""
        return self._troubled[pool.key]

    def rows_with_foreign(self, conditions: tuple[Condition, ...]) -> npt.NDArray[np.bool_] | None:
        """bool[capacity]: where a pool of which the node sees only counters is in such a condition; None: nowhere."""
        if not self._troubled:
            return None
        if self._foreign_at != (self.epoch, self.serial):
            self._foreign.clear()
            self._foreign_at = (self.epoch, self.serial)
        if conditions not in self._foreign:
            self._foreign[conditions] = self._find_foreign(conditions)
        return self._foreign[conditions]

    def _find_foreign(self, conditions: tuple[Condition, ...]) -> npt.NDArray[np.bool_] | None:
        keys = [key for key, condition in self._troubled.items() if condition in conditions]
        if not keys:
            return None
        numbers = np.full(self.capacity, len(keys), dtype=np.int64)
        for key in keys:
            for group, _ in self._groups.views_of(key):
                numbers[[self._by_name[name].row for name in group.members]] -= 1
            for name in self._pools[key].named:
                entry = self._by_name.get(name)
                if entry is not None and any(view.pool.key == key for view in entry.own):
                    numbers[entry.row] -= 1
        return numbers > 0

    # --- changes -----------------------------------------------------------------------------------------

    def _refresh_pools(self) -> None:
        stale, self._stale_pools = self._stale_pools, {}
        for key, (facts, names, shared) in stale.items():
            pool = self._pools[key]
            reached_by_others = bool(pool.shared_parts)
            pool.refresh()
            everywhere = facts != pool.facts()
            if everywhere:
                names = names | pool.named
            for name in names:
                if name in self._by_name:
                    self._stale_nodes[name] = None
            if shared or reached_by_others or pool.shared_parts:
                self._refresh_groups(pool)
            self._note_trouble(pool)
            if not pool.parts:
                del self._pools[key]

    def _refresh_groups(self, pool: Pool) -> None:
        selectors, reach = self._groups.index(pool)
        if reach:
            self._stale_nodes.update(dict.fromkeys(name for name in pool.named if name in self._by_name))
        if selectors:
            found = (entry.name for entry in self._nodes.values() if entry.matched & selectors)
            self._stale_nodes.update(dict.fromkeys(found))
        for group in self._groups.pool_changed(pool):
            self._stale_orders.update(dict.fromkeys(group.members))

    def _note_trouble(self, pool: Pool) -> None:
        condition = pool.condition(pool.counter_parts)[0] if pool.counter_parts else Condition.USABLE
        if self._troubled.pop(pool.key, Condition.USABLE) != condition:
            self.epoch += 1
        if condition != Condition.USABLE:
            self._troubled[pool.key] = condition

    def _refresh_nodes(self) -> None:
        stale, self._stale_nodes = self._stale_nodes, {}
        for name in stale:
            entry = self._by_name.get(name)
            if entry is not None:
                self._see(entry)
        orders, self._stale_orders = self._stale_orders, {}
        for name in orders.keys() | stale.keys():
            entry = self._by_name.get(name)
            if entry is not None:
                self._order(entry)

    def _see(self, entry: NodeEntry) -> None:
        """Finds the pools of a node."""
        self._touched.update(dict.fromkeys(view.pool.key for view in entry.own))
        own = []
        for key in self._named.get(entry.name, ()):
            pool = self._pools[key]
            parts = pool.seen_by(entry.name, entry.matched)
            if parts:
                view = View(pool, parts, entry.name, entry.matched, self._interned)
                view.count_all(self._in_use.pools.get(key))
                own.append(view)
        entry.own = tuple(sorted(own, key=lambda view: view.order))
        self._touched.update(dict.fromkeys(view.pool.key for view in own))
        self._groups.leave(entry.group, entry.name)
        entry.group = self._groups.join(entry.name, entry.matched, self._named.get(entry.name, {}).keys(), self._pools)
        self.groups[entry.row] = entry.group.number

    def _order(self, entry: NodeEntry) -> None:
        entry.views = tuple(sorted((*entry.own, *entry.group.views.values()), key=lambda view: view.order))
        mine = tuple(view in entry.own for view in entry.views)
        entry.inventory = self._interned.inventory(tuple(view.shape for view in entry.views), mine)
        self.inventories[entry.row] = entry.inventory.number
        self._number(entry)

    def _number(self, entry: NodeEntry) -> None:
        states = tuple(view.state for view in entry.own)
        self.own_states[entry.row] = self._interned.state(states) if any(states) else 0
        self._changed(entry.row)

    def _refresh_uses(self) -> None:
        uses, self._uses = self._uses, {}
        for key, device in uses:
            pool = self._pools.get(key)
            if pool is None:
                continue
            in_use = self._in_use.pools.get(key)
            for name in pool.nodes_with(device):
                entry = self._by_name.get(name)
                if entry is None:
                    continue
                for view in entry.own:
                    if view.pool is pool and view.count_one(in_use, device):
                        self._number(entry)
            if self._groups.use_changed(pool, in_use, device):
                self.epoch += 1

    def _changed(self, row: int) -> None:
        self._log.append(row)
        if len(self._log) > 2 * _LOG_KEPT:
            del self._log[:_LOG_KEPT]
            self._base += _LOG_KEPT

    def _grow(self, row: int) -> None:
        if row >= self.capacity:
            more = np.zeros(max(64, row + 1 - self.capacity, self.capacity), dtype=np.int64)
            self.inventories = np.concatenate((self.inventories, more))
            self.own_states = np.concatenate((self.own_states, more))
            self.groups = np.concatenate((self.groups, more))
