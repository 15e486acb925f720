"""Overlay: rows that read differently for one pod, such as nodes with a reservation that the pod may use.

It is one hypothesis in which all these rows differ, unlike dry runs, where each row is one of its own. A PreFilter
plugin says which pods count as away from a row, and which as there. The runtime applies this through the accountants
while it filters and scores the pod, so that every plugin sees it: PreFilter of those that are filters, too, is called
once more, for they may skip the pod here and not there. Only these rows leave the cached verdicts, and what
is found about them is never kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState

if TYPE_CHECKING:
    from koordsched.framework.interface import CycleState, PodFilter


class Overlay:
    """The differences, by row, in the order in which they were made."""

    __slots__ = ("_changes", "active", "facets")

    def __init__(self) -> None:
        self._changes: dict[int, list[tuple[Pod, int]]] = {}
        self.facets: dict[int, int] = {}
        """By row, what differs on it; known once it was applied."""
        self.active = False
        """Whether the table reads this way at the moment."""

    def without(self, row: int, pod: Pod) -> None:
        """The row reads as if this pod, which counts against it, were away."""
        self._changes.setdefault(row, []).append((pod, -1))

    def with_pod(self, row: int, pod: Pod) -> None:
        """The row reads as if this pod were there."""
        self._changes.setdefault(row, []).append((pod, 1))

    @property
    def rows(self) -> RowArray:
        """The rows that differ, in ascending order."""
        return np.array(sorted(self._changes), dtype=np.intp)

    def away(self, row: int) -> set[str]:
        """The uids of the pods that read as away from the row."""
        return {pod.uid for pod, sign in self._changes.get(row, ()) if sign < 0}

    def __bool__(self) -> bool:
        return bool(self._changes)

    def take_back(self, cycle: CycleState, filters: Sequence[PodFilter]) -> None:
        """The state of these filters, made inside the overlay, becomes that of the plain table."""
        for row, changes in self._changes.items():
            for other, sign in changes:
                for plugin in filters:
                    _tell(plugin, cycle, other, row, -sign)

    @contextmanager
    def applied(self, cluster: ClusterState, cycle: CycleState, filters: Sequence[PodFilter] = ()) -> Iterator[None]:
        """Inside, the table reads this way, and the cycle state of these filters agrees with it."""
        told: list[tuple[Pod, int, int]] = []
        with cluster.what_if() as hypothesis:
            self.active = True
            try:
                for row, changes in self._changes.items():
                    for other, sign in changes:
                        facets = hypothesis.add(other, row) if sign > 0 else hypothesis.remove(other, row)
                        self.facets[row] = self.facets.get(row, 0) | facets
                        for plugin in filters:
                            _tell(plugin, cycle, other, row, sign)
                        told.append((other, row, sign))
                yield
            finally:
                self.active = False
                for other, row, sign in reversed(told):
                    for plugin in filters:
                        _tell(plugin, cycle, other, row, -sign)

    @contextmanager
    def on_row(self, row: int, cluster: ClusterState) -> Iterator[None]:
        """Inside, this row of the table reads this way; cycle states stay as they are."""
        with cluster.what_if() as hypothesis:
            for other, sign in self._changes.get(row, ()):
                if sign > 0:
                    hypothesis.add(other, row)
                else:
                    hypothesis.remove(other, row)
            self.active = True
            try:
                yield
            finally:
                self.active = False


def _tell(plugin: PodFilter, cycle: CycleState, other: Pod, row: int, sign: int) -> None:
    if sign > 0:
        plugin.add_pod(cycle, cycle.pod, other, row)
    else:
        plugin.remove_pod(cycle, cycle.pod, other, row)
