"""Overlay: rows that read differently for one pod, such as nodes with a reservation that the pod may use.

It is one hypothesis in which all these rows differ, unlike dry runs, where each row is one of its own. A PreFilter
plugin says which pods count as away from a row, and which as there. The runtime applies this through the accountants
while it filters and scores the pod, so that every plugin sees it: PreFilter of those that are filters, too, is called
once more, for they may skip the pod here and not there. Only these rows leave the cached verdicts.

A plugin may hand the same overlay to many cycles, for pods that are alike. Then what is found about its rows is kept
with it until a row changes, and only rows that changed are applied, as long as no plugin looks at all rows at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState

if TYPE_CHECKING:
    from koordsched.framework.interface import CycleState, PodFilter
    from koordsched.framework.keptrows import KeptRows


class Overlay:
    """The differences, by row, in the order in which they were made.

    `decided_by`: the plugin that made it, takes pods away only, and has decided in Filter all that it wants to know of
    these rows; "" if others have to be asked with all rows applied. `lasting`: later cycles get it, too.
    """

    __slots__ = ("_changes", "_columns", "_covered", "_level", "_sorted", "decided_by", "facets", "kept", "lasting")

    def __init__(self, decided_by: str = "") -> None:
        self._changes: dict[int, list[tuple[Pod, int]]] = {}
        self._columns: list[OverlayColumn] = []
        self._sorted: RowArray | None = None
        self._covered: Collection[int] = ()
        self._level = 0
        self.decided_by = decided_by
        self.lasting = False
        self.facets: dict[int, int] = {}
        """By row, what differs on it; known once it was applied."""
        self.kept: KeptRows | None = None

    def without(self, row: int, pod: Pod) -> None:
        """The row reads as if this pod, which counts against it, were away."""
        self._change(row, pod, -1)

    def with_pod(self, row: int, pod: Pod) -> None:
        """The row reads as if this pod were there."""
        self._change(row, pod, 1)

    def _change(self, row: int, pod: Pod, sign: int) -> None:
        changes = self._changes.get(row)
        if changes is None:
            self._changes[row] = [(pod, sign)]
            self._regroup()
        else:
            changes.append((pod, sign))

    def renew(self, row: int, away: Sequence[Pod]) -> None:
        """The row reads as if these pods alone were away; without any, as it is."""
        if not away:
            if self._changes.pop(row, None) is not None:
                self._regroup()
            return
        known = row in self._changes
        self._changes[row] = [(pod, -1) for pod in away]
        if not known:
            self._regroup()

    def added_to(self, other: Overlay | None) -> Overlay:
        """This one; where there is another already, that one with the same differences as well, for one cycle."""
        if other is None:
            return self
        both = Overlay()
        for row, changes in (*other._changes.items(), *self._changes.items()):
            for pod, sign in changes:
                both._change(row, pod, sign)
        return both

    # --- rows ----------------------------------------------------------------------------------------

    @property
    def rows(self) -> RowArray:
        """The rows that differ, in ascending order. Not to be changed by the caller."""
        if self._sorted is None:
            self._sorted = np.array(sorted(self._changes), dtype=np.intp)
        return self._sorted

    def column(self, dtype: npt.DTypeLike, width: int = 0) -> OverlayColumn:
        """A number for each of the rows (or some), 0 for those that are new."""
        column = OverlayColumn(self, dtype, width)
        self._columns.append(column)
        return column

    def _regroup(self) -> None:
        """Other rows differ from now on: those that stay keep their numbers."""
        if self._sorted is not None:
            for column in self._columns:
                column.follow(self._sorted)
            self._sorted = None

    def away(self, row: int) -> set[str]:
        """The uids of the pods that read as away from the row."""
        return {pod.uid for pod, sign in self._changes.get(row, ()) if sign < 0}

    def __bool__(self) -> bool:
        return bool(self._changes)

    # --- applied -------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether any row of the table reads this way at the moment."""
        return bool(self._covered)

    def covers(self, row: int) -> bool:
        """Whether this row of the table reads this way at the moment."""
        return row in self._covered

    def undisturbed(self, cluster: ClusterState) -> bool:
        """Whether the table reads this way and no what-if is under way beside it: then verdicts may be kept."""
        return cluster.table.hypothetical == self._level

    def take_back(self, cycle: CycleState, filters: Sequence[PodFilter]) -> None:
        """The state of these filters, made inside the overlay, becomes that of the plain table."""
        for row, changes in self._changes.items() if filters else ():
            for other, sign in changes:
                for plugin in filters:
                    _tell(plugin, cycle, other, row, -sign)

    def applied(
        self,
        cluster: ClusterState,
        cycle: CycleState,
        filters: Sequence[PodFilter] = (),
        rows: Iterable[int] | None = None,
    ) -> AbstractContextManager[None]:
        """Inside, the table reads this way, and the cycle state of these filters agrees with it.

        `rows`: only these of the rows that differ; None: all.
        """
        return _Applied(self, cluster, cycle, filters, self._changes if rows is None else dict.fromkeys(rows))

    @contextmanager
    def on_row(self, row: int, cluster: ClusterState) -> Iterator[None]:
        """Inside, this row of the table reads this way, too; cycle states stay as they are."""
        with cluster.what_if() as hypothesis:
            for other, sign in self._changes.get(row, ()):
                if sign > 0:
                    hypothesis.add(other, row)
                else:
                    hypothesis.remove(other, row)
            before, self._covered = self._covered, {*self._covered, row}
            try:
                yield
            finally:
                self._covered = before


