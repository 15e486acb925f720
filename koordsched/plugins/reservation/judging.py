"""Filter on the rows where a pod may use Reservations, or take pods over: the code of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.framework.interface import CycleState
from koordsched.framework.status import PASS, Codes, HeldReason, ReasonTable, Status
from koordsched.plugins.reservation.choosing import Choosing
from koordsched.plugins.reservation.fitting import utilization
from koordsched.plugins.reservation.matched import MatchedReservations
from koordsched.plugins.reservation.preallocation import PreAllocatable, PreAllocation
from koordsched.plugins.reservation.stayers import Stayers

FEW = 8
"""Rows up to which it is cheaper to look at each."""


class Judging:
    """`plugin`: the name of ours. Reasons are held as long as the cycle: their texts may have amounts in them."""

    def __init__(self, plugin: str, reasons: ReasonTable, choosing: Choosing, pre_allocation: PreAllocation) -> None:
        self._plugin = plugin
        self._reasons = reasons
        self._choosing = choosing
        self._pre_allocation = pre_allocation

    def matched(self, cycle: CycleState, pod: Pod, rows: RowArray, codes: Codes, matched: MatchedReservations) -> None:
        """Adds the codes of rows with Reservations that the pod may use."""
        if matched.decides:
            where, found = matched.decide(rows, lambda row: self._judge(cycle, pod, row, matched))
            codes[where] = found
            self._hold(cycle, matched.usable.held.values())
        else:
            for at, row in among(rows, matched):
                codes[at] = self._code_of(cycle, pod, row, matched)

    def beside(
        self, cycle: CycleState, pod: Pod, rows: RowArray, codes: Codes, matched: MatchedReservations, stayers: Stayers
    ) -> None:
        """The same where pods stay that act as Reservations: what they have may matter on any row."""
        with stayers.asked() as takes_part:
            if not takes_part or not matched.decides:
                self.matched(cycle, pod, rows, codes, matched)
            else:
                mine = {row: at for at, row in among(rows, matched)}
                refused = dict(self.few(cycle, pod, mine.__contains__, matched))
                for row, at in mine.items():
                    codes[at] = refused.get(row, PASS)
            if takes_part and not matched.required:
                others = np.isin(rows, np.fromiter(matched.by_row, dtype=np.intp), invert=True)
                self._add_stayers(cycle, rows, codes, np.flatnonzero(others), stayers)

    def ignoring(self, cycle: CycleState, rows: RowArray, codes: Codes, stayers: Stayers) -> None:
        """The same for a pod that ignores Reservations: it has the place of all pods that act as such on its row, and
        those on other rows stay."""
        with stayers.asked() as takes_part:
            if takes_part:
                by_row = stayers.by_row()
                others = np.isin(rows, np.fromiter(by_row, dtype=np.intp), invert=True)
                self._add_stayers(cycle, rows, codes, np.flatnonzero(others), stayers)
                for at in np.flatnonzero(~others).tolist():
                    self._add_stayers(cycle, rows, codes, np.array([at]), stayers, by_row[int(rows[at])])

    def few(
        self, cycle: CycleState, pod: Pod, reaches: Callable[[int], bool], matched: MatchedReservations
    ) -> list[tuple[int, int]]:
        """(row, code) of those that are refused, one by one."""
        refused = matched.decide_few(reaches, lambda row: self._judge(cycle, pod, row, matched))
        self._hold(cycle, matched.usable.held.values())
        return refused

    def taking(self, cycle: CycleState, rows: RowArray, codes: Codes, taking: PreAllocatable, stayers: Stayers) -> None:
        """Adds the codes of rows with pods that a Reservation may take over, and of those where these matter as long as
        they stay."""
        with stayers.asked() as takes_part:
            for at in np.flatnonzero(codes == PASS).tolist():
                row = int(rows[at])
                status = self._pre_allocation.fit(cycle, row, taking) if row in taking.by_row else None
                if status is not None:
                    codes[at] = self._code(cycle, status)
            if takes_part:
                others = np.isin(rows, np.fromiter(taking.by_row, dtype=np.intp), invert=True)
                self._add_stayers(cycle, rows, codes, np.flatnonzero(others & (codes == PASS)), stayers)

    def _add_stayers(
        self,
        cycle: CycleState,
        rows: RowArray,
        codes: Codes,
        at: RowArray,
        stayers: Stayers,
        taken: Sequence[Pod] = (),
    ) -> None:
        codes[at] = found = stayers.codes(rows[at], taken)
        self._hold(cycle, stayers.held(found))

    def _judge(self, cycle: CycleState, pod: Pod, row: int, matched: MatchedReservations) -> tuple[int, int]:
        """(code, score) of a row, with the Reservation that the pod would use there: as long as the row is the same."""
        usable, infos = matched.usable, matched.by_row[row]
        status = None
        with matched.as_filtered(row):
            chosen = self._choosing.choose(cycle, row, infos, matched)
            if chosen is None:
                status = self._choosing.why_not(cycle, pod, row, infos, infos, matched, required=matched.required)
        if matched.required and len(infos) == 1:
            chosen = infos[0]
        usable.chosen[row] = chosen
        usable.held.pop(row, None)
        score = utilization(pod, chosen) if chosen is not None else 0
        if status is None:
            return PASS, score
        held = usable.held[row] = self._held(status)
        return held.number, score

    def _code_of(self, cycle: CycleState, pod: Pod, row: int, matched: MatchedReservations) -> int:
        infos = matched.by_row[row]
        status = self._choosing.why_not(cycle, pod, row, infos, infos, matched, required=matched.required)
        if status is not None:
            return self._code(cycle, status)
        if matched.stayers is not None:
            # Now: filters that are asked once more would see in Reserve what is reserved for the pod by then.
            matched.chosen_info(row)
        return PASS

    def _code(self, cycle: CycleState, status: Status) -> int:
        held = self._held(status)
        self._hold(cycle, (held,))
        return held.number

    def _hold(self, cycle: CycleState, reasons: Collection[HeldReason]) -> None:
        if reasons:
            cycle.state.setdefault((self._plugin, "reasons"), []).extend(reasons)

    def _held(self, status: Status) -> HeldReason:
        return self._reasons.hold(status.plugin or self._plugin, status.code, *status.reasons)


def among(rows: RowArray, matched: MatchedReservations) -> Iterator[tuple[int, int]]:
    """(position, row) of those of the rows that have Reservations which the pod may use."""
    if len(matched.by_row) <= FEW:
        for row in matched.by_row:
            for at in np.flatnonzero(rows == row).tolist():
                yield at, row
        return
    positions = np.flatnonzero(np.isin(rows, np.fromiter(matched.by_row, dtype=np.intp)))
    yield from zip(positions.tolist(), rows[positions].tolist(), strict=True)
