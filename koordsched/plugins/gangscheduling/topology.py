"""TopologyPlacementGenerator and PodGroupPodsCount: pods of a group on nodes with the same value of a label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.framework.handle import Handle
from koordsched.framework.interface import MAX_SCORE
from koordsched.framework.jobs import GroupJob
from koordsched.framework.placements import NO_PLACEMENT, Placement, PlacementGenerate, PlacementScore
from koordsched.framework.status import Code, Status
from koordsched.plugins.gangscheduling import messages
from koordsched.plugins.gangscheduling.cache import PodGroupCache
from koordsched.plugins.gangscheduling.plugin import GATES

TOPOLOGY_GATES = GATES | {"TopologyAwareWorkloadScheduling"}


class TopologyPlacementGenerator(PlacementGenerate):
    """One placement per value of the label that the group names; members that have a node pin the value."""

    name = "TopologyPlacementGenerator"

    def __init__(self, args: None, handle: Handle) -> None:
        self._cluster = handle.cluster
        self._cache = PodGroupCache.shared(handle) if handle.features >= TOPOLOGY_GATES else None

    def placements(self, group: GroupJob) -> Sequence[Placement] | Status | None:
        """See PlacementGenerate."""
        found = self._cache.group(group.name) if self._cache is not None else None
        key = found.topology_key if found is not None else ""
        if not key:
            return None
        table = self._cluster.table
        column = table.label_column(key)
        numbers = np.where(table.alive.data[: table.size], column.ids.data[: table.size], column.index[None])
        pinned = self._values_of_members(group.name, key)
        if len(pinned) > 1:
            return Status(Code.ERROR, (messages.several_domains(key, sorted(pinned)),))
        values = sorted(
            (str(column.values[number]), number)
            for number in np.unique(numbers).tolist()
            if column.values[number] is not None and (not pinned or column.values[number] in pinned)
        )
        if not values:
            return NO_PLACEMENT
        return [Placement(value, np.flatnonzero(numbers == number)) for value, number in values]

    def _values_of_members(self, group_id: str, key: str) -> set[str]:
        """The values of the label on the nodes of members."""
        members = self._cache.members.get(group_id) if self._cache is not None else None
        column, values = self._cluster.table.label_column(key), set()
        for uid in members.placed if members is not None else ():
            pod = self._cluster.assigned.get(uid)
            if pod is not None and pod.row >= 0:
                values.add(column.values[column.ids.data.item(pod.row)])
        return {value for value in values if value is not None}


class PodGroupPodsCount(PlacementScore):
    """Prefers placements on which more pods of the group run."""

    name = "PodGroupPodsCount"

    def __init__(self, args: None, handle: Handle) -> None:
        self._cache = PodGroupCache.shared(handle) if handle.features >= TOPOLOGY_GATES else None

    def score_placement(self, group: GroupJob, rows: RowArray) -> int:
        """How many pods of the group have a node."""
        members = self._cache.members.get(group.name) if self._cache is not None else None
        return len(members.placed) if members is not None else 0

    def normalize_placements(self, scores: Sequence[int]) -> Sequence[int]:
        """The largest gets 100."""
        most = max(scores, default=0)
        return [score * MAX_SCORE // most if most > 0 else 0 for score in scores]