class _Applied:
    """`Overlay.applied`: a class, for most cycles with an overlay are short, and generators take their time."""

    __slots__ = ("_before", "_covered", "_cycle", "_filters", "_overlay", "_told", "_what_if")

    def __init__(
        self,
        overlay: Overlay,
        cluster: ClusterState,
        cycle: CycleState,
        filters: Sequence[PodFilter],
        covered: Collection[int],
    ) -> None:
        self._overlay = overlay
        self._cycle = cycle
        self._filters = filters
        self._covered = covered
        self._what_if = cluster.what_if()
        self._before: Collection[int] = ()
        self._told: list[tuple[PodFilter, Pod, int, int]] = []

    def __enter__(self) -> None:
        overlay, what_if = self._overlay, self._what_if.__enter__()
        self._before = overlay._covered
        overlay._covered, overlay._level = self._covered, what_if.level
        try:
            for row in self._covered:
                differing = 0
                for other, sign in overlay._changes[row]:
                    differing |= what_if.add(other, row) if sign > 0 else what_if.remove(other, row)
                    for plugin in self._filters:
                        _tell(plugin, self._cycle, other, row, sign)
                        self._told.append((plugin, other, row, sign))
                overlay.facets[row] = differing
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self._overlay._covered, self._overlay._level = self._before, 0
            for plugin, other, row, sign in reversed(self._told):
                _tell(plugin, self._cycle, other, row, -sign)
        finally:
            self._what_if.__exit__()


class OverlayColumn:
    """A number for each row of an overlay, or `width` of them."""

    __slots__ = ("_data", "_dtype", "_overlay", "_rows", "_shape")

    def __init__(self, overlay: Overlay, dtype: npt.DTypeLike, width: int = 0) -> None:
        self._overlay = overlay
        self._dtype = dtype
        self._shape = (width,) if width else ()
        self._data: npt.NDArray[Any] | None = None
        self._rows: RowArray | None = None

    @property
    def data(self) -> npt.NDArray[Any]:
        """In the order of `Overlay.rows`, valid until those change."""
        if self._data is None:
            self._data = np.zeros((len(self._overlay.rows), *self._shape), dtype=self._dtype)
        elif self._rows is not None:
            rows, before, old = self._overlay.rows, self._rows, self._data
            self._data, self._rows = np.zeros((len(rows), *self._shape), dtype=self._dtype), None
            _, at, at_before = np.intersect1d(rows, before, assume_unique=True, return_indices=True)
            self._data[at] = old[at_before]
        return self._data

    def follow(self, rows: RowArray) -> None:
        """The rows are going to change; these they are as yet."""
        if self._data is not None and self._rows is None:
            self._rows = rows


def _tell(plugin: PodFilter, cycle: CycleState, other: Pod, row: int, sign: int) -> None:
    if sign > 0:
        plugin.add_pod(cycle, cycle.pod, other, row)
    else:
        plugin.remove_pod(cycle, cycle.pod, other, row)
