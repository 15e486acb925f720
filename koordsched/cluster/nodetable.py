"""The node table: a row per node, a column per fact.

Rows of deleted nodes are reused; `alive` tells which rows hold a node, and reuse counts as a change of
everything. What depends on pods (requested, pod count, ports) is kept up by `ClusterState`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, KeysView
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from koordsched.api.core import Node, Taint
from koordsched.api.quantity import LIMIT
from koordsched.cluster.changelog import MAX_FACETS, ChangeLog, Facet, RowArray
from koordsched.cluster.columns import Column, LabelColumn, ValueColumn
from koordsched.cluster.events import ActionType
from koordsched.cluster.images import Images
from koordsched.cluster.listeners import FailedCall, ListenerErrors
from koordsched.cluster.ports import HostPorts
from koordsched.cluster.rarecolumns import RareColumn
from koordsched.cluster.resources import (
    CPU,
    FIRST_SCALAR,
    MEMORY,
    Requests,
    ResourceName,
    ResourceNames,
    allocatable_of,
)

T = TypeVar("T", bound=Hashable)

Rows = slice | RowArray
"""Rows to look at: a slice (columns come as views) or an array of row numbers."""

ALL_FACETS = (1 << MAX_FACETS) - 1
_INITIAL_CAPACITY = 64

_RESOURCES_KEPT = 64
"""With this many columns, those of resources that are not in use any more are dropped."""

SMALL_TABLE = 1024
"""Rows up to which every resource has columns of its own that are arrays."""

_RARE = 16
"""In larger tables only those that more than one in this many rows has."""

MOST_REQUESTED = 4 * LIMIT
"""Sums of requests are shown as no more than this, which is more than any node has and any pod can ask for beside it;
a hundred times as much fits into a column, too."""

NodeHook = Callable[[int, Node], None]
"""Called with a row and its node after the table took over the node's own facts."""

RemovalHook = Callable[[int], None]
"""Called with the row of a node that was just taken out."""


