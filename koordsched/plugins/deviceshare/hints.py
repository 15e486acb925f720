"""Which NUMA nodes can serve a pod with devices: hints for the topology manager (deviceshare spec 3.7)."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.shape import PodShape
from koordsched.framework.keyed import Answers
from koordsched.framework.status import Codes
from koordsched.framework.topologyhints import Amounts, NUMAPolicy, ResourceHints, Subsets
from koordsched.plugins.deviceshare.allocating import Allocating
from koordsched.plugins.deviceshare.allocator import Choices, skips_secondary
from koordsched.plugins.deviceshare.compiled import CompiledRequests, PodRequest
from koordsched.plugins.deviceshare.feasibility import Feasibility
from koordsched.plugins.deviceshare.reasons import (
    DESIGNATED_WITHOUT_NUMA_NODE,
    INSUFFICIENT_IN_NUMA_NODES,
    Refusal,
)
from koordsched.plugins.shared.devices.allocation import Allocation
from koordsched.plugins.shared.devices.columns import DeviceColumns
from koordsched.plugins.shared.devices.inventory import Inventory
from koordsched.plugins.shared.devices.nodes import DEVICES_CHANGED
from koordsched.plugins.shared.devices.resources import GPU

SAME_GPUS = 500
"""The score of NUMA nodes with which the pod gets the GPUs that it would get without asking for NUMA nodes; more than
CPU and memory score (at most 100)."""

_MAX_NUMA_NODES = 8
_WORDS = 4
_CODE, _KNOWN, _SMALLEST = 0, 1, 2
_POSSIBLE, _SAME = 3, 3 + _WORDS
_WIDTH = 3 + 2 * _WORDS


class DeviceHintProvider:
    """The hints of DeviceShare.

    What is known of a row is kept as numbers: the code of a refusal; whether there are hints; the size of the smallest
    set of NUMA nodes that will do; and by set of NUMA nodes, as the position of a bit, whether it will do and whether
    the GPUs are the same.
    """

    changed = DEVICES_CHANGED

    def __init__(self, compiled: CompiledRequests, allocating: Allocating, feasibility: Feasibility) -> None:
        self._compiled = compiled
        self._allocating = allocating
        self._columns: DeviceColumns = allocating.columns
        self._feasibility = feasibility
        self._kept = Answers(self._evaluate)

    @property
    def facets(self) -> int:
        """See TopologyHintProvider."""
        return self._columns.facets

    def concerns(self, shape: PodShape) -> bool:
        """See TopologyHintProvider."""
        return bool(self._compiled.of(shape).types)

    def key(self, shape: PodShape, table: NodeTable, rows: RowArray) -> Amounts:
        """See TopologyHintProvider."""
        return self._feasibility.keys(self._compiled.of(shape), rows)

    def infeasible(self, shape: PodShape, table: NodeTable, rows: RowArray) -> Codes | None:
        """See TopologyHintProvider."""
        codes = self._of(shape, table, rows)[:, _CODE]
        return codes.astype(np.int32) if codes.any() else None

    def hints(
        self, shape: PodShape, table: NodeTable, rows: RowArray, subsets: Subsets, policy: NUMAPolicy
    ) -> list[ResourceHints]:
        """See TopologyHintProvider: the same for every type of device."""
        found = self._of(shape, table, rows)
        applies = found[:, _KNOWN] > 0
        if not applies.any():
            return []
        possible = _bits(found[:, _POSSIBLE:_SAME], subsets) & applies[:, None]
        preferred = possible & (subsets.sizes == found[:, _SMALLEST, None])
        score = np.where(_bits(found[:, _SAME:], subsets), SAME_GPUS, 0)
        request = self._compiled.of(shape)
        if request.designated is not None:
            types = dict.fromkeys(given.type for given in request.designated)
            return [ResourceHints(kind, applies, possible, preferred, score) for kind in types]
        listed = []
        planned = np.array([skips_secondary(request.devices, self._columns.inventory(row)) for row in rows.tolist()])
        for kind in request.types:
            concerned = applies if kind in request.devices.joint[:1] else applies & ~planned
            listed.append(ResourceHints(kind, concerned, possible, preferred, score))
        return listed

    def refused(self, shape: PodShape, table: NodeTable, rows: RowArray, masks: Amounts) -> Codes | None:
        """See TopologyHintProvider."""
        codes = np.zeros(len(rows), dtype=np.int32)
        designated = self._compiled.of(shape).designated is not None
        possible = self._of(shape, table, rows)[:, _POSSIBLE:_SAME]
        for at, (row, mask) in enumerate(zip(rows.tolist(), masks.tolist(), strict=True)):
            if not self._feasibility.is_known(row):
                continue
            if not designated and possible[at, mask >> 6] >> (mask & 63) & 1:
                continue
            found = self._allocating.trial(shape, row, 0 if designated else mask)
            if isinstance(found, Refusal):
                codes[at] = self._feasibility.refusal_code(found)
        return codes if codes.any() else None

    # --- what is kept --------------------------------------------------------------------------------

    def _of(self, shape: PodShape, table: NodeTable, rows: RowArray) -> Amounts:
        """int64[rows, _WIDTH]."""
        keys = self.key(shape, table, rows)
        if len(rows) == 1:
            return np.array((self._kept.of_one(shape, keys, table, rows),), dtype=np.int64)
        return self._kept.of(shape, keys, table, rows)

    def _evaluate(self, shape: PodShape, table: NodeTable, rows: RowArray) -> Amounts:
        found = np.zeros((len(rows), _WIDTH), dtype=np.int64)
        for at, row in enumerate(rows.tolist()):
            if self._feasibility.is_known(row):
                self._evaluate_row(shape, row, found[at])
        return found

    def _evaluate_row(self, shape: PodShape, row: int, found: Amounts) -> None:
        request, inventory = self._compiled.of(shape), self._columns.inventory(row)
        if request.designated is not None:
            self._evaluate_designated(request.designated, inventory, found)
            return
        nodes = [node for node in inventory.numa_nodes if node < _MAX_NUMA_NODES]
        if not nodes:
            return
        results: dict[int, tuple[int, ...]] = {}
        for size in range(1, len(nodes) + 1):
            for subset in combinations(nodes, size):
                mask = sum(1 << node for node in subset)
                tried = self._try_subset(shape, request, inventory, row, mask)
                if not isinstance(tried, Refusal):
                    results[mask] = tuple(sorted(tried[GPU].minors)) if GPU in tried else ()
                elif size == len(nodes):
                    found[_CODE] = self._feasibility.refusal_code(tried)
                    return
        everything = sum(1 << node for node in nodes)
        found[_KNOWN] = 1
        found[_SMALLEST] = min(mask.bit_count() for mask in results)
        for mask, minors in results.items():
            _set_bit(found[_POSSIBLE:_SAME], mask)
            if minors == results[everything]:
                _set_bit(found[_SAME:], mask)

    def _try_subset(
        self, shape: PodShape, request: PodRequest, inventory: Inventory, row: int, mask: int
    ) -> Choices | Refusal:
        requests = self._allocating.requests_on(request, row)
        if isinstance(requests, Refusal):
            return requests
        for kind, asked in requests.items():
            there = sum(place.is_in(mask) for place in inventory.places[kind].values())
            if 0 < there < asked.number:
                return INSUFFICIENT_IN_NUMA_NODES
        return self._allocating.trial(shape, row, mask)

    def _evaluate_designated(self, designated: Allocation, inventory: Inventory, found: Amounts) -> None:
        mask = 0
        for given in designated:
            place = inventory.places.get(given.type, {}).get(given.minor)
            if place is None or place.numa is None or not 0 <= place.numa < _MAX_NUMA_NODES:
                found[_CODE] = self._feasibility.refusal_code(DESIGNATED_WITHOUT_NUMA_NODE)
                return
            mask |= 1 << place.numa
        found[_KNOWN], found[_SMALLEST] = 1, mask.bit_count()
        _set_bit(found[_POSSIBLE:_SAME], mask)
        _set_bit(found[_SAME:], mask)


def _set_bit(words: Amounts, at: int) -> None:
    words[at >> 6] |= np.array(1 << (at & 63), dtype=np.uint64).view(np.int64)


def _bits(words: Amounts, subsets: Subsets) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """bool[rows, subsets]: the bit of each subset's mask."""
    picked = words[:, subsets.masks >> 6]
    found: np.ndarray[tuple[int, int], np.dtype[np.bool_]] = (picked >> (subsets.masks & 63) & 1).astype(np.bool_)
    return found
