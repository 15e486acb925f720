"""Which extended resources of a pod are served by DRA on which nodes (dra spec 3.10, Filter)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from koordsched.api.resource import DeviceClass
from koordsched.cluster.changelog import Facet
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.shape import PodShape
from koordsched.plugins.dynamicresources.extended.requests import ContainerRequests, Served, SpecialRequests
from koordsched.plugins.shared.extendedresources import ClassesByResource, may_have_class
from koordsched.plugins.shared.matching.rows import Mask, count_of

Groups = npt.NDArray[np.intp]
"""By position in the rows that were asked about, the number of a group."""

_PATTERN_BITS = 62
_LISTS_KEPT = 16


@dataclass(frozen=True, slots=True)
class Split:
    """Rows that have a pod's extended resources from the same source are one group.

    `groups`: by number, what has to be claimed there, perhaps nothing; `group_of`: which group each row belongs to;
    `unfit`: rows that have a resource from nowhere (None: no row), where the pod does not fit whatever its group says.
    """

    groups: tuple[SpecialRequests, ...]
    group_of: Groups
    unfit: Mask | None = None


class _Demand:
    """The resources of a shape that classes may stand for: (index, name), by name, and what its containers request."""

    __slots__ = ("containers", "resources")

    def __init__(self, shape: PodShape, names: Sequence[str]) -> None:
        named = [(index, names[index]) for index, amount in shape.requests.amounts if amount]
        self.resources = tuple(
            sorted((found for found in named if may_have_class(found[1])), key=lambda found: found[1])
        )
        self.containers = ContainerRequests(shape.spec) if self.resources else None


class ServedResources:
    """Answers for the pods of all shapes; what depends on a shape alone is kept with it."""

    __slots__ = ("_classes", "_listed", "_table")

    def __init__(self, table: NodeTable, classes: ClassesByResource) -> None:
        self._table = table
        self._classes = classes
        self._listed: dict[str, _Listed] = {}

    def may_concern(self, shape: PodShape) -> bool:
        """Whether pods of the shape can need a special claim, whatever classes there will be; most cannot."""
        return bool(shape.compiled(self, self._compile).resources)

    def concerns(self, shape: PodShape) -> bool:
        """Whether a class stands for a resource that pods of the shape request: they need a special claim."""
        demand = shape.compiled(self, self._compile)
        return any(name in self._classes for _, name in demand.resources)

    def classes_of(self, shape: PodShape) -> tuple[DeviceClass, ...]:
        """The classes of the resources that pods of the shape request, in the order of the resources."""
        demand = shape.compiled(self, self._compile)
        return tuple(found for _, name in demand.resources if (found := self._classes.get(name)) is not None)

    def split(self, shape: PodShape, rows: Rows) -> Split:
        """For each row, which resources are served by DRA: those with a class, where nothing is allocatable."""
        demand = shape.compiled(self, self._compile)
        served: list[tuple[str, str]] = []
        by_dra: list[Mask] = []
        unfit: Mask | None = None
        for index, name in demand.resources:
            absent = self._table.allocatable[index].data[rows] == 0
            if (device_class := self._classes.get(name)) is not None:
                served.append((name, device_class.metadata.name))
                by_dra.append(absent)
            elif absent.any():
                nowhere = absent & ~self._listed_on(name, rows)
                if nowhere.any():
                    unfit = nowhere if unfit is None else unfit | nowhere
        distinct, group_of = _grouped(by_dra, count_of(rows))
        if demand.containers is None or not distinct:
            return Split((SpecialRequests(),), group_of, unfit)
        groups = tuple(demand.containers.on(_subset(served, pattern)) for pattern in distinct)
        return Split(groups, group_of, unfit)

    def on_row(self, shape: PodShape, row: int) -> SpecialRequests:
        """What has to be claimed on one row."""
        return self.split(shape, slice(row, row + 1)).groups[0]

    def _compile(self, shape: PodShape) -> _Demand:
        demand = _Demand(shape, self._table.resource_names.names)
        for index, _ in demand.resources:
            self._table.ensure_resource(index)
        return demand

    def _listed_on(self, resource: str, rows: Rows) -> Mask:
        found = self._listed.get(resource)
        if found is None:
            if len(self._listed) >= _LISTS_KEPT:
                self._listed.clear()
            found = self._listed[resource] = _Listed(resource)
        return found.on(self._table, rows)


class _Listed:
    """Which nodes name a resource among what is allocatable, if only with 0; kept up by what changes.

    Columns do not tell 0 from absence. It matters only where no other plugin refuses a node that has nothing of the
    resource: where NodeResourcesFit is told to ignore it.
    """

    __slots__ = ("_mask", "_resource", "_serial")

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._mask: Mask = np.zeros(0, dtype=np.bool_)
        self._serial = -1

    def on(self, table: NodeTable, rows: Rows) -> Mask:
        size = table.size
        if len(self._mask) < size:
            self._mask = np.zeros(size, dtype=np.bool_)
            self._serial = -1
        if self._serial != table.log.serial:
            changed = table.log.since(self._serial, Facet.RESOURCES | Facet.LABELS, size)
            some = [row for row, _ in changed] if isinstance(changed, list) else changed.tolist()
            for row in some:
                node = table.nodes[row]
                written = table.resource_names.read(node.status.allocatable) if node is not None else {}
                self._mask[row] = self._resource in written
            self._serial = table.log.serial
        found: Mask = self._mask[rows]
        return found


def _grouped(flags: Sequence[Mask], count: int) -> tuple[list[int], Groups]:
    """Distinct combinations of flags, as bit sets, and the number of that of each row. Few combinations are usual."""
    if not count:
        return [], np.zeros(0, dtype=np.intp)
    mixed = [flag for flag in flags if flag.any() and not flag.all()]
    if not mixed:
        return [sum(1 << bit for bit, flag in enumerate(flags) if flag[0])], np.zeros(count, dtype=np.intp)
    if len(flags) <= _PATTERN_BITS:
        patterns = np.zeros(count, dtype=np.int64)
        for bit, flag in enumerate(flags):
            patterns |= flag.astype(np.int64) << bit
        numbers, which = np.unique(patterns, return_inverse=True)
        return numbers.tolist(), which
    packed = np.packbits(np.stack(flags, axis=1), axis=1, bitorder="little")
    keys, which = np.unique(packed.view(np.dtype((np.void, packed.shape[1]))).ravel(), return_inverse=True)
    return [int.from_bytes(key.tobytes(), "little") for key in keys], which


def _subset(served: Sequence[tuple[str, str]], pattern: int) -> Served:
    return tuple(found for bit, found in enumerate(served) if pattern >> bit & 1)
