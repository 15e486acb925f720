"""How many devices of a class nodes have, and how many are in use: what scoring reads (dra spec 4).

Counted by the selectors of the class alone: neither taints nor generations nor the state of a pool matter, and a device
that is shared is in use with its first share. Only resources that a configuration has scored are counted. Slices are
counted in turns, so that a class whose selectors take long does not stop everything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from koordsched.api.core import Node, NodeSelector
from koordsched.api.resource import AllocationResult, Device, DeviceClass, ResourceSlice, ResourceSliceSpec
from koordsched.cluster.changelog import Facet, RowArray
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.plugins.shared.extendedresources import Amounts, ClassesByResource
from koordsched.plugins.shared.matching.nodeselector import NodeSelectors, NodeTerms

Matches = Callable[[DeviceClass, str, Device], bool | None]
"""(class, driver, device) -> whether the selectors of the class choose the device; None if that cannot be evaluated."""

Later = Callable[[Callable[[], None]], object]
"""Calls back soon, but not at once."""

MOST_STEPS = 12_000
"""Of one turn, as `steps` counts them: about 20 ms. The last device may go beyond."""

_DeviceID = tuple[str, str, str]
"""(driver, pool, device)."""

_Reach = str | NodeSelector | None
"""Where a device can be used: the node of that name, nodes that match, or all nodes (None)."""


@dataclass(slots=True)
class _Tally:
    """Devices of one reach; `failed` are those that a selector could not be evaluated on."""

    devices: int = 0
    in_use: int = 0
    failed: int = 0

    def add(self, other: _Tally, sign: int = 1) -> None:
        self.devices += sign * other.devices
        self.in_use += sign * other.in_use
        self.failed += sign * other.failed

    def __bool__(self) -> bool:
        return bool(self.devices or self.in_use or self.failed)


_Listed = list[tuple[_Reach, _DeviceID, bool]]
"""Of one slice, the devices of a class, and those (False) of which that cannot be said."""


class DeviceCounts:
    """A `plugins.shared.extendedresources.DeviceCounts`; fed with slices and allocations as they change.

    A node with a device that a selector cannot be evaluated on has no devices of the class, as upstream counts.
    """

    def __init__(
        self,
        table: NodeTable,
        classes: ClassesByResource,
        matches: Matches,
        slices: Callable[[], Iterable[ResourceSlice]],
        steps: Callable[[], int] = lambda: 0,
        later: Later | None = None,
    ) -> None:
        """`slices`: all there are; asked when a resource gets another class. `steps`: how many `matches` has taken so
        far. `later`: for the next turn; None: everything is counted at once. Register it with `count_with`.
        """
        self._steps = steps
        self._later = later
        self._turn_is_due = False
        self._table = table
        self._classes = classes
        self._matches = matches
        self._slices = slices
        self._selectors = NodeSelectors()
        self._in_use: Counter[_DeviceID] = Counter()
        self._tracked: dict[str, _Counted] = {}
        self._hooked = False
        classes.on_change(self._class_changed)

    # --- reading ---------------------------------------------------------------------------------------

    def on_rows(self, resource: str, rows: Rows) -> tuple[Amounts, Amounts]:
        """See the protocol. Raises KeyError for a resource that is not tracked."""
        counted = self._tracked[resource]
        known: Amounts = counted.failed.data[rows] == 0
        return counted.devices.data[rows] * known, counted.in_use.data[rows] * known

    def on_row(self, resource: str, row: int) -> tuple[int, int]:
        """See the protocol. Raises KeyError for a resource that is not tracked."""
        counted = self._tracked[resource]
        if counted.failed.data.item(row):
            return 0, 0
        return counted.devices.data.item(row), counted.in_use.data.item(row)

    # --- what happens ------------------------------------------------------------------------------------

    def track(self, resource: str) -> None:
        """See the protocol."""
        if resource in self._tracked:
            return
        self._tracked[resource] = _Counted(self._table)
        if not self._hooked:
            self._hooked = True
            self._table.on_node(self._node_changed)
            self._table.on_removal(self._node_gone)
        self._class_changed(resource)

    def slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """A slice appeared, changed or is gone."""
        either = new if new is not None else old
        if either is None:
            return
        for counted in self._tracked.values():
            counted.pending[either.metadata.name] = new
        self._turn()

    def allocated(self, allocation: AllocationResult) -> None:
        """Devices are given out: a claim has this allocation, be it in flight."""
        self._allocation(allocation, 1)

    def released(self, allocation: AllocationResult) -> None:
        """The claim has it no longer; to be called once per `allocated`."""
        self._allocation(allocation, -1)

    def _allocation(self, allocation: AllocationResult, sign: int) -> None:
        changed: list[_DeviceID] = []
        for result in allocation.devices.results:
            if result.admin_access:
                continue
            device = (result.driver, result.pool, result.device)
            before = self._in_use[device]
            self._in_use[device] = after = before + sign
            if after == 0:
                del self._in_use[device]
            if (before > 0) != (after > 0):
                changed.append(device)
        for counted in self._tracked.values():
            deltas: dict[_Reach, _Tally] = {}
            for device in changed:
                for reach in counted.reaches.get(device, ()):
                    deltas.setdefault(reach, _Tally()).in_use += sign
            self._apply(counted, deltas)

    def _class_changed(self, resource: str) -> None:
        """Counts anew: selectors of another class choose other devices."""
        counted = self._tracked.get(resource)
        if counted is None:
            return
        counted.pending |= dict.fromkeys(counted.by_slice)
        counted.pending |= {one.metadata.name: one for one in self._slices()}
        self._turn()

    def _turn(self) -> None:
        """Counts slices that changed, or all of a resource whose class did, until the steps of a turn are used up."""
        end = self._steps() + MOST_STEPS
        for resource, counted in self._tracked.items():
            device_class = self._classes.get(resource)
            while counted.pending:
                name, one = next(iter(counted.pending.items()))
                listed = self._listed(device_class, one, end) if device_class is not None and one is not None else []
                if listed is None:
                    if not self._turn_is_due and self._later is not None:
                        self._turn_is_due = True
                        self._later(self._next_turn)
                    return
                del counted.pending[name]
                before = counted.by_slice.pop(name, [])
                if listed:
                    counted.by_slice[name] = listed
                self._count(counted, before, listed)

    def _next_turn(self) -> None:
        self._turn_is_due = False
        self._turn()

    def _node_changed(self, row: int, node: Node) -> None:
        for counted in self._tracked.values():
            if counted.terms:
                if counted.labels.get(row) == node.metadata.labels:
                    continue  # a heartbeat
                counted.labels[row] = node.metadata.labels
            total = _Tally()
            for reach in (node.metadata.name, None):
                if (tally := counted.tallies.get(reach)) is not None:
                    total.add(tally)
            for selector, terms in counted.terms.items():
                if terms.matches_row(self._table, row):
                    total.add(counted.tallies[selector])
            if counted.set(row, total):
                self._table.touch(row, Facet.RESOURCES)

    def _node_gone(self, row: int) -> None:
        for counted in self._tracked.values():
            counted.labels.pop(row, None)

    # --- counting ----------------------------------------------------------------------------------------

    def _listed(self, device_class: DeviceClass, one: ResourceSlice, end: int) -> _Listed | None:
        """The devices of the class in a slice; None if the turn is over. What `matches` has found out, it keeps."""
        spec = one.spec
        found: _Listed = []
        for device in spec.devices:
            if self._later is not None and self._steps() >= end:
                return None
            where = _reach(device if spec.per_device_node_selection else spec)
            if not where:
                continue
            chosen = self._matches(device_class, spec.driver, device)
            if chosen is not False:
                found.append((where[0], (spec.driver, spec.pool.name, device.name), chosen is True))
        return found

    def _count(self, counted: _Counted, before: _Listed, after: _Listed) -> None:
        deltas: dict[_Reach, _Tally] = {}
        for sign, listed in ((-1, before), (1, after)):
            for reach, device, chosen in listed:
                delta = deltas.setdefault(reach, _Tally())
                if not chosen:
                    delta.failed += sign
                    continue
                delta.devices += sign
                delta.in_use += sign * (device in self._in_use)
                counted.note(device, reach, sign)
        self._apply(counted, deltas)

    def _apply(self, counted: _Counted, deltas: dict[_Reach, _Tally]) -> None:
        for reach, delta in deltas.items():
            if not delta:
                continue
            tally = counted.tallies.setdefault(reach, _Tally())
            tally.add(delta)
            terms = self._terms(counted, reach)
            if not tally:
                del counted.tallies[reach]
                if isinstance(reach, NodeSelector):
                    del counted.terms[reach]
            rows = self._rows(reach, terms)
            counted.add(rows, delta)
            self._table.touch_rows(rows, Facet.RESOURCES)

    def _terms(self, counted: _Counted, reach: _Reach) -> NodeTerms | None:
        if not isinstance(reach, NodeSelector):
            return None
        terms = counted.terms.get(reach)
        if terms is None:
            terms = counted.terms[reach] = self._selectors.terms(reach)
            counted.labels.clear()
        return terms

    def _rows(self, reach: _Reach, terms: NodeTerms | None) -> RowArray:
        table = self._table
        if isinstance(reach, str):
            row = table.row_of.get(reach)
            return np.array([row] if row is not None else [], dtype=np.intp)
        alive = table.alive.data[table.all_rows]
        return np.flatnonzero(alive if terms is None else alive & terms.mask(table, table.all_rows))


class _Counted:
    """The devices of one resource, by row and by reach.

    `by_slice`: what each slice lists of them; `pending`: slices to count, None: gone; `reaches`: per device, once for
    each time that it is listed; `terms`: of every selector in `tallies`; `labels`: by row, those that all of these were
    compared with.
    """

    __slots__ = ("by_slice", "devices", "failed", "in_use", "labels", "pending", "reaches", "tallies", "terms")

    def __init__(self, table: NodeTable) -> None:
        self.devices, self.in_use, self.failed = (table.column(np.int64) for _ in range(3))
        self.by_slice: dict[str, _Listed] = {}
        self.pending: dict[str, ResourceSlice | None] = {}
        self.reaches: dict[_DeviceID, list[_Reach]] = {}
        self.tallies: dict[_Reach, _Tally] = {}
        self.terms: dict[NodeSelector, NodeTerms] = {}
        self.labels: dict[int, dict[str, str]] = {}

    def note(self, device: _DeviceID, reach: _Reach, sign: int) -> None:
        """One more, or one less, listing of a device."""
        if sign > 0:
            self.reaches.setdefault(device, []).append(reach)
            return
        self.reaches[device].remove(reach)
        if not self.reaches[device]:
            del self.reaches[device]

    def add(self, rows: RowArray, delta: _Tally) -> None:
        """The devices of a reach on all of its rows."""
        self.devices.data[rows] += delta.devices
        self.in_use.data[rows] += delta.in_use
        self.failed.data[rows] += delta.failed

    def set(self, row: int, total: _Tally) -> bool:
        """All devices of one row; whether anything is different now."""
        amounts = (self.devices, total.devices), (self.in_use, total.in_use), (self.failed, total.failed)
        changed = any(column.data.item(row) != amount for column, amount in amounts)
        for column, amount in amounts:
            column.data[row] = amount
        return changed


def _reach(where: Device | ResourceSliceSpec) -> tuple[_Reach, ...]:
    """One, or none: devices that are nowhere."""
    if where.all_nodes:
        return (None,)
    if where.node_name:
        return (where.node_name,)
    return (where.node_selector,) if where.node_selector is not None else ()
