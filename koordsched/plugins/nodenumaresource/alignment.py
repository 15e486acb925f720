"""Which NUMA nodes a pod gets where a policy asks for alignment: the topology manager, asked about rows of one kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.shape import PodShape
from koordsched.framework.status import PASS, Code, Codes, ReasonTable
from koordsched.framework.topologyhints import (
    Amounts,
    NUMAPolicy,
    ResourceHints,
    Subsets,
    TopologyHintProvider,
    singles_of,
    subsets_of,
)
from koordsched.framework.topologymanager import admit, best_effort, refusal
from koordsched.plugins.nodenumaresource.columns import NUMAColumns
from koordsched.plugins.nodenumaresource.demand import Demand

_TEXTS_KEPT = 10_000
"""Texts that differ in the NUMA nodes that they name; what comes beyond is told without them."""


class Aligned(NamedTuple):
    """`masks`: int64[rows], the NUMA nodes chosen, NO_AFFINITY for any; `codes`: where there is no choice, the reason's
    number."""

    masks: Amounts
    codes: Codes


class Alignment:
    """Merges what all providers say. All rows of a call have the same mode and number of NUMA nodes."""

    def __init__(
        self, plugin: str, columns: NUMAColumns, providers: Sequence[TopologyHintProvider], reasons: ReasonTable
    ) -> None:
        self._plugin = plugin
        self._columns = columns
        self._providers = providers
        self._reasons = reasons
        self._texts: set[tuple[str, ...]] = set()

    def of(self, shape: PodShape, table: NodeTable, demand: Demand, rows: RowArray, count: int) -> Aligned:
        """The choice for each row, by a policy that insists on alignment."""
        policy = demand.numa
        subsets = singles_of(count) if policy is NUMAPolicy.SINGLE_NUMA_NODE else subsets_of(count)
        statuses = self._statuses(demand, rows, count)
        hints = self._hints(shape, table, policy, rows, subsets)
        admission = admit(policy, hints, subsets, len(rows), statuses)
        codes = np.zeros(len(rows), dtype=np.int32)
        refused = np.flatnonzero(~admission.admitted)
        if len(refused):
            codes[refused] = self._refusals(shape, table, policy, rows[refused], count)
        for provider in self._providers:
            passing = np.flatnonzero(codes == PASS)
            if not len(passing):
                break
            found = provider.refused(shape, table, rows[passing], admission.masks[passing])
            if found is not None:
                codes[passing] = found
        return Aligned(admission.masks, codes)

    def best_effort(self, shape: PodShape, table: NodeTable, demand: Demand, row: int, count: int) -> int:
        """The mask for a row where every pod is admitted."""
        rows, subsets = np.array([row], dtype=np.intp), subsets_of(count)
        statuses = self._statuses(demand, rows, count)
        hints = self._hints(shape, table, demand.numa, rows, subsets)
        return best_effort(hints, subsets, None if statuses is None else statuses[0])

    def hints_on(self, shape: PodShape, table: NodeTable, demand: Demand, row: int, count: int) -> list[ResourceHints]:
        """All hints about one row."""
        return self._hints(shape, table, demand.numa, np.array([row], dtype=np.intp), subsets_of(count))

    def _statuses(self, demand: Demand, rows: RowArray, count: int) -> Amounts | None:
        return self._columns.statuses(rows, count) if demand.request.exclusive_numa else None

    def _hints(
        self, shape: PodShape, table: NodeTable, policy: NUMAPolicy, rows: RowArray, subsets: Subsets
    ) -> list[ResourceHints]:
        return [hint for provider in self._providers for hint in provider.hints(shape, table, rows, subsets, policy)]

    def _refusals(self, shape: PodShape, table: NodeTable, policy: NUMAPolicy, rows: RowArray, count: int) -> Codes:
        """The numbers of the reasons, which are worked out once for rows with the same hints."""
        subsets = subsets_of(count)
        hints = self._hints(shape, table, policy, rows, subsets)
        flags = [part for hint in hints for part in (hint.applies[:, None], hint.possible, hint.preferred)]
        if not flags:
            return np.full(len(rows), self._code(refusal(policy, hints, subsets, 0)), dtype=np.int32)
        packed = np.packbits(np.concatenate(flags, axis=1), axis=1)
        _, examples, groups = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        codes = [self._code(refusal(policy, hints, subsets, int(example))) for example in examples]
        return np.array(codes, dtype=np.int32)[groups.reshape(-1)]

    def _code(self, texts: tuple[str, ...]) -> int:
        if texts not in self._texts:
            if len(self._texts) >= _TEXTS_KEPT:
                texts = ("Unaligned NUMA Hint",)
            self._texts.add(texts)
        return self._reasons.intern(self._plugin, Code.UNSCHEDULABLE, *texts)


def numa_nodes(mask: int) -> list[int]:
    """The NUMA nodes of a mask, ascending."""
    return [node for node in range(mask.bit_length()) if mask >> node & 1]
