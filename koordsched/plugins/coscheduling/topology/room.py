"""Pods put on many rows of the live table at once, and taken off again: for counting how many fit.

Every row is a hypothesis of its own, on which the same pods come one after the other. What filters read of the pods on
a row (its sums) is changed on all rows by one operation per column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from koordsched.cluster.accounting import Amount, ColumnAccountant
from koordsched.cluster.changelog import RowArray
from koordsched.cluster.columns import Column
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.cluster.ports import HostPorts, shape_ports
from koordsched.cluster.resources import FIRST_SCALAR


class Room:
    """For judging pods of one kind: room for what these request, host ports, and the columns of some accountants.

    `facets`: what the pods that come change, besides host ports.
    """

    def __init__(self, table: NodeTable, judged: Pod, accountants: Sequence[ColumnAccountant]) -> None:
        self._table = table
        # The native ones in any case: some filters refuse overcommitted nodes whatever a pod requests.
        wanted = dict.fromkeys([*range(FIRST_SCALAR), *(index for index, _ in judged.requests.amounts)])
        self._resources = [index for index in wanted if index < len(table.requested)]
        self._accountants = accountants
        self._columns: list[Column] = [table.pods_count, *(table.requested[index] for index in self._resources)]
        for accountant in accountants:
            self._columns.extend(accountant.columns())
        self._before: list[tuple[RowArray, list[npt.NDArray[Any]]]] = []
        self._judged_ports = shape_ports(judged.shape)
        self._own_ports = HostPorts()
        """Those of the pods that came, on row 0: they are the same on all rows."""
        self._pods_with_ports: list[Pod] = []
        self._ports_done: list[tuple[int, Pod]] = []

    def amounts(self, pod: Pod) -> list[Amount]:
        """What a pod adds to each column. May widen columns: to be called before the first pod comes."""
        found: list[Amount] = [1, *(pod.requests.get(index) for index in self._resources)]
        for accountant in self._accountants:
            own = accountant.amounts(pod)
            found.extend(own if own is not None else [0] * len(accountant.columns()))
        return found

    def save(self, rows: RowArray) -> None:
        """What is changed from now on is on these rows alone."""
        self._before.append((rows, [column.data[rows] for column in self._columns]))

    def add(self, rows: RowArray, amounts: Sequence[Amount], number: int = 1) -> None:
        """So many pods with these amounts come to each of the rows."""
        for column, amount in zip(self._columns, amounts, strict=True):
            if isinstance(amount, np.ndarray):
                column.data[rows, : len(amount)] += number * amount
            elif amount:
                column.data[rows] += number * amount

    def add_ports(self, row: int, pod: Pod) -> None:
        """The host ports of a pod that comes to one row."""
        if ports := shape_ports(pod.shape):
            self._table.ports.add(row, ports)
            self._ports_done.append((row, pod))

    def note_ports(self, pod: Pod) -> None:
        """A pod with these host ports has come to all rows."""
        if ports := shape_ports(pod.shape):
            self._own_ports.add(0, ports)
            self._pods_with_ports.append(pod)

    def ports_clash(self) -> bool:
        """Whether a pod that has come to all rows has a host port that the judged ones need."""
        return bool(self._judged_ports and self._own_ports.conflicts(self._judged_ports))

    def show_ports(self, rows: RowArray) -> None:
        """The rows read as if the host ports of the pods that have come were taken. Only needed if they clash: then
        none of the rows is left afterwards, so this is done once."""
        for pod in self._pods_with_ports:
            for row in rows.tolist():
                self.add_ports(row, pod)

    def restore(self) -> None:
        """Everything is as it was."""
        while self._before:
            rows, before = self._before.pop()
            for column, data in zip(self._columns, before, strict=True):
                column.data[rows] = data
        while self._ports_done:
            row, pod = self._ports_done.pop()
            self._table.ports.add(row, shape_ports(pod.shape), -1)
