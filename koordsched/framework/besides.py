"""The filters that look at other pods, asked for a second time in a cycle whose table reads differently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.framework.interface import CycleState, PodFilter, PreFilter
from koordsched.framework.overlay import Overlay
from koordsched.framework.plan import ShapePlan
from koordsched.framework.status import PASS, Code, Codes, HeldReason, ReasonTable, Status


class AskedAnew:
    """The pod filters of a cycle with state of their own, from PreFilter on; that of the cycle stays as it is.

    Made inside a what-if, it answers for the table as it reads there. `without`: the name of a plugin that is not
    asked.
    """

    def __init__(
        self, cycle: CycleState, plan: ShapePlan, table: NodeTable, reasons: ReasonTable, without: str
    ) -> None:
        self._cycle = anew = replace(cycle, overlay=Overlay(), state=dict(cycle.state), timed=None)
        self._table = table
        self._filters: Sequence[PodFilter] = ()
        self._refused: HeldReason | None = None
        skipped = {without}
        for name, step in plan.pre_filters:
            if name == without or not isinstance(step, PreFilter) or not isinstance(step, PodFilter):
                continue
            answer = step.pre_filter(anew, cycle.pod) if not step.skips(cycle.pod) else None
            if answer is None or (isinstance(answer, Status) and answer.code is Code.SKIP):
                skipped.add(name)
            elif isinstance(answer, Status) and not answer.ok:
                self._refused = reasons.hold(answer.plugin or name, answer.code, *answer.reasons)
        prepared = {name for name, _ in plan.pre_filters} - skipped
        self._filters = [plugin for _, plugin in plan.pod_filters if plugin.name in prepared]

    @property
    def takes_part(self) -> bool:
        """Whether any of them has a say."""
        return bool(self._filters) or self._refused is not None

    def filter(self, rows: RowArray) -> Codes:
        """The code of the first of them that refuses each row, PASS where none does. The codes are valid as long as
        this object is there."""
        codes = np.full(len(rows), PASS if self._refused is None else self._refused.number, dtype=np.int32)
        for plugin in self._filters if self._refused is None else ():
            at = np.flatnonzero(codes == PASS)
            verdicts = plugin.filter(self._cycle, self._cycle.pod, self._table, rows[at]) if len(at) else None
            if verdicts is not None:
                codes[at] = verdicts
        return codes

    @contextmanager
    def gone(self, row: int, other: Pod) -> Iterator[None]:
        """Inside, and inside a what-if in which this pod has left the row, they know that it has."""
        for plugin in self._filters:
            plugin.remove_pod(self._cycle, self._cycle.pod, other, row)
        try:
            yield
        finally:
            for plugin in self._filters:
                plugin.add_pod(self._cycle, self._cycle.pod, other, row)