class NodeTable:
    """All per-node state. Numbers are int64: milli-CPU, bytes, counts.

    `allocatable[r]`, `requested[r]`: columns by resource index. `requested_nonzero`: [rows, 2], milli-CPU
    and bytes with defaults for containers without requests. `taints`: the node's taints, by `taint_set`, their number
    in `taint_sets`. `nodes[row]` is the wire object without its images.
    """

    def __init__(self, resource_names: ResourceNames | None = None, errors: ListenerErrors | None = None) -> None:
        """`errors`: of hooks."""
        self.resource_names = resource_names or ResourceNames()
        self.size = 0
        """Rows in use or free to reuse: all row numbers are below."""
        self.count = 0
        """Nodes."""
        self.row_of: dict[str, int] = {}
        self.nodes: list[Node | None] = []
        self.names: list[str] = []
        """Name of the node on each row, "" where there is none."""
        self.problems: list[tuple[str, ...]] = []
        """Per row, what could not be read of the node."""
        self._resources_on: list[tuple[ResourceName, ...]] = []
        self._capacity = _INITIAL_CAPACITY
        self._free: list[int] = []
        self.log = ChangeLog(self._capacity)
        self._columns: dict[Column, None] = {}
        self._value_columns: list[ValueColumn[Any]] = []
        self.alive = self.column(np.bool_)
        self.unschedulable = self.column(np.bool_)
        self.taints: ValueColumn[tuple[Taint, ...]] = self.value_column(())
        self.taint_set, self.taint_sets = self.taints.ids, self.taints.values
        self.pods_allocatable = self.column(np.int64)
        self.pods_count = self.column(np.int64)
        self.requested_nonzero = [self.column(np.int64), self.column(np.int64)]
        self.allocatable: list[Column] = []
        self.requested: list[Column] = []
        # Users make up names of resources: those that no node offers and no pod on a node has share two columns.
        self._none_allocatable, self._none_requested = self.column(np.int64), self.column(np.int64)
        self._sweep_at = _RESOURCES_KEPT
        for index in range(FIRST_SCALAR):
            self.count_resource(index)
        self._labels: dict[str, LabelColumn] = {}
        self._absent: LabelColumn = ValueColumn(self._capacity, None)
        self.images = Images()
        self.ports = HostPorts()
        self.beyond: dict[tuple[int, int], int] = {}
        """Sums larger than `MOST_REQUESTED`, by resource index (inverted: of `requested_nonzero`) and row."""
        self._hooks: list[NodeHook] = []
        self._removal_hooks: list[RemovalHook] = []
        self._errors = errors if errors is not None else ListenerErrors()
        self.topology_version = 0
        """Grows whenever a node appears or disappears."""
        self.served_otherwise: Container[str] = ()
        """Names of resources that pods may get on nodes that have nothing of them allocatable: DRA serves them."""
        self.hypothetical = 0
        """How many what-ifs are under way: as long as there are any, the table reads as nothing may be kept of."""

    # --- columns ---------------------------------------------------------------------------------

    def column(self, dtype: npt.DTypeLike, fill: Any = 0, width: int = 0) -> Column:
        """Registers a column; it grows and is cleared with the table."""
        column = Column(self._capacity, dtype, fill, width)
        self._columns[column] = None
        return column

    def value_column(self, absent: T) -> ValueColumn[T]:
        """Registers a column of values out of endlessly many; it grows and is cleared with the table."""
        column = ValueColumn(self._capacity, absent)
        self._value_columns.append(column)
        return column

    def add_facet(self) -> int:
        """A new facet bit for the columns of a plugin. Raises OverflowError when there are none left."""
        if self.log.facet_count >= MAX_FACETS:
            raise OverflowError(f"no more than {MAX_FACETS} facets")
        bit = 1 << self.log.facet_count
        self.log.facet_count += 1
        return bit

    def on_node(self, hook: NodeHook) -> None:
        """Calls the hook for every node added or changed, so that a plugin can fill its columns from it."""
        self._hooks.append(hook)
        for node in self.nodes:
            if node is not None:
                name = node.metadata.name
                self._errors.make(_Hook(hook, ("node", name), f"node {name}", hook, self))

    def on_removal(self, hook: RemovalHook) -> None:
        """Calls the hook for every node taken out; columns are cleared without it."""
        self._removal_hooks.append(hook)

    def label_column(self, key: str) -> LabelColumn:
        """The column of a label key, not to be kept: keys that no node has share one column of absences."""
        return self._labels.get(key, self._absent)

    @property
    def label_keys(self) -> KeysView[str]:
        """The label keys that some node has."""
        return self._labels.keys()

    def ensure_resource(self, index: int) -> None:
        """Makes sure that the columns of a resource index can be read."""
        while len(self.allocatable) <= index:
            self.allocatable.append(self._none_allocatable)
            self.requested.append(self._none_requested)

    def count_resource(self, index: int) -> None:
        """Makes sure that the columns of a resource index can be written."""
        self.ensure_resource(index)
        if self.allocatable[index] is self._none_allocatable:
            if self._capacity > SMALL_TABLE:
                self._replace_resource(index, RareColumn(self._capacity), RareColumn(self._capacity))
            else:
                self.allocatable[index], self.requested[index] = self.column(np.int64), self.column(np.int64)

    def serves_otherwise(self, index: int, row: int) -> bool:
        """Whether a node without any of the resource may serve it all the same."""
        return not self.allocatable[index].data.item(row) and self.resource_names.names[index] in self.served_otherwise

    # The next three are called when nodes change only: what-ifs hold on to arrays, and make columns look unused.

    def _thin_out_rare_resources(self) -> None:
        """The table is about to grow: what few rows have must not grow with it."""
        limit = self._capacity // _RARE
        for index in range(FIRST_SCALAR, len(self.allocatable)):
            before = self.allocatable[index], self.requested[index]
            if isinstance(before[0], RareColumn) or before[0] is self._none_allocatable:
                continue
            if all(np.count_nonzero(column.data) <= limit for column in before):
                allocatable, requested = RareColumn(self._capacity), RareColumn(self._capacity)
                allocatable.copy_from(before[0])
                requested.copy_from(before[1])
                self._replace_resource(index, allocatable, requested)

    def _spread_if_common(self, index: int) -> None:
        """Gives a resource that many rows have columns that are arrays."""
        rare = self.allocatable[index], self.requested[index]
        if not (isinstance(rare[0], RareColumn) and isinstance(rare[1], RareColumn)):
            return
        if max(len(rare[0]), len(rare[1])) * _RARE > self._capacity:
            allocatable, requested = Column(self._capacity, np.int64), Column(self._capacity, np.int64)
            rare[0].copy_to(allocatable)
            rare[1].copy_to(requested)
            self._replace_resource(index, allocatable, requested)

    def _give_up_unused_resources(self) -> None:
        for index in range(FIRST_SCALAR, len(self.allocatable)):
            pair = self.allocatable[index], self.requested[index]
            if pair[0] is not self._none_allocatable and not any(column.data.any() for column in pair):
                self._replace_resource(index, self._none_allocatable, self._none_requested)
        self._sweep_at = max(_RESOURCES_KEPT, 2 * len(self._columns))

    def _replace_resource(self, index: int, allocatable: Column, requested: Column) -> None:
        for columns, by in ((self.allocatable, allocatable), (self.requested, requested)):
            if columns[index] not in (self._none_allocatable, self._none_requested):
                del self._columns[columns[index]]
            self._columns[by] = None
            columns[index] = by

    @property
    def all_rows(self) -> slice:
        """Every row, dead ones included."""
        return slice(0, self.size)

    @property
    def free(self) -> tuple[int, ...]:
        """Rows without a node; the last is used again first."""
        return tuple(self._free)

    def count_requests(self, row: int, requests: Requests, sign: int) -> None:
        """Adds (1) or takes away (-1) what is requested on a row."""
        for index, amount in requests.amounts:
            if index >= FIRST_SCALAR:
                self.count_resource(index)
            self._add(self.requested[index].data, row, sign * amount, index)
        cpu, memory = requests.nonzero
        self._add(self.requested_nonzero[CPU].data, row, sign * cpu, ~CPU)
        self._add(self.requested_nonzero[MEMORY].data, row, sign * memory, ~MEMORY)

    def _add(self, data: npt.NDArray[Any], row: int, amount: int, of: int) -> None:
        total = self.beyond.pop((of, row), None) if self.beyond else None
        total = (data.item(row) if total is None else total) + amount
        if total > MOST_REQUESTED:
            self.beyond[of, row] = total
            total = MOST_REQUESTED
        data[row] = total

    def touch(self, row: int, facets: int) -> None:
        """Records a change of facets on a row. Raises RuntimeError inside a what-if, whose changes are no changes."""
        self.outside_what_ifs()
        self.log.touch(row, facets)

    def outside_what_ifs(self) -> None:
        """Raises RuntimeError inside a what-if. To be called before the first of several changes."""
        if self.hypothetical:
            raise RuntimeError("a what-if changes nothing: it must not record changes of rows")

    def touch_rows(self, rows: RowArray, facets: int) -> None:
        """The same for many rows, at the cost of one. Raises RuntimeError inside a what-if."""
        self.outside_what_ifs()
        self.log.touch_rows(rows, facets)

    # --- nodes -----------------------------------------------------------------------------------

    def add(self, node: Node) -> int:
        """Gives the node a row; returns it. The name must be new."""
        if len(self._columns) >= self._sweep_at:
            self._give_up_unused_resources()
        row = self._free.pop() if self._free else self._new_row()
        self._errors.retry(row)
        self.row_of[node.metadata.name] = row
        self.names[row] = node.metadata.name
        self.alive.data[row] = True
        self.count += 1
        self.topology_version += 1
        self._store(row, None, node)
        self.touch(row, ALL_FACETS)
        return row

    def update(self, node: Node) -> ActionType:
        """Takes over a node's new state; returns what changed, as event bits (core spec 3.2)."""
        if len(self._columns) >= self._sweep_at:
            self._give_up_unused_resources()
        row = self.row_of[node.metadata.name]
        before = self.nodes[row]
        assert before is not None, "a known name has a node"
        return self._store(row, before, node)

    def remove(self, name: str) -> int:
        """Takes the node out; returns the row, which is free for another node from now on."""
        row = self.row_of.pop(name)
        node = self.nodes[row]
        assert node is not None, "a known name has a node"
        for column in self._columns:
            column.clear(row)
        if self.beyond:
            self.beyond = {key: total for key, total in self.beyond.items() if key[1] != row}
        for values in self._value_columns:
            values.clear(row)
        self._store_labels(row, node.metadata.labels, {})
        self.images.replace(row, ())
        self.nodes[row] = None
        self.names[row] = ""
        self.problems[row] = ()
        self._resources_on[row] = ()
        self.count -= 1
        self.topology_version += 1
        self._free.append(row)
        self.touch(row, ALL_FACETS)
        for removed in self._removal_hooks:
            try:
                removed(row)
            except Exception as error:
                self._errors.failed(_Removal(removed, row, f"node {name}", removed, self), error)
        return row

    def _new_row(self) -> int:
        if self.size == self._capacity:
            if self._capacity >= SMALL_TABLE:
                self._thin_out_rare_resources()
            self._capacity *= 2
            for column in self._columns:
                column.grow(self._capacity)
            for values in (*self._value_columns, *self._labels.values(), self._absent):
                values.ids.grow(self._capacity)
            self.log.grow(self._capacity)
        self.nodes.append(None)
        self.names.append("")
        self.problems.append(())
        self._resources_on.append(())
        self.size += 1
        return self.size - 1

    def _store(self, row: int, before: Node | None, node: Node) -> ActionType:
        changed = ActionType(0)
        facets = 0
        if self.images.replace(row, node.status.images):
            facets |= Facet.IMAGES
        node = msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, images=()))
        self.nodes[row] = node
        meta, spec, status = node.metadata, node.spec, node.status
        if before is None or before.metadata.labels != meta.labels:
            self._store_labels(row, before.metadata.labels if before else {}, meta.labels)
            changed |= ActionType.UPDATE_NODE_LABEL
            facets |= Facet.LABELS
        if before is None or before.metadata.annotations != meta.annotations:
            changed |= ActionType.UPDATE_NODE_ANNOTATION
            facets |= Facet.ANNOTATIONS
        if before is None or before.spec != spec:
            if (
                before is None
                or before.spec.taints != spec.taints
                or (before.spec.unschedulable and not spec.unschedulable)
            ):
                changed |= ActionType.UPDATE_NODE_TAINT
            self.taints.set(row, spec.taints)
            self.unschedulable.data[row] = spec.unschedulable
            facets |= Facet.TAINTS
        if before is None or before.status.allocatable != status.allocatable:
            self._store_allocatable(row, node)
            changed |= ActionType.UPDATE_NODE_ALLOCATABLE
            facets |= Facet.RESOURCES
        if before is None or _condition_map(before) != _condition_map(node):
            changed |= ActionType.UPDATE_NODE_CONDITION
            facets |= Facet.CONDITIONS
        if before is None or before.status.declared_features != status.declared_features:
            changed |= ActionType.UPDATE_NODE_DECLARED_FEATURE
            facets |= Facet.FEATURES
        if facets and before is not None:
            self.touch(row, facets)
        for hook in self._hooks:
            try:
                hook(row, node)
            except Exception as error:
                self._errors.failed(_Hook(hook, ("node", meta.name), f"node {meta.name}", hook, self), error)
        return changed

    def _store_labels(self, row: int, before: dict[str, str], labels: dict[str, str]) -> None:
        for key, value in labels.items():
            if before.get(key) != value:
                column = self._labels.get(key)
                if column is None:
                    column = self._labels[key] = ValueColumn(self._capacity, None)
                column.set(row, value)
        for key in before.keys() - labels.keys():
            column = self._labels[key]
            column.clear(row)
            if column.unused:
                del self._labels[key]

    def _store_allocatable(self, row: int, node: Node) -> None:
        written = self.resource_names.read(node.status.allocatable)
        resources = tuple(self.resource_names.hold(name) for name in written if name != "pods")
        amounts, slots, problems = allocatable_of(written, self.resource_names)
        # Not every column: there may be thousands of resources, each on a few nodes.
        for resource in self._resources_on[row]:
            self.allocatable[resource.index].data[row] = 0
        for index, amount in amounts.items():
            self.count_resource(index)
            self.allocatable[index].data[row] = amount
            self._spread_if_common(index)
        self._resources_on[row] = resources
        self.pods_allocatable.data[row] = slots
        self.problems[row] = tuple(problems)


@dataclass(slots=True, eq=False)
class _Hook(FailedCall):
    """A hook that failed for a node (`about`: "node" and its name)."""

    hook: NodeHook
    table: NodeTable

    def __call__(self) -> None:
        assert isinstance(self.about, tuple)
        row = self.table.row_of.get(self.about[1])
        node = self.table.nodes[row] if row is not None else None
        if row is not None and node is not None:
            self.hook(row, node)


@dataclass(slots=True, eq=False)
class _Removal(FailedCall):
    """A hook that failed for a row that lost its node (`about`); too late once another node has the row."""

    hook: RemovalHook
    table: NodeTable

    def __call__(self) -> None:
        assert isinstance(self.about, int)
        if self.table.nodes[self.about] is None:
            self.hook(self.about)


def _condition_map(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions}
