"""The Reservations that the pod of a cycle may use, and what was decided about the rows that they are on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.interface import CycleState
from koordsched.framework.overlay import Overlay
from koordsched.framework.reservations import Reserved
from koordsched.framework.status import PASS, Codes, HeldReason
from koordsched.plugins.reservation.cache import ReservationCache
from koordsched.plugins.reservation.fitting import staying
from koordsched.plugins.reservation.info import ReservationInfo
from koordsched.plugins.reservation.messages import NodeCounts
from koordsched.plugins.reservation.stayers import Places, Stayers

Positions = npt.NDArray[np.intp]

_NO_ROWS = np.zeros(0, dtype=np.intp)
_NO_FLAGS = np.zeros(0, dtype=np.bool_)


class Diagnosis:
    """How many Reservations of one row have owners that match the pod, and how many the pod may not use, by cause."""

    __slots__ = (
        "affinity_unmatched",
        "name_matched",
        "name_unmatched",
        "not_exact",
        "owner_matched",
        "taints",
        "unschedulable",
    )

    def __init__(self) -> None:
        self.owner_matched = 0
        self.name_matched = 0
        self.name_unmatched = 0
        self.unschedulable = 0
        self.affinity_unmatched = 0
        self.not_exact = 0
        self.taints: dict[str, int] = {}

    def counts(self, refusals: Sequence[str]) -> NodeCounts:
        """For messages; `refusals`: why the filters refused the node."""
        return NodeCounts(
            self.owner_matched,
            self.name_matched,
            self.name_unmatched,
            self.affinity_unmatched,
            self.unschedulable,
            self.not_exact,
            self.taints,
            refusals,
        )


class Usable:
    """The Reservations that pods which are alike may use, by row, and what was decided about these rows.

    `by_row`: in the order of creation. `diagnosis`: of all whose owners match. `orders`: of rows where any has one, the
    smallest. `acting`: the rows where one is a pod. `serial`: of the change up to which all this is so. `verdicts`:
    int64[rows of the overlay, 3], the latest change of the row when it was decided about, the code of Filter, and how
    full the Reservation becomes that was chosen; `chosen`: which that is (None: none). `held`: reasons of such
    verdicts.
    """

    def __init__(self, plugin: str, serial: int) -> None:
        self.overlay = overlay = Overlay(plugin)
        self.serial = serial
        self.by_row: dict[int, list[ReservationInfo]] = {}
        self.diagnosis: dict[int, Diagnosis] = {}
        self.orders: dict[int, int] = {}
        self.acting: set[int] = set()
        self.verdicts = overlay.column(np.int64, width=3)
        self.chosen: dict[int, ReservationInfo | None] = {}
        self.held: dict[int, HeldReason] = {}

    def settle(self, row: int, cache: ReservationCache) -> None:
        """Other Reservations of the row may be used from now on."""
        self.orders.pop(row, None)
        self.acting.discard(row)
        infos = self.by_row.get(row, [])
        if any(info.acts for info in infos):
            self.acting.add(row)
        if not infos:
            self.held.pop(row, None)
            self.chosen.pop(row, None)
        if len(infos) > 1:
            infos.sort(key=lambda info: info.key)
        self.overlay.renew(row, [pod for info in infos if (pod := cache.reserve_pod(info)) is not None])
        if orders := [info.terms.order for info in infos if info.terms.order is not None]:
            self.orders[row] = min(orders)


Choose = Callable[[CycleState, int, Sequence[ReservationInfo], "MatchedReservations"], ReservationInfo | None]
"""The one of those on a row that the pod would use, as the table reads in the overlay of its cycle."""


class MatchedReservations:
    """Those that the pod of a cycle may use: `framework.reservations.UsableReservations`.

    `preferred`: the row of the smallest order, -1 if none has one.
    """

    def __init__(
        self, cluster: ClusterState, cache: ReservationCache, cycle: CycleState, choose: Choose, usable: Usable
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._cycle = cycle
        self._choose = choose
        self.usable = usable
        self.by_row = usable.by_row
        self.diagnosis = usable.diagnosis
        self.required = False
        self.ignored = False
        self.preferred = -1
        self._chosen: dict[int, ReservationInfo | None] = {}
        self.decided = False
        """Whether Filter decided about all rows that passed the filters before it."""
        self.stayers: Stayers | None = None
        """Pods that act as Reservations and stay in part, None if there are none."""
        self._few: dict[int, tuple[int, int]] | None = None
        """(code, score) of the rows that Filter decided about one by one, if it did."""
        self._rows = _NO_ROWS
        self._known = _NO_FLAGS
        """By position in `_rows`, whether Filter of this cycle knows the verdict."""

    # --- what Filter decides ---------------------------------------------------------------------------

    @property
    def decides(self) -> bool:
        """Whether verdicts hold until a row changes, as the table reads now."""
        cycle, overlay = self._cycle, self.usable.overlay
        return cycle.overlay is overlay and not cycle.may_be_suspended and overlay.undisturbed(self._cluster)

    def decide(
        self, rows: RowArray, judge: Callable[[int], tuple[int, int]]
    ) -> tuple[Positions, npt.NDArray[np.int64]]:
        """(positions of those of the rows that have usable ones, their codes). `rows` are in ascending order.

        `judge` finds (code, score) of a row, where that is not known yet.
        """
        mine, verdicts = self.usable.overlay.rows, self.usable.verdicts.data
        latest = self._cluster.table.log.latest[mine]
        known = verdicts[:, 0] == latest
        at, asked = _positions(rows, mine)
        for new in (asked > known).nonzero()[0].tolist():
            verdicts[new] = (latest.item(new), *judge(mine.item(new)))
            known[new] = True
        self._rows, self._known, self._few, self.decided = mine, known, None, True
        return at[asked], verdicts[asked, 1]

    def decide_few(
        self, reaches: Callable[[int], bool], judge: Callable[[int], tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """The same row by row, for few, of which nothing is kept: (row, code) of those that reach Filter and are
        refused."""
        few = {row: judge(row) for row in sorted(self.by_row) if reaches(row)}
        self._few, self.decided = few, True
        if self.stayers is not None:
            self.usable.verdicts.data[:, 0] = -1  # they depend on other rows, too: none is for another pod
        return [(row, code) for row, (code, _) in few.items() if code != PASS]

    def kept_scores(self, rows: RowArray) -> tuple[Positions, npt.NDArray[np.int64]]:
        """(positions of those of the rows that Filter decided about, their scores)."""
        if (few := self._few) is not None:
            mine = np.fromiter(few, np.intp, len(few))
            at, asked = _positions(rows, mine)
            return at[asked], np.fromiter((score for _, score in few.values()), np.int64, len(few))[asked]
        at, asked = _positions(rows, self._rows)
        asked &= self._known
        return at[asked], self.usable.verdicts.data[asked, 2]

    def scored_alone(self, codes: Codes) -> tuple[int, int] | None:
        """(row, score) if just one row was decided about, which is feasible and has a score other than 0."""
        if (few := self._few) is not None and len(few) == 1:
            for row, (_, score) in few.items():
                return (row, score) if score and codes.item(row) == PASS else None
        return None

    def scored(self, codes: Codes) -> tuple[RowArray, npt.NDArray[np.int64]]:
        """(feasible rows that have a score other than 0, the scores)."""
        if (few := self._few) is not None:
            found = [(row, score) for row, (_, score) in few.items() if score and codes.item(row) == PASS]
            return np.array([row for row, _ in found], np.intp), np.array([score for _, score in found], np.int64)
        scores = self.usable.verdicts.data[:, 2]
        some = (scores != 0) & self._known & (codes[self._rows] == PASS)
        return self._rows[some], scores[some]

    def _is_known(self, row: int) -> bool:
        if self._few is not None:
            return row in self._few
        at = int(self._rows.searchsorted(row))
        return at < len(self._rows) and self._rows.item(at) == row and self._known.item(at)

    def acting(self) -> Places:
        """Those of the pods that act as Reservations."""
        found = ((row, info) for row in sorted(self.usable.acting) for info in self.by_row[row] if info.acts)
        return [
            (row, pod, partial(_is_away, info))
            for row, info in found
            if (pod := self._cache.reserve_pod(info)) is not None
        ]

    def taken_with(self, info: ReservationInfo | None) -> Sequence[Pod]:
        """Those of them whose place the pod takes if it uses this Reservation."""
        pod = self._cache.reserve_pod(info) if info is not None and info.acts else None
        return (pod,) if pod is not None else ()

    def owners_that_stay(self, row: int, info: ReservationInfo) -> Sequence[Pod]:
        """Those of them on a row that use this Reservation themselves, which they do as long as they stay."""
        if row not in self.usable.acting:
            return ()
        allocated, found = self._cache.allocated, staying(self.by_row[row], info)
        pods = [pod for each in found if (pod := self._cache.reserve_pod(each)) is not None]
        return [pod for pod in pods if (used := allocated.of(pod)) is not None and used.uid == info.uid]

    def on(self, row: int) -> Sequence[Reserved]:
        """See UsableReservations."""
        return [reserved for info in self.by_row.get(row, ()) if (reserved := self.reserved(info)) is not None]

    def reserved(self, info: ReservationInfo) -> Reserved | None:
        """The Reservation as other plugins see it."""
        pod = self._cache.reserve_pod(info)
        return Reserved(pod, info.full_facts, info.restricted) if pod is not None else None

    def chosen(self, row: int) -> Reserved | None:
        """See UsableReservations."""
        info = self.chosen_info(row)
        return self.reserved(info) if info is not None else None

    def chosen_info(self, row: int) -> ReservationInfo | None:
        """The same as the cache has it; found out once."""
        if row not in self._chosen:
            infos = [] if self.ignored else self.by_row.get(row, [])
            if self._is_known(row):
                self._chosen[row] = self.usable.chosen.get(row)
            elif len(infos) < 1:
                self._chosen[row] = None
            elif len(infos) == 1 and self.required:
                self._chosen[row] = infos[0]
            else:
                with self.as_filtered(row):
                    self._chosen[row] = self._choose(self._cycle, row, infos, self)
        return self._chosen[row]

    def as_filtered(self, row: int) -> AbstractContextManager[object]:
        """Inside, the row reads as in Filter, also where that is over and the pod is on the row."""
        overlay = self._cycle.overlay
        assert overlay is not None, "rows with usable reservations are in the overlay"
        return nullcontext() if overlay.covers(row) else self._filtered_again(overlay, row)

    @contextmanager
    def _filtered_again(self, overlay: Overlay, row: int) -> Iterator[None]:
        pod = self._cycle.pod
        with self._cluster.what_if() as hypothesis:
            if pod.row == row:
                hypothesis.remove(pod, row)
            with overlay.on_row(row, self._cluster):
                yield

    @contextmanager
    def alone(self, row: int, reserved: Reserved | None) -> Iterator[None]:
        """See UsableReservations."""
        overlay = self._cycle.overlay
        active = overlay is not None and overlay.covers(row)
        with self._cluster.what_if() as hypothesis:
            if active:
                for other in self.on(row):
                    if reserved is None or other.pod is not reserved.pod:
                        hypothesis.add(other.pod, row)
            elif reserved is not None:
                hypothesis.remove(reserved.pod, row)
            yield


def _positions(rows: RowArray, mine: RowArray) -> tuple[Positions, npt.NDArray[np.bool_]]:
    """Of each of `mine`: (the position among the rows, whether it is there). Both are in ascending order."""
    if not len(rows):
        return np.zeros(len(mine), dtype=np.intp), np.zeros(len(mine), dtype=np.bool_)
    at = rows.searchsorted(mine)
    there: npt.NDArray[np.bool_] = rows.take(at, mode="clip") == mine
    return at, there


def _is_away(info: ReservationInfo) -> bool:
    return not info.counted
