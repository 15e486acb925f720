"""The plugin: hard constraints filter, soft ones score.

Source: upstream `podtopologyspread/{filtering,scoring}.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log

import numpy as np
import numpy.typing as npt

from koordsched.api.core import TopologySpreadConstraint
from koordsched.api.selectors import SelectorError
from koordsched.cluster.changelog import RowArray
from koordsched.cluster.columns import ABSENT, LabelColumn
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.config.plugin_args import PodTopologySpreadArgs
from koordsched.framework.dryruns import DryRunFilter
from koordsched.framework.handle import Handle
from koordsched.framework.interface import MAX_SCORE, CycleState, PodScore, PreFilter, PreFilterResult, Scores
from koordsched.framework.status import PASS, SKIP, SUCCESS, Code, Codes, Status
from koordsched.plugins.podtopologyspread.constraints import SOFT, Constraint, Spread, SpreadCompiler
from koordsched.plugins.podtopologyspread.dryrun import SpreadDryRun
from koordsched.plugins.podtopologyspread.hints import SpreadHints
from koordsched.plugins.podtopologyspread.owners import OwnerSelectors
from koordsched.plugins.shared.matching.rows import Mask
from koordsched.plugins.shared.podcounts.index import PodIndex
from koordsched.queue.hints import HintRegistration

REASON_SKEW = "node(s) didn't match pod topology spread constraints"
REASON_LABEL = f"{REASON_SKEW} (missing required label)"

HOSTNAME = "kubernetes.io/hostname"
SYSTEM_CONSTRAINTS = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SOFT),
    TopologySpreadConstraint(max_skew=5, topology_key="topology.kubernetes.io/zone", when_unsatisfiable=SOFT),
)

_NOTHING = Spread((), (), False)


Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int32]


class _CycleState:
    """The pod's constraints, and after `score` the rows that take part in it (None: all)."""

    __slots__ = ("scored", "spread")

    def __init__(self, spread: Spread) -> None:
        self.spread = spread
        self.scored: Mask | None = None


