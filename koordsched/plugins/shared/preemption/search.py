"""Dry runs on rows, taken from results that are known already, made in lockstep, or one by one where filters require
it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Handle
from koordsched.framework.interface import CycleState
from koordsched.framework.status import Codes
from koordsched.plugins.shared.preemption.budgets import SAFE, Budgets
from koordsched.plugins.shared.preemption.candidates import (
    NOT_STARTED,
    PRIORITY_OFFSET,
    VERDICT,
    Candidate,
    Verdicts,
    verdicts_of,
)
from koordsched.plugins.shared.preemption.dryrun import DryRun
from koordsched.plugins.shared.preemption.kinds import PodKinds
from koordsched.plugins.shared.preemption.lockstep import Lockstep
from koordsched.plugins.shared.preemption.remembered import NO_BUDGET, RememberedRuns, Stamps
from koordsched.plugins.shared.preemption.victims import Mask, PotentialVictims, VictimTable, victim_table

_LOWEST = int(np.iinfo(np.int64).min)


class Found(NamedTuple):
    """What dry runs found out about rows. `victims(i)`: who leaves the i-th row, most important first."""

    rows: RowArray
    verdicts: Verdicts
    victims: Callable[[int], tuple[Pod, ...]]


class Search:
    """The dry runs of one profile."""

    def __init__(self, handle: Handle, spares: Callable[[Pod], bool] | None = None) -> None:
        """`spares`: pods that are never victims."""
        self._handle = handle
        cluster = handle.cluster
        self._table = victim_table(cluster, spares)
        self._budgets: Budgets = cluster.shared(Budgets)
        self._remembered = RememberedRuns(cluster.table, handle.nominations)

    def of(self, cycle: CycleState) -> Decision:
        """The dry runs for the pod of a cycle; until anything changes."""
        return Decision(cycle, self._handle, self._table, self._budgets, self._remembered)


class Decision:
    """The dry runs for one pod."""

    def __init__(
        self, cycle: CycleState, handle: Handle, table: VictimTable, budgets: Budgets, remembered: RememberedRuns
    ) -> None:
        self._cycle = cycle
        self._pod = cycle.pod
        self._handle = handle
        self._table = table
        self._budgets = budgets
        self._remembered = remembered
        self._now = handle.clock.wall()

    @cached_property
    def _lockstep(self) -> Lockstep:
        """Made when there are potential victims: in a full cluster, most pods have the same priority."""
        return Lockstep(self._handle.cluster, self._handle.filtering, self._cycle)

    @cached_property
    def _lasting(self) -> bool:
        """Whether what is found may be remembered: where other nodes matter, every decision changes it.

        Rows of an overlay read differently for this pod alone.
        """
        return not self._cycle.overlay and not self._handle.filtering.pod_filters(self._cycle)

    def on(self, rows: RowArray) -> tuple[Found, int]:
        """The results for rows with pods of lower priority, in the order of the rows, and how many have none."""
        some = self._table.counts(rows, self._pod.priority, self._now) > 0
        overlaid = np.isin(rows, self._cycle.overlay.rows) if self._cycle.overlay else np.zeros_like(some)
        some[overlaid] = [bool(self._pods(row)) for row in rows[overlaid].tolist()]
        missing = len(rows) - int(np.count_nonzero(some))
        rows, overlaid = rows[some], overlaid[some]
        if not len(rows) or not self._lockstep.applies:
            return self._one_by_one(rows), missing
        if self._lasting:
            return self._remembered_or_new(rows), missing
        # A pod that is away from a row for this pod cannot leave it, and the table of victims does not know that.
        apart = overlaid
        if self._lockstep.any_one_by_one:
            potential = self._table.potential(rows, self._pod.priority, self._now)
            apart = apart | self._lockstep.apart(potential, self._table.kinds)
        if not apart.any():
            return self._in_lockstep(rows, None), missing
        return _merged(rows, apart, self._one_by_one(rows[apart]), self._in_lockstep(rows[~apart], None)), missing

    def _pods(self, row: int) -> list[Pod]:
        away = self._cycle.overlay.away(row) if self._cycle.overlay else None
        if not away:
            return self._table.pods(row, self._pod.priority, self._now)
        # Pods that are away cannot leave; those that use what these hold make room for this pod if they leave.
        pods = self._handle.cluster.pods_on(row).values()
        return [
            pod
            for pod in pods
            if pod.priority < self._pod.priority and pod.uid not in away and self._table.may_leave(pod, away)
        ]

    def _one_by_one(self, rows: RowArray) -> Found:
        dry_run = DryRun(self._handle.cluster, self._handle.filtering, self._budgets)
        results = [dry_run.on(self._cycle, row, self._pods(row), self._now) for row in rows.tolist()]

        def victims(i: int) -> tuple[Pod, ...]:
            result = results[i]
            return result.victims if isinstance(result, Candidate) else ()

        return Found(rows, verdicts_of(results), victims)

    def _remembered_or_new(self, rows: RowArray) -> Found:
        pod, remembered = self._pod, self._remembered
        nominations = self._handle.filtering.nomination_stamps(pod)
        stamps = remembered.stamps(pod, nominations, self._budget_versions(rows))
        known, verdicts = remembered.of(pod, rows, stamps)
        old = Found(rows[known], verdicts[known], self._remembered_on(rows[known]))
        return old if known.all() else _merged(rows, known, old, self._in_lockstep(rows[~known], stamps))

    def _remembered_on(self, rows: RowArray) -> Callable[[int], tuple[Pod, ...]]:
        def victims(i: int) -> tuple[Pod, ...]:
            row = int(rows[i])
            pods = self._pods(row)
            return tuple(pods[k] for k in self._remembered.victims(self._pod, row))

        return victims

    def _budget_versions(self, rows: RowArray) -> npt.NDArray[np.int64]:
        """By row, the version of the budgets where they protect a pod of these rows, otherwise NO_BUDGET."""
        versions = np.full(self._handle.cluster.table.size, NO_BUDGET, dtype=np.int64)
        if self._budgets.states(self._table.kinds) is None:
            return versions
        potential = self._table.potential(rows, self._pod.priority, self._now)
        states = self._budgets.states(self._table.kinds)
        if states is not None:
            versions[rows[(states[potential.kinds] != SAFE).any(axis=0)]] = self._budgets.version
        return versions

    def _in_lockstep(self, rows: RowArray, stamps: Stamps | None) -> Found:
        """With `stamps`, what is found is remembered."""
        potential = self._table.potential(rows, self._pod.priority, self._now)
        kinds = self._table.kinds
        broken = self._budgets.broken_in(potential, kinds, lambda i: self._pods(int(rows[i])))
        if broken is None:
            codes, leaving, _ = self._lockstep.on(potential, kinds)
        else:
            # Those whose eviction breaks a budget come back first.
            order = np.argsort(~broken, axis=0, kind="stable")
            codes, in_order, _ = self._lockstep.on(potential.reordered(order), kinds)
            leaving = np.zeros_like(in_order)
            np.put_along_axis(leaving, order, in_order, axis=0)
        verdicts = _verdicts(potential, kinds, codes, leaving, broken)
        if stamps is not None:
            lasting = self._table.lasting(rows)
            self._remembered.keep(self._pod, rows[lasting], stamps, verdicts[lasting], leaving[:, lasting])

        def victims(i: int) -> tuple[Pod, ...]:
            pods = self._pods(int(rows[i]))
            return tuple(pods[k] for k in np.flatnonzero(leaving[:, i]))

        return Found(rows, verdicts, victims)


def _merged(rows: RowArray, of_a: Mask, a: Found, b: Found) -> Found:
    """The results of all rows, some of them from `a`, the others from `b`."""
    verdicts: Verdicts = np.zeros(len(rows), dtype=VERDICT)
    verdicts[of_a], verdicts[~of_a] = a.verdicts, b.verdicts
    position = np.where(of_a, np.cumsum(of_a), np.cumsum(~of_a)) - 1

    def victims(i: int) -> tuple[Pod, ...]:
        return (a if of_a[i] else b).victims(int(position[i]))

    return Found(rows, verdicts, victims)


def _verdicts(
    potential: PotentialVictims, kinds: PodKinds, codes: Codes, leaving: Mask, broken: Mask | None
) -> Verdicts:
    """`leaving`, `broken`: bool[depth, rows], in the order of importance."""
    verdicts: Verdicts = np.zeros(len(potential.rows), dtype=VERDICT)
    verdicts["code"] = codes
    priorities = kinds.priorities[potential.kinds]
    if broken is not None:
        verdicts["violations"] = np.count_nonzero(leaving & broken, axis=0)
    highest = np.where(leaving, priorities, _LOWEST).max(axis=0, initial=_LOWEST)
    verdicts["highest"] = highest
    verdicts["total"] = np.where(leaving, priorities + PRIORITY_OFFSET, 0).sum(axis=0)
    verdicts["victims"] = np.count_nonzero(leaving, axis=0)
    of_highest = leaving & (priorities == highest)
    verdicts["earliest"] = np.where(of_highest, potential.starts, NOT_STARTED).min(axis=0, initial=NOT_STARTED)
    verdicts["waiting"] = (of_highest & (potential.starts == NOT_STARTED)).any(axis=0)
    return verdicts
