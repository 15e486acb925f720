"""Where a pod's volumes are or can be: the verdict on every node, and what would be bound where.

Source: upstream `volumebinding/binder.go` FindPodVolumes; default-plugins spec 3.11.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

import numpy as np
import numpy.typing as npt

from koordsched.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from koordsched.api.storage import CSIDriver, PersistentVolume, StorageClass
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.objects import Store
from koordsched.plugins.shared.matching.nodeselector import NodeSelectors
from koordsched.plugins.shared.matching.rows import Mask
from koordsched.plugins.volumebinding.capacity import StorageCapacities
from koordsched.plugins.volumebinding.claims import Claims, Demand
from koordsched.plugins.volumebinding.freevolumes import Assignment
from koordsched.plugins.volumebinding.volumes import Volumes

# What can be wrong with a node, as bits in the order of the texts.
AFFINITY_CONFLICT: Final = 1
NOTHING_TO_BIND: Final = 2
NOT_ENOUGH_SPACE: Final = 4
VOLUME_MISSING: Final = 8

TEXTS: Final = {
    AFFINITY_CONFLICT: "node(s) didn't match PersistentVolume's node affinity",
    NOTHING_TO_BIND: "node(s) didn't find available persistent volumes to bind",
    NOT_ENOUGH_SPACE: "node(s) did not have enough free storage",
    VOLUME_MISSING: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
}

NO_PROVISIONER = "kubernetes.io/no-provisioner"

Problems = npt.NDArray[np.uint8]
"""uint8[rows]: sums of the bits above, 0 where the node will do."""


@dataclass(frozen=True, slots=True)
class VolumeChoice:
    """For one claim, a volume pre-bound to it and where that can be used, or free volumes row by row."""

    demand: Demand
    found: Mask
    prebound: PersistentVolume | None = None
    assigned: Assignment | None = None

    def on(self, row: int) -> PersistentVolume | None:
        """The volume that the claim gets on a row; None if one has to be provisioned."""
        if self.assigned is not None:
            return self.assigned.on(row)
        return self.prebound if self.found[row] else None


@dataclass(frozen=True, slots=True)
class Placing:
    """The verdict on all rows: `problems`, and the volumes chosen for the claims that are open."""

    claims: Claims
    problems: Problems
    choices: list[VolumeChoice]


class Placer:
    """Decides, from the assumed state of volumes, classes, drivers and capacities."""

    def __init__(
        self,
        table: NodeTable,
        volumes: Volumes,
        classes: Store[StorageClass],
        drivers: Store[CSIDriver],
        capacities: StorageCapacities,
    ) -> None:
        self._table = table
        self._volumes = volumes
        self._classes = classes
        self._drivers = drivers
        self._capacities = capacities
        self._selectors = NodeSelectors()

    def place(self, claims: Claims) -> Placing:
        """Looks at every row, dead ones included."""
        problems = np.zeros(self._table.size, dtype=np.uint8)
        self._check_bound(claims, problems)
        choices = self._choose(claims.open)
        self._check_unbound(claims, choices, problems)
        return Placing(claims, problems, choices)

    def _check_bound(self, claims: Claims, problems: Problems) -> None:
        """The first bound claim that does not suit a node decides what is wrong with it."""
        suits = np.ones(self._table.size, dtype=np.bool_)
        for claim in claims.bound:
            volume = self._volumes.get(claim.spec.volume_name)
            if volume is None:
                problems[suits] |= VOLUME_MISSING
                return
            usable = self._volumes.usable(volume, self._table.all_rows)
            problems[suits & ~usable] |= AFFINITY_CONFLICT
            suits &= usable

    def _choose(self, demands: list[Demand]) -> list[VolumeChoice]:
        """A volume for each open claim on each row: one pre-bound to it, or else the smallest free one left over."""
        choices: dict[int, VolumeChoice] = {}
        by_class: dict[str, list[int]] = {}
        for number, demand in enumerate(demands):
            prebound = self._volumes.prebound_to(demand)
            if prebound is not None:
                where = self._volumes.within_affinity(prebound, self._table.all_rows)
                choices[number] = VolumeChoice(demand, where, prebound)
            else:
                by_class.setdefault(demand.class_name, []).append(number)
        for class_name, numbers in by_class.items():
            free = self._volumes.free(class_name)
            assigned = free.assign([demands[number] for number in numbers]) if free is not None else []
            for number, assignment in zip_longest(numbers, assigned):
                found = assignment.found if assignment is not None else np.zeros(self._table.size, dtype=np.bool_)
                choices[number] = VolumeChoice(demands[number], found, assigned=assignment)
        return [choices[number] for number in range(len(demands))]

    def _check_unbound(self, claims: Claims, choices: list[VolumeChoice], problems: Problems) -> None:
        """Claims without a volume to take must be provisioned; the first that cannot decides what is wrong."""
        undecided = np.ones(self._table.size, dtype=np.bool_)
        for demand in claims.chosen:
            row = self._table.row_of.get(demand.selected_node or "")
            elsewhere = undecided.copy()
            if row is not None:
                elsewhere[row] = False
            problems[elsewhere] |= NOTHING_TO_BIND
            undecided &= ~elsewhere
        everywhere = np.ones(self._table.size, dtype=np.bool_)
        for demand, found in [
            *((demand, ~everywhere) for demand in claims.chosen),
            *((choice.demand, choice.found) for choice in choices),
        ]:
            needed = undecided & ~found
            if needed.any():
                failed = self._check_provision(demand, needed, problems)
                undecided &= ~failed

    def _check_provision(self, demand: Demand, needed: Mask, problems: Problems) -> Mask:
        """Marks the rows of `needed` for which the claim's volume cannot be provisioned, and returns them."""
        storage_class = self._classes.get("", demand.class_name)
        if storage_class is None or storage_class.provisioner in ("", NO_PROVISIONER):
            problems[needed] |= NOTHING_TO_BIND
            return needed
        outside = needed & ~self._within_topology(storage_class)
        problems[outside] |= NOTHING_TO_BIND
        short = needed & ~outside & ~self._has_room(storage_class, demand)
        problems[short] |= NOT_ENOUGH_SPACE
        return outside | short

    def _within_topology(self, storage_class: StorageClass) -> Mask:
        """The rows within allowedTopologies; a term without requirements selects nothing."""
        if not storage_class.allowed_topologies:
            return np.ones(self._table.size, dtype=np.bool_)
        terms = tuple(
            NodeSelectorTerm(
                tuple(NodeSelectorRequirement(e.key, "In", e.values) for e in topology.match_label_expressions)
            )
            for topology in storage_class.allowed_topologies
        )
        return self._selectors.terms(NodeSelector(terms)).mask(self._table, self._table.all_rows)

    def _has_room(self, storage_class: StorageClass, demand: Demand) -> Mask:
        """The rows where the driver says that it can make the volume; it is only asked if it tracks capacity."""
        driver = self._drivers.get("", storage_class.provisioner)
        resources = demand.claim.spec.resources
        if driver is None or not driver.spec.storage_capacity or not resources or "storage" not in resources.requests:
            return np.ones(self._table.size, dtype=np.bool_)
        return self._capacities.by_row(storage_class.metadata.name) >= demand.size
