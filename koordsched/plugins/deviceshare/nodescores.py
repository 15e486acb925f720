"""How good nodes are for a pod: by how much of their devices would be in use (deviceshare spec 3.8)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import Rows
from koordsched.framework.topologyhints import Amounts
from koordsched.plugins.deviceshare.allocator import skips_secondary
from koordsched.plugins.deviceshare.compiled import PodRequest
from koordsched.plugins.deviceshare.devicescore import DeviceScore
from koordsched.plugins.deviceshare.supply import Supply
from koordsched.plugins.shared.allocation import least_allocated_rows, most_allocated_rows
from koordsched.plugins.shared.devices.columns import DeviceColumns
from koordsched.plugins.shared.devices.inventory import Inventory
from koordsched.plugins.shared.devices.resources import NAMES
from koordsched.plugins.shared.matching.rows import count_of, single


class NodeScores:
    """Scores rows: per type that is asked for 0..100, added up."""

    def __init__(self, columns: DeviceColumns, score: DeviceScore) -> None:
        self._columns = columns
        self._score = score

    def of(self, request: PodRequest, rows: Rows, numa_nodes: Amounts | None) -> npt.NDArray[np.int64]:
        """int64[rows]. `numa_nodes`: int64[rows], the bit set of those that the devices must be in, 0 or less for any;
        None: any on all rows."""
        if numa_nodes is None and not request.devices.hints and not request.devices.joint:
            row = single(rows)
            if row >= 0:
                return np.array([sum(self._of_one(kind, request, row) for kind in request.types)], dtype=np.int64)
            found = np.zeros(count_of(rows), dtype=np.int64)
            for kind in request.types:
                found += self._of_type(kind, request, rows, None)
            return found
        every = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        found = np.zeros(len(every), dtype=np.int64)
        masks = np.zeros(len(every), dtype=np.int64) if numa_nodes is None else np.maximum(numa_nodes, 0)
        if len(every) == 1:
            return self._of_alike(request, every, masks.item(0))
        groups, which = np.unique(
            np.stack((self._columns.number.data[rows], masks), axis=1), axis=0, return_inverse=True
        )
        for group, (_, mask) in enumerate(groups.tolist()):
            at = np.flatnonzero(which.reshape(-1) == group)
            found[at] = self._of_alike(request, every[at], mask)
        return found

    def _of_alike(self, request: PodRequest, rows: RowArray, mask: int) -> npt.NDArray[np.int64]:
        """The scores of rows with one inventory."""
        inventory, devices = self._columns.inventory(int(rows[0])), request.devices
        found = np.zeros(len(rows), dtype=np.int64)
        planned = skips_secondary(devices, inventory)
        for kind in request.types:
            if planned and kind != devices.joint[0]:
                continue
            candidates = _candidates(kind, request, inventory, mask)
            found += self._of_type(kind, request, rows, candidates)
        return found

    def _of_type(
        self, kind: str, request: PodRequest, rows: Rows, candidates: Sequence[int] | None
    ) -> npt.NDArray[np.int64]:
        columns, asked = self._columns, request.devices.types[kind].amounts
        offered = np.maximum(columns.by_minor(columns.offered[kind], kind, rows), 0)
        free = np.maximum(offered - columns.by_minor(columns.used[kind], kind, rows), 0)
        anything = free.any(axis=(1, 2))
        if candidates is not None:
            offered, free = offered[:, candidates], free[:, candidates]
        score = np.zeros(len(offered), dtype=np.int64)
        weights = np.zeros(len(offered), dtype=np.int64)
        share = least_allocated_rows if self._score.least else most_allocated_rows
        for at, weight in self._score.weights[kind]:
            total = offered[:, :, at].sum(axis=1)
            there = total > 0
            if not there.any():
                continue
            used = total - free[:, :, at].sum(axis=1) + asked[at]
            score += np.where(there, share(used, np.maximum(total, 1)) * weight, 0)
            weights += there * weight
        return np.where(anything & (weights > 0), score // np.maximum(weights, 1), 0)

    def of_supply(self, request: PodRequest, supply: Supply) -> int:
        """The same of some devices of one node, which are at hand."""
        planned = skips_secondary(request.devices, supply.inventory)
        found = 0
        for kind, asked in request.devices.types.items():
            of_type = supply.types[kind]
            if of_type.total and not (planned and kind != request.devices.joint[0]):
                total, free = (
                    [sum(max(0, amounts[at]) for amounts in listed.values()) for at in range(len(NAMES[kind]))]
                    for listed in (of_type.total, of_type.free)
                )
                found += self._score.of(kind, asked.amounts, total, free)
        return found

    def _of_one(self, kind: str, request: PodRequest, row: int) -> int:
        """The same for one row, in plain numbers."""
        width = len(NAMES[kind])
        offered = self._columns.offered[kind].data[row].tolist()
        used = self._columns.used[kind].data[row].tolist()
        total, free = [0] * width, [0] * width
        for at, amount in enumerate(offered):
            if amount > 0:
                total[at % width] += amount
                free[at % width] += max(0, amount - used[at])
        return self._score.of(kind, request.devices.types[kind].amounts, total, free) if any(free) else 0


def _candidates(kind: str, request: PodRequest, inventory: Inventory, mask: int) -> list[int]:
    selector = request.devices.hint(kind).selector
    return [
        minor
        for minor, place in inventory.places[kind].items()
        if (not mask or place.serves(mask)) and (selector is None or selector.matches(dict(place.labels)))
    ]
