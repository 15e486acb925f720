"""The plugin: nodes that are used too much are refused, the least used are preferred.

Source: koordinator `plugins/loadaware/load_aware.go`; loadaware spec 3.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.framework.explaining import ExplainsNodes
from koordsched.framework.handle import Handle
from koordsched.framework.interface import (
    MAX_SCORE,
    CycleState,
    MeasuringFilter,
    Reserve,
    Scores,
    ShapePreFilter,
    ShapeScore,
)
from koordsched.framework.status import PASS, SUCCESS, Code, Codes, Status
from koordsched.plugins.loadaware.args import LoadAwareSchedulingArgs
from koordsched.plugins.loadaware.columns import EXPIRED, PLAIN, PROD
from koordsched.plugins.loadaware.estimation import Vector
from koordsched.plugins.loadaware.explanation import Explainer
from koordsched.plugins.loadaware.loads import LOAD_EASED, Easing, Loads
from koordsched.plugins.shared.matching.rows import refused_row, single
from koordsched.queue.hints import HintRegistration, QueueingHint, Scope

REASON_EXPIRED = "node(s) nodeMetric expired"


class LoadAwareScheduling(ShapePreFilter, MeasuringFilter, ShapeScore, Reserve, ExplainsNodes):
    """Filters and scores by what nodes use, pods included that no measurement can contain yet."""

    name = "LoadAwareScheduling"

    def __init__(self, args: LoadAwareSchedulingArgs, handle: Handle) -> None:
        """The arguments must be valid, with defaults filled in."""
        self.loads = handle.cluster.shared(lambda cluster: Loads(cluster, args, handle), (Loads, repr(args)))
        self._columns = self.loads.columns
        self.facets = self._columns.facet
        intern = handle.reasons.intern
        self._expired = intern(self.name, Code.UNSCHEDULABLE, REASON_EXPIRED)
        self._exceeded = np.array(
            [
                [
                    intern(self.name, Code.UNSCHEDULABLE, f"node(s) {resource} {kind}usage exceed threshold")
                    for kind in ("", "aggregated ")
                ]
                for resource in self.loads.resources
            ],
            dtype=np.int32,
        )
        """int32[resources, 2]: the reasons."""
        self._no_amounts: Vector = (0,) * len(self.loads.resources)
        self._weights = tuple(args.resource_weights.get(resource, 0) for resource in self.loads.resources)
        self._dominant_weight = args.dominant_resource_weight
        self._weight_sum = sum(self._weights) + self._dominant_weight
        self._explainer = Explainer(self.loads, scores_prod=args.score_according_prod_usage)
        self._names = handle.cluster.table.names

    # --- filter ----------------------------------------------------------------------------------

    def pre_filter_shape(self, shape: PodShape) -> Status:
        """Nothing is known from the pod alone."""
        return SUCCESS

    def filter_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Codes | None:
        """Refuses nodes of which some resource would be used beyond its threshold, or whose report has expired."""
        estimate = self.loads.estimator.of(shape)
        if estimate.exempt:
            return None
        kind = PROD if estimate.prod else PLAIN
        amounts = estimate.amounts or self._no_amounts
        row, columns = single(rows), self._columns
        if row >= 0:
            at = first_exceeded(columns.room(row, kind), amounts)
            if at < 0:
                return None
            if columns.gate.data.item(row, kind) == EXPIRED:
                return refused_row(self._expired)
            return refused_row(self._exceeded.item(at, int(columns.aggregated.data.item(row, kind))))
        exceeded = columns.rooms(rows, kind) < np.array(amounts, dtype=np.int64)
        refused = exceeded.any(axis=1)
        if not refused.any():
            return None
        reasons = self._exceeded[exceeded.argmax(axis=1), columns.aggregated.data[rows, kind].astype(np.int8)]
        codes: Codes = np.where(refused, reasons, np.int32(PASS))
        codes[columns.gate.data[rows, kind] == EXPIRED] = self._expired
        return codes

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """Loads that fall: by a report, by a deleted pod, by other thresholds, or because the node is new."""
        return [HintRegistration(self.name, LOAD_EASED, self._after_easing, Scope.SHAPE)]

    def _after_easing(self, pod: Pod, old: None, new: Easing) -> QueueingHint:
        if new.loads is not self.loads:
            return QueueingHint.SKIP  # of a plugin with other arguments
        estimate = self.loads.estimator.of(pod.shape)
        kind = PROD if estimate.prod else PLAIN
        amounts = estimate.amounts or self._no_amounts
        helps = first_exceeded(new.before[kind], amounts) >= 0 > first_exceeded(new.after[kind], amounts)
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    # --- score -----------------------------------------------------------------------------------

    def score_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Scores:
        """0..100: the weighted mean of the shares that stay unused; 0 where nothing is known."""
        estimate = self.loads.estimator.of(shape)
        amounts = estimate.amounts
        if amounts is None or not self._weight_sum:
            return 0
        kind = PROD if estimate.prod else PLAIN
        columns, row = self._columns, single(rows)
        if row >= 0:
            return self._score_one(columns.left(row, kind), columns.total.data[row].tolist(), amounts)
        total = columns.total.data[rows]
        left = columns.lefts(rows, kind) - np.array(amounts, dtype=np.int64)
        scores = np.where((total > 0) & (left >= 0), left * MAX_SCORE // np.maximum(total, 1), 0)
        weighted = scores @ np.array(self._weights, dtype=np.int64)
        if self._dominant_weight:
            weighted += np.minimum(scores.min(axis=1), MAX_SCORE) * self._dominant_weight
        found: npt.NDArray[np.int64] = weighted // self._weight_sum
        return found

    def _score_one(self, left: list[int], whole: list[int], amounts: Vector) -> int:
        weighted, scarcest = 0, MAX_SCORE
        for free, amount, total, weight in zip(left, amounts, whole, self._weights, strict=True):
            rest = free - amount
            score = rest * MAX_SCORE // total if total > 0 and rest >= 0 else 0
            weighted += score * weight
            if score < scarcest:
                scarcest = score
        return (weighted + scarcest * self._dominant_weight) // self._weight_sum

    # --- reserve ---------------------------------------------------------------------------------

    def reserve(self, cycle: CycleState, pod: Pod, row: int) -> Status:
        """The pod counts since it was assumed."""
        return SUCCESS

    def unreserve(self, cycle: CycleState, pod: Pod, row: int) -> None:
        """It counts until it is forgotten."""

    # --- explanations ------------------------------------------------------------------------------

    def explain_nodes(self, shape: PodShape, rows: RowArray) -> list[list[str]]:
        """What is measured and expected, and what is allowed."""
        return [self._explainer.explain(shape, self._names[row]) for row in rows.tolist()]

    def refuses_idle(self, shape: PodShape, row: int) -> bool:
        """Whether the pod alone is expected to use more than the threshold."""
        return self._explainer.refuses_idle(shape, self._names[row])

    def remedy(self, shape: PodShape, row: int) -> str:
        """How much less must be in use."""
        return self._explainer.remedy(shape, self._names[row])


def first_exceeded(room: list[int], amounts: Vector) -> int:
    """The first resource of which a pod is expected to use more than there is room for; -1 if there is none."""
    for at, (free, amount) in enumerate(zip(room, amounts, strict=True)):
        if amount > free:
            return at
    return -1
