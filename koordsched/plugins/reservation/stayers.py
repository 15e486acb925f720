"""Pods whose place the pod of a cycle may take, and that stay where they are unless it does: those that act as
Reservations, and those that a Reservation may take over.

In the pod's overlay all of them are away, with their labels, ports, disks and claims, so that it finds the place of
any. It does not take all: what other filters say is asked again with the others there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.framework.besides import AskedAnew
from koordsched.framework.handle import Handle
from koordsched.framework.interface import CycleState
from koordsched.framework.status import PASS, Codes, HeldReason, Status

Places = Sequence[tuple[int, Pod, Callable[[], bool]]]
"""(row, pod, whether it is away from the row as the table reads now) of each of them."""


class Stayers:
    """Those of one cycle. `plugin`: the name of ours, which is not asked again."""

    def __init__(self, plugin: str, handle: Handle, cycle: CycleState, places: Places) -> None:
        self._plugin = plugin
        self._handle = handle
        self._reasons = handle.reasons
        self._cycle = cycle
        self._places = places
        self._asked: AskedAnew | None = None

    @contextmanager
    def asked(self) -> Iterator[bool]:
        """Inside, PreFilter is asked once; other pods stay where they are meanwhile. Gives whether there is any filter
        to which other pods matter."""
        if self._asked is not None:
            yield self._asked.takes_part
            return
        with self._there(()):
            self._asked = self._handle.filtering.asked_anew(self._cycle, self._plugin)
        try:
            yield self._asked.takes_part
        finally:
            self._asked = None

    def codes(self, rows: RowArray, taken: Sequence[Pod] = ()) -> Codes:
        """What the filters say of rows if all are there but those whose place the pod takes. To be called inside
        `asked`, as long as which the codes are valid."""
        asked = self._asked
        assert asked is not None, "inside `asked`"
        if not asked.takes_part:
            return np.zeros(len(rows), dtype=np.int32)
        with self._there(taken), ExitStack() as gone:
            for row, pod, _ in self._places:
                if pod in taken:
                    gone.enter_context(asked.gone(row, pod))
            return asked.filter(rows)

    def by_row(self) -> dict[int, list[Pod]]:
        """All of them, by the row that they are on."""
        found: dict[int, list[Pod]] = {}
        for row, pod, _ in self._places:
            found.setdefault(row, []).append(pod)
        return found

    def refusal(self, row: int, taken: Sequence[Pod] = ()) -> Status | None:
        """Why the pod cannot be on the row if it takes these places, None if it can."""
        if len(self._places) == len(taken):
            return None  # as in the overlay
        with self.asked():
            code = int(self.codes(np.array([row], dtype=np.intp), taken)[0])
            if code == PASS:
                return None
            reason = self._reasons[code]
            return Status(reason.code, reason.texts, reason.plugin)

    def held(self, codes: Codes) -> list[HeldReason]:
        """What keeps the reasons of these codes beyond `asked`."""
        reasons = [self._reasons[code] for code, _ in self._reasons.counted(codes)]
        return [self._reasons.hold(reason.plugin, reason.code, *reason.texts) for reason in reasons]

    def matter(self, coming: Iterable[Pod]) -> bool:
        """Whether any filter takes part, or could with these pods on their rows."""
        with self.asked() as takes_part:
            return takes_part or any(True for _ in coming)

    @contextmanager
    def _there(self, taken: Sequence[Pod]) -> Iterator[None]:
        with self._handle.cluster.what_if() as hypothesis:
            for row, pod, away in self._places:
                if pod in taken:
                    if not away():
                        hypothesis.remove(pod, row)
                elif away():
                    hypothesis.add(pod, row)
            yield
