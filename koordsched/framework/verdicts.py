"""What PreFilter and Filter found out about a pod: which nodes are left, and why the others are not."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.framework.evaluation import Evaluation
from koordsched.framework.interface import PodFilter
from koordsched.framework.plan import ShapePlan
from koordsched.framework.status import PASS, SUCCESS, Codes, HeldReason


class PreFiltered:
    """What the PreFilter plugins left: a rejection, or the candidates and the filters that take part.

    `names`: the only nodes that are candidates, None for all; `named_by`: the plugins that restricted them.
    `skipped`: plugins that said Skip in this cycle. `reason`: holds the number that the verdicts have by `status`.
    `alone`: the pod filters that take part, with their positions, where none but that of the plugin that made the
    overlay looks at more than single rows; else None.
    """

    __slots__ = ("alone", "named_by", "names", "reason", "skipped", "status")

    def __init__(self, skipped: Iterable[str]) -> None:
        self.status = SUCCESS
        self.reason: HeldReason | None = None
        self.names: frozenset[str] | None = None
        self.named_by: list[str] = []
        self.skipped = set(skipped)
        self.alone: list[tuple[int, PodFilter]] | None = None


class Verdicts:
    """The verdict on every row.

    `codes`: int32[rows], 0 where feasible (shared with the cache: read only); `feasible`: how many rows that are;
    `evaluation`: the cached scores that go with `codes`, None when the codes are not those of the cache; `wider`: then
    perhaps the cache for a superset of the feasible rows. Without either, totals have to be computed for `rows`.
    `alone`: the feasible node was tried first; others were not asked.
    """

    __slots__ = ("_rows", "alone", "codes", "evaluation", "feasible", "plan", "pre_filtered", "wider")

    def __init__(
        self,
        codes: Codes,
        plan: ShapePlan,
        pre_filtered: PreFiltered,
        *,
        evaluation: Evaluation | None = None,
        wider: Evaluation | None = None,
    ) -> None:
        self.codes = codes
        self.plan = plan
        self.pre_filtered = pre_filtered
        self.evaluation = evaluation
        self.feasible = evaluation.feasible if evaluation is not None else int(np.count_nonzero(codes == PASS))
        self.wider = wider
        self.alone = False
        self._rows: RowArray | None = None

    @property
    def rows(self) -> RowArray:
        """The feasible rows."""
        if self._rows is None:
            self._rows = np.flatnonzero(self.codes == PASS)
        return self._rows
