"""Which NUMA nodes a pod gets where a policy asks for alignment: the topology manager, asked about rows of one kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.shape import PodShape
from koordsched.framework.keyed import Answers
from koordsched.framework.status import PASS, Code, Codes, ReasonTable
from koordsched.framework.topologyhints import (
    Amounts,
    NUMAPolicy,
    ResourceHints,
    Subsets,
    TopologyHintProvider,
    subsets_of,
    subsets_of_size,
)
from koordsched.framework.topologymanager import NO_AFFINITY, SHARED, admit, best_effort, refusal
from koordsched.plugins.nodenumaresource.columns import CPU, MODES
from koordsched.plugins.nodenumaresource.demand import Demand, demand_on
from koordsched.plugins.nodenumaresource.hints import CompiledRequests, NUMAHintProvider, NUMASupply
from koordsched.plugins.nodenumaresource.scoring import AllocationScore
from koordsched.plugins.nodenumaresource.supply import amplified
from koordsched.plugins.nodenumaresource.topologyoptions import amplify

_TEXTS_KEPT = 10_000
"""Texts that differ in the NUMA nodes that they name; further ones are shortened to a text without them."""


NODE_SCORE = -1
"""In place of a score: the whole node is scored."""


class Aligned(NamedTuple):
    """int64[rows]. `codes`: where no NUMA nodes can be chosen, the reason's number; `masks`: those chosen, NO_AFFINITY
    for any; `scores`: 0..100, or NODE_SCORE.
    """

    codes: Amounts
    masks: Amounts
    scores: Amounts


class Alignment:
    """Merges what all providers say. All rows of a call have the same mode and number of NUMA nodes."""

    def __init__(
        self,
        plugin: str,
        numa: NUMASupply,
        compiled: CompiledRequests,
        score: AllocationScore,
        providers: Sequence[TopologyHintProvider],
        reasons: ReasonTable,
    ) -> None:
        self._plugin = plugin
        self._numa = numa
        self._columns = numa.columns
        self._compiled = compiled
        self._score = score
        self._providers = providers
        self._reasons = reasons
        self._texts: set[tuple[str, ...]] = set()
        self._answers = Answers(self._evaluate)

    def providers(self, shape: PodShape) -> list[TopologyHintProvider]:
        """Those that apply to pods of the shape."""
        return shape.compiled(self, lambda _: [each for each in self._providers if each.concerns(shape)])

    def of(self, shape: PodShape, table: NodeTable, demand: Demand, rows: RowArray, count: int) -> Aligned:
        """The choice for each row, by a policy that requires alignment. Nodes in the same state are asked once."""
        parts = [provider.key(shape, table, rows) for provider in self.providers(shape)]
        statuses = self._statuses(demand, rows, count)
        if statuses is not None:
            parts.append(statuses)
        keys = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
        if len(rows) == 1:
            code, mask, score = self._answers.of_one(shape, keys, table, rows)
            return Aligned(np.array((code,)), np.array((mask,)), np.array((score,)))
        found = self._answers.of(shape, keys, table, rows)
        return Aligned(found[:, 0], found[:, 1], found[:, 2])

    def _evaluate(self, shape: PodShape, table: NodeTable, rows: RowArray) -> Amounts:
        """int64[rows, 3]: as `Aligned`."""
        mode = MODES[self._columns.mode.data.item(rows[0])]
        demand, count = demand_on(self._compiled.request(shape), mode), self._columns.zone_count.data.item(rows[0])
        policy = demand.numa
        statuses = self._statuses(demand, rows, count)
        providers = self.providers(shape)
        if len(rows) == 1 and len(providers) == 1:
            answer = self._single(shape, demand, int(rows[0]), count, statuses)
            if answer is not None:
                return answer
        masks = np.zeros(len(rows), dtype=np.int64)
        codes = np.zeros(len(rows), dtype=np.int32)
        for provider in providers:
            at = np.flatnonzero(codes == PASS)
            if len(at) and (found := provider.infeasible(shape, table, rows[at])) is not None:
                codes[at] = self._own(found, Code.UNSCHEDULABLE)
        refused = np.flatnonzero(codes == PASS)
        # Upstream ends with as few NUMA nodes as suffice. Most nodes need one, and many subsets are never looked at.
        for size in range(1 if len(refused) else count + 1, 2 if policy is NUMAPolicy.SINGLE_NUMA_NODE else count + 1):
            subsets = subsets_of_size(count, size)
            hints = self._hints(shape, table, policy, rows[refused], subsets)
            of_refused = statuses[refused] if statuses is not None else None
            admission = admit(policy, hints, subsets, len(refused), of_refused)
            masks[refused] = admission.masks
            refused = refused[~admission.admitted]
            if not len(refused):
                break
        if len(refused):
            codes[refused] = self._refusals(shape, table, policy, rows[refused], count)
        for provider in providers:
            passing = np.flatnonzero(codes == PASS)
            if not len(passing):
                break
            found = provider.refused(shape, table, rows[passing], masks[passing])
            if found is not None:
                codes[passing] = self._own(found)
        scores = np.zeros(len(rows), dtype=np.int64)
        for mask in np.unique(masks[codes == PASS]).tolist():
            at = np.flatnonzero((masks == mask) & (codes == PASS))
            scores[at] = self._rate(shape, demand, rows[at], mask)
        return np.stack((codes.astype(np.int64), masks, scores), axis=1)

    def _single(
        self, shape: PodShape, demand: Demand, row: int, count: int, statuses: Amounts | None
    ) -> Amounts | None:
        """The answer for one row where one NUMA node can serve the pod, in plain numbers; None where none can.

        Hundreds of nodes that differ by some bytes of memory are as many states; this is ten times as fast as arrays.
        """
        wanted = self._compiled.wanted(shape)
        supply = self._numa.supply_on(wanted, demand, row)
        asked = [at for at in range(wanted.asked) if wanted.requested[at] and supply.has(at)]
        if not asked or count == 1:
            return None
        best, mask = -1, 0
        for node in range(count):
            if statuses is not None and statuses.item(0, node) == SHARED:
                continue
            if any(supply.available[at][node] < wanted.requested[at] for at in asked):
                continue
            if demand.binds is not None and (CPU not in asked or supply.usable[node] < demand.request.cpus):
                continue
            score = self._numa.score_on(wanted, demand, supply, row, node)
            if score > best:
                best, mask = score, 1 << node
        if not mask:
            return None
        node = mask.bit_length() - 1
        resources = []
        for at, weighed in wanted.scored:
            used = supply.used[at][node]
            if weighed.resource == "cpu" and demand.binds is not None:
                held = self._columns.held(row).bit_count()
                used = amplify(held * 1000, self._columns.ratio.data.item(row))
            request = self._numa.request_on_row(demand, row, weighed)
            resources.append((weighed, used + request, max(0, supply.capacity[at][node])))
        return np.array(((PASS, mask, self._score.mean_of_one(resources)),), dtype=np.int64)

    def _rate(self, shape: PodShape, demand: Demand, rows: RowArray, mask: int) -> Amounts:
        """The scores of rows where the pod would use the NUMA nodes of a mask (nodenumaresource spec 3.7)."""
        nothing = np.full(len(rows), NODE_SCORE, dtype=np.int64)
        if mask == NO_AFFINITY:
            return nothing
        columns, wanted = self._columns, self._compiled.wanted(shape)
        supply = self._numa.supply(wanted, demand, rows, columns.zone_count.data.item(rows[0]))
        members = np.array([numa_nodes(mask)], dtype=np.intp)
        parts = self._numa.split(wanted, demand, supply.available, rows, members)
        failed = ((parts.rest[:, :, 0] > 0) & supply.present[:, : wanted.asked].any(axis=2)).any(axis=1)
        gives = np.zeros((len(rows), supply.capacity.shape[2]), dtype=np.bool_)
        for at in range(wanted.asked):
            given = parts.given[:, at, :, 0] > 0
            for place in range(given.shape[1]):
                gives[np.arange(len(rows)), parts.nodes[:, at, place, 0]] |= given[:, place]
        resources = []
        for at, weighed in wanted.scored:
            used = (supply.used[:, at] * gives).sum(axis=1)
            if weighed.resource == "cpu" and demand.binds is not None:
                used = amplified(columns.bound_in_all(rows) * 1000, columns.ratio.data[rows])
            capacity = (supply.capacity[:, at] * gives).sum(axis=1)
            resources.append((weighed, used + self._numa.request_on(demand, rows, weighed), capacity))
        found = nothing
        found[:] = np.where(gives.any(axis=1), self._score.mean(resources), NODE_SCORE)
        return np.where(failed, 0, found)

    def best_effort(self, shape: PodShape, table: NodeTable, demand: Demand, row: int, count: int) -> int:
        """The mask for a row where every pod is admitted."""
        rows, subsets = np.array([row], dtype=np.intp), subsets_of(count)
        statuses = self._statuses(demand, rows, count)
        hints = self._hints(shape, table, demand.numa, rows, subsets)
        return best_effort(hints, subsets, None if statuses is None else statuses[0])

    def refusal_by_others(self, shape: PodShape, table: NodeTable, row: int, mask: int | None) -> int:
        """Why providers refuse a row where a policy admits every pod: whatever NUMA nodes it got (None), or with those
        of a mask; PASS if none does."""
        rows = np.array([row], dtype=np.intp)
        for provider in self.providers(shape):
            if mask is None:
                found, code = provider.infeasible(shape, table, rows), Code.UNSCHEDULABLE
            elif isinstance(provider, NUMAHintProvider):
                continue  # what it gives is worked out with CPUs and amounts
            else:
                found, code = provider.refused(shape, table, rows, np.array([mask], dtype=np.int64)), None
            if found is not None:
                return int(self._own(found, code)[0])
        return PASS

    def _own(self, codes: Codes, code: Code | None = None) -> Codes:
        """The reasons of providers, reported by this plugin, which asks them (`code`: instead of theirs)."""
        found = codes.copy()
        for number in np.unique(codes).tolist():
            if number != PASS:
                reason = self._reasons[number]
                found[codes == number] = self._reasons.intern(self._plugin, code or reason.code, *reason.texts)
        return found

    def hints_on(self, shape: PodShape, table: NodeTable, demand: Demand, row: int, count: int) -> list[ResourceHints]:
        """All hints about one row."""
        return self._hints(shape, table, demand.numa, np.array([row], dtype=np.intp), subsets_of(count))

    def _statuses(self, demand: Demand, rows: RowArray, count: int) -> Amounts | None:
        return self._columns.statuses(rows, count) if demand.request.exclusive_numa else None

    def _hints(
        self, shape: PodShape, table: NodeTable, policy: NUMAPolicy, rows: RowArray, subsets: Subsets
    ) -> list[ResourceHints]:
        return [
            hint for provider in self.providers(shape) for hint in provider.hints(shape, table, rows, subsets, policy)
        ]

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
