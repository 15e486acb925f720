"""Dry runs: the verdicts on rows to which pods have come, or which they have left, each row independent of the others.

The same change on two rows is two dry runs. Shape plugins read their own row alone, so that all rows of
the live table can be changed at once for them. What a `DryRunFilter` reads of other rows it knows as sums of counts: it
gets by how much these differ on the row in question, and holds everything else as it is. So a dry run of preemption,
or a look at all nominated nodes, is a few operations on arrays instead of one what-if after the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import ALL_FACETS, NodeTable
from koordsched.cluster.pod import Pod
from koordsched.framework.interface import CycleState, PodFilter
from koordsched.framework.plan import ShapePlan
from koordsched.framework.status import PASS, Codes

Amounts = npt.NDArray[np.int64]


class Tally(NamedTuple):
    """Something that a filter counts of the pods on a row.

    `of`: how much a pod adds, which depends on nothing but its shape, namespace, labels and whether it is being
    deleted. Tallies of the same `identity` count the same, in every filter and at any time.
    """

    identity: Hashable
    of: Callable[[Pod], int]


class FilterDryRun(ABC):
    """The answers of one filter, for the pod of one cycle; valid until anything changes."""

    tallies: Sequence[Tally] = ()
    one_by_one: Tally | None = None
    """Counts the pods that matter to the filter by more than a tally: a row to which one comes, or which one leaves,
    needs a what-if, one row at a time; None if there are no such pods.
    """
    one_by_one_in_doubt: Tally | None = None
    """The same, but a pod that leaves makes a difference only where the verdict is `in_doubt`."""

    @abstractmethod
    def filter(self, table: NodeTable, rows: RowArray, changes: Sequence[Amounts]) -> Codes | None:
        """A reason number per row, 0 where it passes; None if all pass.

        `changes`: per tally, by how much each row differs from what it is.
        """

    def in_doubt(self, table: NodeTable, rows: RowArray) -> npt.NDArray[np.bool_]:
        """bool[rows]: where another verdict is possible without some of the pods that `one_by_one_in_doubt` counts.

        Default: where it refuses now.
        """
        codes = self.filter(table, rows, ())
        return np.zeros(len(rows), dtype=np.bool_) if codes is None else np.asarray(codes != PASS)


class DryRunFilter(PodFilter):
    """A filter that can answer for many dry runs at once."""

    @abstractmethod
    def dry_run(self, cycle: CycleState, pod: Pod, coming: Iterable[Pod]) -> FilterDryRun:
        """The same verdicts as `filter` in what-ifs. `coming`: all pods that may come to one of the rows."""


class PodIndependent(FilterDryRun):
    """A filter to which other pods do not matter, other than those that are dry-run one by one."""

    def __init__(
        self,
        plugin: PodFilter,
        cycle: CycleState,
        pod: Pod,
        *,
        one_by_one: Tally | None = None,
        one_by_one_in_doubt: Tally | None = None,
    ) -> None:
        self._plugin = plugin
        self._cycle = cycle
        self._pod = pod
        self.one_by_one = one_by_one
        self.one_by_one_in_doubt = one_by_one_in_doubt

    def filter(self, table: NodeTable, rows: RowArray, changes: Sequence[Amounts]) -> Codes | None:
        """The verdicts of the plugin itself."""
        return self._plugin.filter(self._cycle, self._pod, table, rows)


class ChainDryRun:
    """All filters of a pod.

    `tallies`: of all of them, in order; `one_by_one`: of the pods whose rows need a what-if each.
    """

    def __init__(
        self,
        plan: ShapePlan,
        table: NodeTable,
        steps: Sequence[tuple[FilterDryRun, Callable[[Codes], npt.NDArray[np.bool_]]]],
    ) -> None:
        """`steps`: the dry run of each filter, and which rows reach it by the codes so far."""
        self._plan = plan
        self._table = table
        self._steps = steps
        self.tallies: tuple[Tally, ...] = tuple(tally for dry_run, _ in steps for tally in dry_run.tallies)
        self.one_by_one = tuple(
            tally
            for dry_run, _ in steps
            for tally in (dry_run.one_by_one, dry_run.one_by_one_in_doubt)
            if tally is not None
        )

    def tallied(self, pods: Sequence[Sequence[Pod]]) -> list[Amounts]:
        """Per tally, how much the pods of each group add to it."""
        sums = [np.zeros(len(pods), dtype=np.int64) for _ in self.tallies]
        known: dict[tuple[object, ...], list[tuple[int, int]]] = {}
        for i, group in enumerate(pods):
            for pod in group:
                kind = (pod.shape, pod.namespace, pod.labels, pod.deleting)
                counted = known.get(kind)
                if counted is None:
                    amounts = [(k, tally.of(pod)) for k, tally in enumerate(self.tallies)]
                    counted = known[kind] = [(k, amount) for k, amount in amounts if amount]
                for k, amount in counted:
                    sums[k][i] += amount
        return sums

    def any_one_by_one(self, pods: Iterable[Pod]) -> bool:
        """Whether one of these pods makes its row need a what-if."""
        return any(tally.of(pod) for pod in pods for tally in self.one_by_one)

    def apart(self, rows: RowArray, leaves: Callable[[Tally], npt.NDArray[np.bool_]]) -> npt.NDArray[np.bool_]:
        """Which rows need a what-if each. `leaves`: where pods that a tally counts may leave."""
        apart: npt.NDArray[np.bool_] = np.zeros(len(rows), dtype=np.bool_)
        for dry_run, _ in self._steps:
            if dry_run.one_by_one is not None:
                apart |= leaves(dry_run.one_by_one)
            at = np.flatnonzero(leaves(dry_run.one_by_one_in_doubt)) if dry_run.one_by_one_in_doubt is not None else ()
            if len(at):
                apart[at] |= dry_run.in_doubt(self._table, rows[at])
        return apart

    def nodes(self, rows: RowArray, facets: int = ALL_FACETS) -> Codes:
        """The verdict on each row of the shape plugins that read one of the facets, as the table reads now."""
        return self._plan.filter_nodes(self._table, rows, facets)

    def refuse(self, codes: Codes, rows: RowArray, changes: Sequence[Amounts]) -> None:
        """Adds to the codes of shape plugins what the others say with these changes to their tallies."""
        start = 0
        for dry_run, reached_by in self._steps:
            own = changes[start : start + len(dry_run.tallies)]
            start += len(dry_run.tallies)
            at = np.flatnonzero(reached_by(codes))
            if not len(at):
                continue
            if len(at) == len(rows):
                verdicts = dry_run.filter(self._table, rows, own)
            else:
                verdicts = dry_run.filter(self._table, rows[at], [change[at] for change in own])
            if verdicts is not None:
                rejected = verdicts != PASS
                codes[at[rejected]] = verdicts[rejected]