class PodTopologySpread(PreFilter, DryRunFilter, PodScore):
    """Refuses nodes in domains with too many pods of a kind; prefers those with few."""

    name = "PodTopologySpread"

    def __init__(self, args: PodTopologySpreadArgs | None, handle: Handle) -> None:
        """The arguments must be valid."""
        args = args or PodTopologySpreadArgs()
        self._system = (args.defaulting_type or "System") == "System"
        self._defaults = SYSTEM_CONSTRAINTS if self._system else args.default_constraints
        self._index = handle.cluster.shared(PodIndex)
        self._compiler = SpreadCompiler(self._index)
        self._owners = OwnerSelectors(handle.cluster) if self._defaults else None
        self._code_label = handle.reasons.intern(self.name, Code.UNRESOLVABLE, REASON_LABEL)
        self._code_skew = handle.reasons.intern(self.name, Code.UNSCHEDULABLE, REASON_SKEW)

    def _state(self, cycle: CycleState, pod: Pod) -> _CycleState:
        state: _CycleState | None = cycle.state.get(self)
        if state is None:
            state = cycle.state[self] = _CycleState(self.spread_of(pod))
        return state

    def spread_of(self, pod: Pod) -> Spread:
        """The pod's constraints, its own or else the defaults. Raises SelectorError."""
        if pod.shape.spec.topology_spread_constraints:
            return self._compiler.own(pod)
        if self._owners is None:
            return _NOTHING
        requirements = self._owners.requirements(pod)
        if not requirements:
            return _NOTHING
        return self._compiler.defaulted(pod, self._defaults, requirements, needs_all_keys=not self._system)

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """Pods that count coming, going or changing; nodes that change the domains."""
        return SpreadHints(self.name, self.spread_of).registrations()

    # --- filter ----------------------------------------------------------------------------------

    def pre_filter(self, cycle: CycleState, pod: Pod) -> PreFilterResult | Status:
        """SKIP without hard constraints."""
        try:
            return SUCCESS if self._state(cycle, pod).spread.hard else SKIP
        except SelectorError as error:
            return Status(Code.ERROR, (str(error),))

    def filter(self, cycle: CycleState, pod: Pod, table: NodeTable, rows: RowArray) -> Codes | None:
        """For each node the first constraint that it violates.

        Counts are read as they are now, so hypothetical pods need no state of their own: what-ifs tell the
        index of them.
        """
        self._index.topology.refresh()
        codes: Codes | None = None
        for constraint in self._state(cycle, pod).spread.hard:
            if constraint.key not in table.label_keys:
                missing = np.full(len(rows), self._code_label, dtype=np.int32)
                return missing if codes is None else np.where(codes == PASS, missing, codes)
            found = self._violations(constraint, pod, table, rows)
            if found is not None:
                codes = found if codes is None else np.where(codes == PASS, found, codes)
        return codes

    def dry_run(self, cycle: CycleState, pod: Pod, coming: Iterable[Pod]) -> SpreadDryRun:
        """See `framework.dryruns`."""
        hard = self._state(cycle, pod).spread.hard
        return SpreadDryRun(hard, pod, self._index, skew=self._code_skew, label=self._code_label)

    def _violations(self, constraint: Constraint, pod: Pod, table: NodeTable, rows: RowArray) -> Codes | None:
        ids = table.label_column(constraint.key).ids.data.take(rows)
        codes: Codes | None = None
        itself = 1 if constraint.selects(pod.labels.labels) else 0
        counter = constraint.counter(self._index)
        if counter is not None and (counter.total or constraint.max_skew < itself):
            domains = counter.domains(constraint.key, constraint.eligible)
            lowest = domains.lowest if len(domains.present) >= constraint.min_domains else 0
            crowded = domains.counts.take(ids) > constraint.max_skew + lowest - itself
            if crowded.any():
                codes = crowded * np.int32(self._code_skew)
        missing = ids == ABSENT
        if missing.any():
            codes = np.zeros(len(rows), dtype=np.int32) if codes is None else codes
            codes[missing] = self._code_label
        return codes

    # --- score -----------------------------------------------------------------------------------

    def abstains(self, cycle: CycleState, pod: Pod) -> bool:
        """Pods without soft constraints."""
        try:
            return not self._state(cycle, pod).spread.soft
        except SelectorError:
            return False

    def pre_score(self, cycle: CycleState, pod: Pod, rows: RowArray) -> Status:
        """SKIP without soft constraints."""
        try:
            return SUCCESS if self._state(cycle, pod).spread.soft else SKIP
        except SelectorError as error:
            return Status(Code.ERROR, (str(error),))

    def score(self, cycle: CycleState, pod: Pod, table: NodeTable, rows: RowArray) -> Scores:
        """The number of such pods in the node's domains, weighted by the logarithm of the number of domains; ignored
        nodes get 0.
        """
        self._index.topology.refresh()
        state = self._state(cycle, pod)
        spread = state.spread
        if spread.needs_all_keys and any(constraint.key not in table.label_keys for constraint in spread.soft):
            state.scored = np.zeros(len(rows), dtype=np.bool_)
            return np.zeros(len(rows), dtype=np.int64)
        columns = [table.label_column(constraint.key) for constraint in spread.soft]
        ids = [column.ids.data.take(rows) for column in columns]
        scored: Mask | None = None
        if spread.needs_all_keys:
            for values in ids:
                has_key = values != ABSENT
                scored = has_key if scored is None else scored & has_key
            if scored is not None and scored.all():
                scored = None
        state.scored = scored
        total = np.zeros(len(rows), dtype=np.float64)
        for constraint, column, values in zip(spread.soft, columns, ids, strict=True):
            if constraint.key == HOSTNAME:
                total += self._by_node(constraint, values, rows, scored)
            else:
                total += self._by_domain(constraint, column, values, scored)
        raw = np.floor(total + 0.5).astype(np.int64)
        if scored is not None:
            raw[~scored] = 0
        return raw

    def _by_node(self, constraint: Constraint, values: Ids, rows: RowArray, scored: Mask | None) -> Floats:
        """A host name constraint's part: the pods on the node itself, whatever the inclusion policies."""
        size = len(rows) if scored is None else int(np.count_nonzero(scored))
        counter = constraint.counter(self._index)
        counts = counter.by_row.take(rows) if counter is not None and counter.total else np.zeros(len(rows))
        part = counts * log(size + 2) + float(constraint.max_skew - 1)
        missing = values == ABSENT
        if missing.any():
            part[missing] = 0.0
        return np.asarray(part)

    def _by_domain(self, constraint: Constraint, column: LabelColumn, values: Ids, scored: Mask | None) -> Floats:
        """Any other constraint's part: the pods in the node's domain, 0 where the node is in none."""
        size = int(np.count_nonzero(np.bincount(values if scored is None else values[scored])))
        counter = constraint.counter(self._index)
        if counter is not None and counter.total:
            counts = counter.domains(constraint.key, constraint.eligible).counts
        else:
            counts = np.zeros(len(column.values), dtype=np.int64)
        part = counts * log(size + 2) + float(constraint.max_skew - 1)
        part[ABSENT] = 0.0
        return np.asarray(part.take(values))

    def normalize(self, cycle: CycleState, pod: Pod, scores: Scores) -> Scores:
        """Higher for fewer pods: 100 for the lowest raw score; 0 for ignored nodes."""
        assert not isinstance(scores, int), "score returns an array"
        scored = self._state(cycle, pod).scored
        counted = scores if scored is None else scores[scored]
        if not len(counted):
            return 0
        highest = int(counted.max())
        if highest == 0:
            return MAX_SCORE if scored is None else scored * MAX_SCORE
        normalized = MAX_SCORE * (highest + int(counted.min()) - scores) // highest
        if scored is not None:
            normalized[~scored] = 0
        return normalized
