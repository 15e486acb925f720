"""Reads columns as the policy wants them, and keeps the values of free parts in step with the cluster.

Values are worked out between scheduling cycles, on a timer: that takes milliseconds. Until then the old ones hold.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import Rows
from koordsched.cluster.resources import CPU
from koordsched.cluster.shape import PodShape
from koordsched.cluster.state import ClusterState
from koordsched.framework.handle import Handle
from koordsched.framework.timers import Timer, due_of
from koordsched.plugins.gpufragmentation.fleet import Demand, Fleet, Task
from koordsched.plugins.gpufragmentation.seen import SeenPods
from koordsched.plugins.gpufragmentation.state import Table, ValueState
from koordsched.plugins.gpufragmentation.values import Values, solve
from koordsched.plugins.gpufragmentation.worth import WHOLE, Int
from koordsched.plugins.shared.devices.nodes import DeviceNodes
from koordsched.plugins.shared.devices.resources import CORE, GPU, MEMORY, RATIO
from koordsched.plugins.shared.matching.nodeselector import NodeSelectors, RequiredNodes

_MOST_CLASSES = 512
"""Classes of tasks that count, the most frequent ones: the time that a solution takes goes with their number."""

_NONE = np.iinfo(np.int64).max
"""No inventory has this number."""


class _Kinds(NamedTuple):
    """The kinds of nodes when values were worked out. `inventories`: int64[n], ascending, numbers of the inventories
    that nodes had, then _NONE; `kinds`: int64[n], the kind of each; `number`: of kinds, the last for nodes that were
    not known."""

    inventories: Int
    kinds: Int
    number: int


class ValueBooks:
    """One for all profiles. `values`: the current ones; `number`: how often they were worked out."""

    def __init__(self, cluster: ClusterState, handle: Handle, refresh_after: int) -> None:
        self._cluster, self._table = cluster, cluster.table
        self._clock, self._timers = handle.clock, handle.timers
        self._refresh_after = refresh_after
        nodes: DeviceNodes = cluster.shared(lambda state: DeviceNodes(state, handle), key=DeviceNodes)
        self._columns = nodes.columns
        self.facets = self._columns.facets
        self._selectors = NodeSelectors()
        self._changes = 0
        self._counted = 0
        self._timer: Timer | None = None
        self.number = 0
        self._columns.on_inventory(self._due)
        self.seen = SeenPods(cluster, self._changed)
        self.values = self._solved()
        handle.states.keep("GPUFragmentation", self)

    # --- what the policy reads -------------------------------------------------------------------------

    def task(self, shape: PodShape) -> Task:
        """What a pod of the shape asks for."""
        return self.seen.wanted(shape).task_on(self._memory)

    def fleet(self, rows: Rows) -> Fleet:
        """What the nodes on these rows have left."""
        table = self._table
        cpu = table.allocatable[CPU].data[rows] - table.requested[CPU].data[rows]
        inventories = self._columns.number.data[rows]
        kinds = self._kinds
        at = kinds.inventories.searchsorted(inventories)
        at[kinds.inventories[at] != inventories] = len(kinds.inventories) - 1
        return Fleet(cpu, self._free(rows), kinds.kinds[at])

    def _free(self, rows: Rows) -> Int:
        """int64[rows, minors]: per cent."""
        offered = self._columns.by_minor(self._columns.offered[GPU], GPU, rows)
        used = self._columns.by_minor(self._columns.used[GPU], GPU, rows)
        minors = offered.shape[1]
        free = np.full((len(offered), minors), WHOLE, dtype=np.int64)
        there = np.zeros((len(offered), minors), dtype=np.bool_)
        for resource in (CORE, RATIO):
            has = offered[:, :, resource]
            left = has - used[:, :, resource]
            if has.max(initial=0) > WHOLE:
                left = left * WHOLE // np.maximum(has, 1)
            lists = has > 0
            np.minimum(free, left, out=free, where=lists)
            there |= lists
        free[~there] = 0
        return np.maximum(free, 0, out=free)

    # --- when values are worked out anew -----------------------------------------------------------------

    def _changed(self) -> None:
        self._changes += 1
        if self._changes >= min(self._refresh_after, self._counted + 1):
            self._due()

    def _due(self) -> None:
        if self._timer is None:
            self._timer = self._timers.at(self._clock.monotonic(), self._refresh)

    def _refresh(self) -> None:
        self._timer = None
        self._changes = 0
        self._counted = self.seen.pods.total()
        self.values = self._solved()
        self.number += 1

    def _solved(self) -> Values:
        table, columns = self._table, self._columns
        offered = columns.by_minor(columns.offered[GPU], GPU, slice(0, table.size))
        memory = offered[:, :, MEMORY]
        self._memory = int(np.median(memory[memory > 0])) if (memory > 0).any() else 0
        rows = np.flatnonzero(table.alive.data[: table.size] & (offered > 0).any(axis=(1, 2)))
        self._kinds = self._kinds_of(np.flatnonzero(table.alive.data[: table.size]))
        fleet = self.fleet(rows)
        gpus = int(np.count_nonzero((offered[rows, :, CORE] > 0) | (offered[rows, :, RATIO] > 0)))
        return solve(fleet, self._demand(rows, fleet.kind), self._balance(rows, gpus, fleet))

    def _kinds_of(self, rows: RowArray) -> _Kinds:
        inventories, examples = np.unique(self._columns.number.data[rows], return_index=True)
        by_model: dict[tuple[str, str], int] = {}
        kinds = []
        for row in rows[examples].tolist():
            equipment = self._columns.inventory(row).equipment
            kinds.append(by_model.setdefault((equipment.vendor, equipment.model), len(by_model)))
        found = np.array([*kinds, len(by_model)], dtype=np.int64)
        return _Kinds(np.append(inventories, _NONE), found, len(by_model) + 1)

    def _demand(self, rows: RowArray, kind: Int) -> Demand:
        """What pods on nodes ask for; pods that may run on the same kinds of nodes are of one class."""
        counts: dict[tuple[Task, tuple[bool, ...]], int] = {}
        every = (True,) * self._kinds.number
        for shape, pods in self.seen.pods.items():
            required = shape.compiled(self, self._required)
            allowed = every
            if required is not None:
                found = np.bincount(kind[required.mask(self._table, rows)], minlength=self._kinds.number) > 0
                allowed = tuple(found.tolist())
            key = self.task(shape), allowed
            counts[key] = counts.get(key, 0) + pods
        # The order, in which floats are summed up, must not depend on which pods came first.
        classes = sorted(counts, key=lambda key: (-counts[key], key))[:_MOST_CLASSES]
        tasks = np.array([task for task, _ in classes], dtype=np.int64).reshape(-1, 3)
        masks = np.array([allowed for _, allowed in classes], dtype=np.bool_).reshape(-1, self._kinds.number)
        amounts = np.array([counts[each] for each in classes], dtype=np.int64)
        return Demand(tasks[:, 0], tasks[:, 1], tasks[:, 2], masks, amounts)

    def _required(self, shape: PodShape) -> RequiredNodes | None:
        affinity = shape.spec.affinity.node_affinity if shape.spec.affinity is not None else None
        if not shape.spec.node_selector and (affinity is None or affinity.required is None):
            return None
        return self._selectors.required_by(shape.spec)

    def _balance(self, rows: RowArray, gpus: int, fleet: Fleet) -> float:
        """Cores per GPU: the mean of what nodes have and what pods on them take."""
        if not gpus:
            return 0.0
        cores = self._table.allocatable[CPU].data[rows].sum() / 1000
        taken, used = cores - fleet.cpu.sum() / 1000, gpus - fleet.gpus.sum() / WHOLE
        return float((cores / gpus + (taken / used if used > 0 else cores / gpus)) / 2)

    # --- what journals record ----------------------------------------------------------------------------

    state_type = ValueState

    def recorded_state(self) -> ValueState:
        """See `framework.pluginstates.Keeper`. Inventories that no node has any more never come again."""
        table, values, kinds = self._table, self.values, self._kinds
        found, rows = np.unique(self._columns.number.data[: table.size], return_index=True)
        at = kinds.inventories.searchsorted(found)
        known = kinds.inventories[at] == found
        return ValueState(
            tuple(values.levels.tolist()),
            Table.of(values.gpu),
            Table.of(values.whole),
            values.balance,
            tuple(zip(rows[known].tolist(), kinds.kinds[at[known]].tolist(), strict=True)),
            kinds.number,
            self._memory,
            self._changes,
            self._counted,
            due_of(self._timer),
        )

    def restore_state(self, state: ValueState) -> None:
        """See `framework.pluginstates.Keeper`."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.restore(state.timer, self._refresh) if state.timer is not None else None
        by_inventory = {self._columns.number.data.item(row): kind for row, kind in state.kinds}
        inventories = sorted(by_inventory)
        kinds = [*(by_inventory[inventory] for inventory in inventories), state.number - 1]
        self._kinds = _Kinds(np.array([*inventories, _NONE]), np.array(kinds, dtype=np.int64), state.number)
        self._memory, self._changes, self._counted = state.memory, state.changes, state.counted
        self.values = state.values()
        self.number += 1
