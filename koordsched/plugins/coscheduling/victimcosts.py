"""What evicting the potential victims of a row costs: of rows that would do, job preemption takes the cheapest.

The cost of what is on the row is upstream's (coscheduling spec 3.8, step 8). A gang that would be left with fewer than
its minimum goes as a whole, so the pods that it has elsewhere are added, each with the rank of its priority plus one:
both their number and their priorities count. Budgets, where they are honoured, count for all of these pods and before
all else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Handle
from koordsched.plugins.coscheduling.cache import GangCache
from koordsched.plugins.coscheduling.gang import Gang
from koordsched.plugins.coscheduling.kinds import QUESTIONED_OBJECT_KEY
from koordsched.plugins.coscheduling.topology.tree import Amounts
from koordsched.plugins.shared.matching.lookup import Lookup
from koordsched.plugins.shared.preemption.budgets import Budgets
from koordsched.plugins.shared.preemption.kinds import PodKinds
from koordsched.plugins.shared.preemption.victims import Mask, PotentialVictims, VictimTable

_NONE = -1


@dataclass(slots=True, eq=False)
class _Torn:
    """Gangs that go as a whole if all potential victims of a row do; one entry per row and gang.

    `at`: the position of the row; `gang`: its number; `elsewhere`: what its pods on other rows cost; `breaking`: how
    many of those break a budget.
    """

    at: RowArray
    gang: npt.NDArray[np.int64]
    elsewhere: Amounts
    breaking: Amounts

    def without(self, gangs: Iterable[int]) -> _Torn:
        """The same, but for these gangs."""
        left = ~np.isin(self.gang, list(gangs))
        return _Torn(self.at[left], self.gang[left], self.elsewhere[left], self.breaking[left])


class RowCosts:
    """`costs`: int64[rows], of rows in the order in which they were given."""

    def __init__(self, base: Amounts, broken: Amounts, torn: _Torn, numbers: Mapping[str, int]) -> None:
        """`broken`: int64[rows], how many pods on the row break a budget."""
        self._base = base
        self._broken = broken
        self._torn = torn
        self._numbers = numbers
        self.costs = self._summed()

    def gone(self, gangs: Iterable[Gang]) -> bool:
        """These gangs go in any case: what they have elsewhere costs no row any more. Whether that makes a
        difference.
        """
        numbers = {self._numbers[gang.id] for gang in gangs if gang.id in self._numbers}
        if not np.isin(self._torn.gang, list(numbers)).any():
            return False
        self._torn = self._torn.without(numbers)
        self.costs = self._summed()
        return True

    def _summed(self) -> Amounts:
        costs, broken, torn = self._base.copy(), self._broken.copy(), self._torn
        np.add.at(costs, torn.at, torn.elsewhere)
        np.add.at(broken, torn.at, torn.breaking)
        summed: Amounts = costs + broken * (costs.max(initial=0) + 1)
        return summed


class VictimCosts:
    """The costs for the jobs of one profile."""

    def __init__(self, handle: Handle, cache: GangCache, victims: VictimTable, budgets: Budgets | None) -> None:
        """`budgets`: None if they are not honoured."""
        self._table = handle.cluster.table
        self._now = handle.clock.wall
        self._cache = cache
        self._victims = victims
        self._budgets = budgets
        self._jobs: dict[str, int] = {}
        self._gangs: dict[str, int] = {}
        self._known: tuple[PodKinds, Lookup[Pod | None], Lookup[Pod | None]] | None = None

    def of(self, rows: RowArray, priority: int) -> RowCosts:
        """`rows`: where some pod is less important than `priority`; ascending."""
        now = self._now()
        where = np.flatnonzero(self._table.alive.data[: self._table.size]) if self._cache.gangs else rows
        everywhere = self._victims.potential(where, priority, now)
        here = np.searchsorted(where, rows)
        numbers = everywhere.kinds[: int(everywhere.counts[here].max(initial=0)), here]
        kinds = self._victims.kinds
        jobs, gangs = self._numbered(kinds)
        listed = np.unique(kinds.priorities[numbers[numbers > 0]])
        ranks = np.searchsorted(listed, kinds.priorities)
        costs = _by_first(numbers, jobs[numbers], ranks)
        broken = self._broken(everywhere, kinds, priority, now)
        torn = self._torn(everywhere.kinds, here, gangs, ranks, broken)
        of_rows = np.count_nonzero(broken[:, here], axis=0) if broken is not None else np.zeros_like(costs)
        return RowCosts(costs, of_rows, torn, self._gangs)

    def _numbered(self, kinds: PodKinds) -> tuple[Amounts, Amounts]:
        """By kind, the numbers of its job and of its gang; _NONE for none."""
        if self._known is None or self._known[0] is not kinds:
            self._jobs, self._gangs = {}, {}
            self._known = kinds, kinds.lookup(self._job_of), kinds.lookup(self._gang_of)
        _, jobs, gangs = self._known
        jobs.refresh()
        gangs.refresh()
        return jobs.verdicts, gangs.verdicts

    def _job_of(self, pod: Pod) -> int:
        name = pod.labels.labels.get(QUESTIONED_OBJECT_KEY, "")
        return self._jobs.setdefault(name, len(self._jobs)) if name else _NONE

    def _gang_of(self, pod: Pod) -> int:
        gang_id = self._cache.gang_id(pod)
        return self._gangs.setdefault(gang_id, len(self._gangs)) if gang_id is not None else _NONE

    def _broken(self, potential: PotentialVictims, kinds: PodKinds, priority: int, now: float) -> Mask | None:
        """bool[depth, rows]: whose eviction breaks a budget; None for none."""
        if self._budgets is None:
            return None
        rows = potential.rows
        return self._budgets.broken_in(potential, kinds, lambda i: self._victims.pods(int(rows[i]), priority, now))

    def _torn(
        self, kinds: npt.NDArray[np.int32], here: RowArray, gangs: Amounts, ranks: Amounts, broken: Mask | None
    ) -> _Torn:
        """`kinds`: of the potential victims everywhere; `here`: the columns of the rows in question; `broken`: like
        `kinds`, bool.
        """
        count = len(self._gangs)
        member = np.where(kinds > 0, gangs[kinds], _NONE)
        depth, at = np.nonzero(member[:, here] != _NONE)
        if not len(at):
            return _Torn(at, at.astype(np.int64), at.astype(np.int64), at.astype(np.int64))
        everywhere = member != _NONE
        total = np.bincount(member[everywhere], weights=(ranks[kinds] + 1)[everywhere], minlength=count)
        pairs, of_pair = np.unique(at * count + member[:, here][depth, at], return_inverse=True)
        row, gang = pairs // count, pairs % count
        on_row = np.bincount(of_pair)
        worth = np.bincount(of_pair, weights=ranks[kinds[:, here][depth, at]] + 1)
        placed, minimum, breaking = self._sizes(np.unique(gang), count)
        left = placed[gang] - on_row
        torn = (left > 0) & (left < minimum[gang])
        more = breaking[gang]
        if broken is not None:
            more = more - np.bincount(of_pair, weights=broken[:, here][depth, at])
        elsewhere = (total[gang] - worth)[torn].astype(np.int64)
        return _Torn(row[torn], gang[torn], elsewhere, np.maximum(more, 0)[torn].astype(np.int64))

    def _sizes(self, wanted: npt.NDArray[np.int64], count: int) -> tuple[Amounts, Amounts, Amounts]:
        """By number, for the gangs that are wanted: how many pods are placed, the minimum, how many pods break a budget
        if all go.
        """
        placed, minimum, breaking = (np.zeros(count, dtype=np.int64) for _ in range(3))
        ids = list(self._gangs)
        for number in wanted.tolist():
            gang = self._cache.gangs.get(ids[number])
            if gang is None or gang.options is None:
                continue
            pods = gang.placed()
            placed[number], minimum[number] = len(pods), gang.options.min
            if self._budgets is not None and len(pods) > 1:
                breaking[number] = sum(self._budgets.broken_by(pods))
        return placed, minimum, breaking


def _by_first(kinds: npt.NDArray[np.int32], jobs: Amounts, ranks: Amounts) -> Amounts:
    """int64[rows]: over the jobs on a row, the rank of the first pod of each. Arrays are [depth, rows]."""
    costs = np.zeros(kinds.shape[1], dtype=np.int64)
    if len(kinds) and (jobs[kinds > 0] == _NONE).all():
        return np.where(kinds[0] > 0, ranks[kinds[0]], 0)  # all are one job
    for depth in range(len(kinds)):
        first = (kinds[depth] > 0) & ~((jobs[:depth] == jobs[depth]) & (kinds[:depth] > 0)).any(axis=0)
        costs += np.where(first, ranks[kinds[depth]], 0)
    return costs


def reprieve_order(
    victims: Sequence[Pod], gangs: Iterable[tuple[Gang, Sequence[Pod]]], budgets: Budgets | None
) -> list[Pod]:
    """The victims of a row in the order in which they are let stay, if there is room: by priority, job and name
    (coscheduling spec 3.8, step 11).

    A pod whose gang goes with it is as important as the most important of these, and comes before others that are as
    important. `gangs`: those that go if all victims do, each with its other pods. Where budgets are honoured, pods come
    first whose eviction, or that of the others of their gang, breaks one.
    """
    heights: dict[str, int] = {}
    others: dict[str, Sequence[Pod]] = {}
    for gang, rest in gangs:
        highest = max(pod.priority for pod in rest)
        for uid in chain(gang.bound, gang.waiting):
            heights[uid], others[uid] = highest, rest

    def order(pod: Pod) -> tuple[int, bool, str, str, str]:
        height = max(pod.priority, heights.get(pod.uid, pod.priority))
        job = pod.labels.labels.get(QUESTIONED_OBJECT_KEY, "")
        return -height, pod.uid not in heights, job, pod.name, pod.namespace

    ordered = sorted(victims, key=order)
    if budgets is None:
        return ordered
    everyone = {pod.uid: pod for victim in ordered for pod in (victim, *others.get(victim.uid, ()))}
    broken = {uid for uid, breaks in zip(everyone, budgets.broken_by(list(everyone.values())), strict=True) if breaks}
    protected = {
        pod.uid for pod in ordered if pod.uid in broken or any(each.uid in broken for each in others.get(pod.uid, ()))
    }
    return sorted(ordered, key=lambda pod: pod.uid not in protected)
