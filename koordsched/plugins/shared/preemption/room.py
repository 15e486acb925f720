"""What the potential victims of many rows take of their nodes, put off and back on in the live table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from koordsched.cluster.accounting import ColumnAccountant
from koordsched.cluster.changelog import Facet, RowArray
from koordsched.cluster.columns import Column
from koordsched.cluster.nodetable import MOST_REQUESTED, NodeTable
from koordsched.cluster.pod import Pod
from koordsched.cluster.ports import shape_ports
from koordsched.plugins.shared.preemption.kinds import KindArray, PodKinds
from koordsched.plugins.shared.preemption.victims import PotentialVictims

Nominated = Sequence[tuple[int, Sequence[Pod]]]
"""Positions among the rows, and the pods nominated there."""


class _Books:
    """Some columns, and what the pods of each kind add to them: arrays [kinds] or [kinds, width].

    `counts`: bool[kinds], whether they add anything; None if all do.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        tables: Sequence[npt.NDArray[Any]],
        counts: npt.NDArray[np.bool_] | None,
        rows: RowArray,
    ) -> None:
        # Pods that hold GPUs mostly hold no FPGAs: what none adds to is left alone.
        touched = [at for at, table in enumerate(tables) if table.any()]
        self._columns = [columns[at].data for at in touched]
        self._tables = [tables[at] for at in touched]
        self._counts = counts
        self._rows = rows
        self._before = [data[rows] for data in self._columns]

    def add(self, rows: RowArray, kinds: KindArray, sign: int) -> None:
        """A pod comes to each of these rows (1) or leaves it (-1); no row may be named twice."""
        if self._counts is not None:
            counted = self._counts[kinds]
            if not counted.all():
                rows, kinds = rows[counted], kinds[counted]
        for data, table in zip(self._columns, self._tables, strict=True):
            if sign > 0:
                data[rows] += table.take(kinds, axis=0)
            else:
                data[rows] -= table.take(kinds, axis=0)

    def leave(self, kinds: KindArray) -> None:
        """Pods leave all rows: [depth, rows]."""
        if not len(kinds):
            return
        for data, table in zip(self._columns, self._tables, strict=True):
            if table.ndim == 1:
                data[self._rows] -= table[kinds].sum(axis=0, dtype=table.dtype)
                continue
            total = table.take(kinds[0], axis=0)
            for of_step in kinds[1:]:
                total += table.take(of_step, axis=0)
            data[self._rows] -= total

    def restore(self) -> None:
        for data, before in zip(self._columns, self._before, strict=True):
            data[self._rows] = before


class Room:
    """Room, host ports and the columns of some accountants, on the rows of potential victims.

    `facets`: all that it changes.
    """

    def __init__(
        self,
        table: NodeTable,
        pod: Pod,
        potential: PotentialVictims,
        kinds: PodKinds,
        nominated: Nominated,
        accountants: Sequence[ColumnAccountant],
        *,
        ports: bool,
    ) -> None:
        """`nominated`: to be there as well; `ports`: whether host ports matter."""
        self._table = table
        self._potential = potential
        self._examples = kinds.examples
        # Before anything is asked by kind: these pods may be of new kinds.
        self._nominated = [(i, [kinds.of(other)]) for i, others in nominated for other in others]
        resources = [index for index, _ in pod.requests.amounts if index < len(table.requested)]
        columns = [table.pods_count, *(table.requested[index] for index in resources)]
        amounts = [kinds.amounts(index) for index in resources]
        weights = [kinds.ones, *amounts]
        self._amounts = dict(zip(resources, amounts, strict=True))
        self._books = [_Books(columns, weights, None, potential.rows)]
        self.facets: int = Facet.RESOURCES | Facet.PORTS
        for accountant in accountants:
            self.facets |= accountant.facets
            added = kinds.column_amounts(accountant)  # may widen the columns
            self._books.append(_Books(accountant.columns(), added.tables, added.counts, potential.rows))
        self._with_ports: npt.NDArray[np.bool_] | None = kinds.with_ports if ports else None
        self._ports_done: list[tuple[int, Pod, int]] = []

    def enter(self) -> None:
        """All potential victims are gone, and the nominated pods are there."""
        rows = self._potential.rows
        for books in self._books:
            books.leave(self._potential.kinds)
        self._correct_saturated()
        for of_step in self._potential.kinds:
            self._change_ports(rows, of_step, -1)
        for i, kind in self._nominated:
            self._change(rows[i : i + 1], np.array(kind, dtype=np.int32), 1)

    def _correct_saturated(self) -> None:
        """Sums that were larger than their column holds: what is left of them may fit into it."""
        for (index, row), total in self._table.beyond.items():
            for at in np.flatnonzero(self._potential.rows == row).tolist() if index in self._amounts else ():
                leaving = sum(self._amounts[index][self._potential.kinds[:, at]].tolist())
                self._table.requested[index].data[row] = min(total - leaving, MOST_REQUESTED)

    def step(self, step: int, at: RowArray, sign: int) -> None:
        """The pods of a step come back (1) or leave again (-1) at these positions."""
        self._change(self._potential.rows[at], self._potential.kinds[step, at], sign)

    def _change(self, rows: RowArray, kinds: KindArray, sign: int) -> None:
        for books in self._books:
            books.add(rows, kinds, sign)
        self._change_ports(rows, kinds, sign)

    def _change_ports(self, rows: RowArray, kinds: KindArray, sign: int) -> None:
        if self._with_ports is None:
            return
        for i in np.flatnonzero(self._with_ports[kinds]).tolist():
            pod = self._examples[kinds[i]]
            assert pod is not None, "a kind with ports is a pod"
            self._table.ports.add(int(rows[i]), shape_ports(pod.shape), sign)
            self._ports_done.append((int(rows[i]), pod, sign))

    def restore(self) -> None:
        """Everything is as it was."""
        for books in self._books:
            books.restore()
        while self._ports_done:
            row, pod, sign = self._ports_done.pop()
            self._table.ports.add(row, shape_ports(pod.shape), -sign)
