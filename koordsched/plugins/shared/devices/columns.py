"""Devices as columns of the node table, and what pods take of them.

Pods count by what their annotations say, whether the node's Device is known or not: so it does not matter which is
seen first, and devices that are given out twice are counted twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from koordsched.api.meta import ObjectMeta
from koordsched.cluster.accounting import Amount, ColumnAccountant, add_amounts
from koordsched.cluster.columns import Column
from koordsched.cluster.facts import PodFact
from koordsched.cluster.kept import Kept
from koordsched.cluster.nodetable import Rows
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.cluster.state import ClusterState
from koordsched.plugins.shared.devices import allocation, kinds
from koordsched.plugins.shared.devices.allocation import Allocation
from koordsched.plugins.shared.devices.inventory import Equipment, Inventories, Inventory
from koordsched.plugins.shared.devices.resources import ABSENT, DEPRECATED, INDEX, MOST_OF_A_POD, NAMES, TYPES
from koordsched.plugins.shared.schedulinghint import ANNOTATIONS as HINTS
from koordsched.plugins.shared.schedulinghint import concerns

Counts = npt.NDArray[np.int64]

Taken = tuple[tuple[str, int, str], ...]
"""Virtual functions that pods hold: (type, minor, bus id), in order."""

_MINORS_AT_FIRST = 8
_BUDGET = 16 << 20
"""Bytes of what allocations add, and of sets of virtual functions, that are remembered."""


class _Added(NamedTuple):
    """What a pod adds to the columns of each type, and the virtual functions that it takes."""

    amounts: tuple[Amount, ...]
    functions: Taken


class DeviceColumns(ColumnAccountant):
    """One for all profiles.

    `number`: int64[rows], that of the row's inventory. By type: `offered`, `used`: int64[rows, minors * resources],
    what devices have and pods were given, minor by minor in the order of `NAMES`, ABSENT for what a device does not
    list. `holders`: int32[rows], how many pods were given devices, hypotheses left out: that devices are known does not
    end with a dry run. `functions`: int64[rows], a number for the set of virtual functions that pods hold, 0 for none,
    never reused for another set.
    """

    def __init__(self, cluster: ClusterState) -> None:
        self.table = table = cluster.table
        self.facets = table.add_facet()
        self.inventories = Inventories()
        self.nothing = self.inventories.of(Equipment())
        self.number = table.column(np.int64, self.nothing.number)
        self.offered = {
            kind: table.column(np.int64, ABSENT, width=_MINORS_AT_FIRST * len(NAMES[kind])) for kind in TYPES
        }
        self.used = {kind: table.column(np.int64, width=_MINORS_AT_FIRST * len(NAMES[kind])) for kind in TYPES}
        self.holders = table.column(np.int32)
        self.functions = table.column(np.int64)
        self._columns = tuple(self.used.values())
        self._of_row: dict[int, Inventory] = {}
        self._listeners: list[Callable[[], None]] = []
        self._taken: dict[int, Counter[tuple[str, int, str]]] = {}
        self._numbers: Kept[Taken, int] = Kept(_BUDGET)
        self._next_number = count(1)
        self._known: Kept[Allocation, _Added] = Kept(_BUDGET)
        cluster.table.resource_names.rename(DEPRECATED)
        cluster.shape_facts.declare(
            labels=[kinds.GPU_ISOLATION_PROVIDER],
            annotations=[kinds.DEVICE_ALLOCATE_HINT, kinds.DEVICE_JOINT_ALLOCATE, kinds.GPU_PARTITION_SPEC],
        )
        cluster.shape_facts.declare_if(kinds.DEVICE_ALLOCATED, _is_read)
        cluster.read_annotations.update(HINTS)
        self.allocation: PodFact[Allocation] = cluster.pod_facts.declare(
            kinds.DEVICE_ALLOCATED, allocation.parse, allocation.text, allocation.less
        )
        cluster.add_accountant(self, reads=[self.allocation])
        table.on_removal(self._node_removed)

    # --- what nodes have -----------------------------------------------------------------------------

    def inventory(self, row: int) -> Inventory:
        """That of a row."""
        return self._of_row.get(row, self.nothing)

    def on_inventory(self, listener: Callable[[], None]) -> None:
        """Called after the devices of a row have changed."""
        self._listeners.append(listener)

    def set_inventory(self, row: int, inventory: Inventory) -> None:
        """The devices of a row have changed."""
        self._of_row[row] = inventory
        self.number.data[row] = inventory.number
        for kind in TYPES:
            names, places = len(NAMES[kind]), inventory.places[kind]
            if places:
                self._widen(kind, max(places) + 1)
            offered = self.offered[kind].data[row]
            offered[:] = ABSENT
            for minor, place in places.items():
                if place.amounts:
                    offered[minor * names : (minor + 1) * names] = place.amounts
        for listener in self._listeners:
            listener()

    def _widen(self, kind: str, minors: int) -> None:
        width = -(-minors // _MINORS_AT_FIRST) * _MINORS_AT_FIRST * len(NAMES[kind])
        self.offered[kind].widen(width)
        self.used[kind].widen(width)

    def _node_removed(self, row: int) -> None:
        self._of_row.pop(row, None)
        self._taken.pop(row, None)

    # --- what pods take ------------------------------------------------------------------------------

    def columns(self) -> Sequence[Column]:
        """See ColumnAccountant."""
        return self._columns

    def amounts(self, pod: Pod) -> Sequence[Amount] | None:
        """See ColumnAccountant."""
        given = self.allocation.of(pod)
        return self._added(given).amounts if given else None

    def _added(self, given: Allocation) -> _Added:
        return self._known.get(given) or self._known.put(given, self._add(given))

    def _add(self, given: Allocation) -> _Added:
        most = {kind: max((each.minor for each in given if each.type == kind), default=-1) for kind in TYPES}
        used = {kind: np.zeros((minor + 1) * len(NAMES[kind]), dtype=np.int64) for kind, minor in most.items()}
        for kind, minor in most.items():
            if minor >= 0:
                self._widen(kind, minor + 1)
        for each in given:
            for name, amount in each.amounts if each.type in used else ():
                if name in NAMES[each.type]:
                    at = each.minor * len(NAMES[each.type]) + INDEX[name]
                    used[each.type][at] = min(used[each.type].item(at) + amount, MOST_OF_A_POD)
        functions = tuple(sorted((each.type, each.minor, bus_id) for each in given for bus_id, _ in each.functions))
        return _Added(tuple(used.values()), functions)

    def pod_added(self, row: int, pod: Pod) -> int:
        """See PodAccountant."""
        return self._count(row, pod, 1)

    def pod_removed(self, row: int, pod: Pod) -> int:
        """See PodAccountant."""
        return self._count(row, pod, -1)

    def _count(self, row: int, pod: Pod, sign: int) -> int:
        changed = super()._count(row, pod, sign)
        given = self.allocation.of(pod)
        if given and not self.table.hypothetical:
            self.holders.data[row] += sign
        if given:
            self._take_functions(row, self._added(given).functions, sign)
        return changed

    def _take_functions(self, row: int, functions: Taken, sign: int) -> None:
        if not functions:
            return
        taken = self._taken.setdefault(row, Counter())
        for function in functions:
            taken[function] += sign
            if not taken[function]:
                del taken[function]
        self.functions.data[row] = self._number_of(tuple(sorted(taken)))

    @contextmanager
    def giving(self, row: int) -> Iterator[Callable[[Allocation], None]]:
        """Inside, the row reads as if all were in use that the function is called with."""
        done: list[_Added] = []

        def give(given: Allocation) -> None:
            added = self._added(given)
            add_amounts(self._columns, row, added.amounts)
            self._take_functions(row, added.functions, 1)
            done.append(added)

        try:
            yield give
        finally:
            while done:
                added = done.pop()
                add_amounts(self._columns, row, added.amounts, -1)
                self._take_functions(row, added.functions, -1)

    def _number_of(self, taken: Taken) -> int:
        if not taken:
            return 0
        # Sets that were forgotten, and large ones, get other numbers when they come again.
        return self._numbers.get(taken) or self._numbers.put(taken, next(self._next_number))

    def taken(self, row: int, kind: str, minor: int) -> set[str]:
        """The bus ids of those virtual functions of a device that pods hold."""
        taken = self._taken.get(row, ())
        return {bus_id for of_type, of_minor, bus_id in taken if (of_type, of_minor) == (kind, minor)}

    def sums_decide(self, shape: PodShape) -> bool:
        """See ColumnAccountant: which virtual functions are free is no sum."""
        return kinds.DEVICE_ALLOCATE_HINT not in shape.meta.annotations or not self.functions.data.any()

    # --- what is free ----------------------------------------------------------------------------------

    def by_minor(self, column: Column, kind: str, rows: Rows) -> Counts:
        """int64[rows, minors, resources] of `offered` or `used`."""
        data, names = column.data[rows], len(NAMES[kind])
        return data.reshape(len(data), data.shape[1] // names, names)

    def of_resource(self, column: Column, kind: str, at: int, rows: Rows) -> Counts:
        """int64[rows, minors] of `offered` or `used`, one of the resources."""
        data = column.data
        found: Counts = data.reshape(len(data), -1, len(NAMES[kind]))[rows, :, at]
        return found

    def left(self, kind: str, at: int, rows: Rows) -> Counts:
        """int64[rows, minors]: what is not in use of a resource; negative where it is not listed, or allocated more
        than once.
        """
        return self.of_resource(self.offered[kind], kind, at, rows) - self.of_resource(self.used[kind], kind, at, rows)

    @contextmanager
    def limited(self, row: int, limits: Mapping[str, Mapping[int, Mapping[str, int]]]) -> Iterator[None]:
        """Inside, and inside of what-ifs, the devices of the types that are limited have no more left on the row.

        `limits`: by type and minor; of a resource that is not named there, what is left stays, but nothing of devices
        that are not.
        """
        columns, amounts = [], []
        for kind, by_minor in limits.items():
            names = NAMES[kind]
            offered, used = self.offered[kind].data[row], self.used[kind].data[row]
            more = np.where(offered == ABSENT, 0, np.maximum(offered - used, 0))
            for minor, limit in by_minor.items():
                for at, name in enumerate(names, minor * len(names)):
                    if at < len(more):
                        more[at] = max(0, more.item(at) - limit[name]) if name in limit else 0
            columns.append(self.used[kind])
            amounts.append(more)
        add_amounts(columns, row, amounts)
        try:
            yield
        finally:
            add_amounts(columns, row, amounts, -1)

    def keys(self, types: Sequence[str], rows: Rows) -> Counts:
        """int64[rows, width]: all that decisions about devices of these types depend on, for `framework.keyed`."""
        parts = [self.number.data[rows, None], (self.holders.data[rows] > 0)[:, None], self.functions.data[rows, None]]
        return np.concatenate([*parts, *(self.used[kind].data[rows] for kind in types)], axis=1)


def _is_read(meta: ObjectMeta) -> bool:
    """Whether what a pending pod was given, as its annotation says, matters: a hint says so, or it is malformed."""
    try:
        allocation.parse(meta.annotations[kinds.DEVICE_ALLOCATED])
    except (ValueError, RecursionError):
        return True
    return concerns(meta, "DeviceShare")
