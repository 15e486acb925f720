"""The plugin: required terms filter, preferred ones score, in both directions.

Source: upstream `interpodaffinity/{filtering,scoring}.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from koordsched.api.selectors import SelectorError
from koordsched.cluster.changelog import RowArray
from koordsched.cluster.columns import ABSENT
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.config.plugin_args import InterPodAffinityArgs
from koordsched.framework.dryruns import DryRunFilter
from koordsched.framework.handle import Handle
from koordsched.framework.interface import MAX_SCORE, CycleState, PodScore, PreFilter, PreFilterResult, Scores
from koordsched.framework.status import PASS, SKIP, SUCCESS, Code, Codes, Status
from koordsched.plugins.interpodaffinity.dryrun import AffinityDryRun
from koordsched.plugins.interpodaffinity.existing import ExistingTerms, TermKind
from koordsched.plugins.interpodaffinity.hints import AffinityHints
from koordsched.plugins.interpodaffinity.incoming import IncomingCompiler, IncomingTerms
from koordsched.plugins.shared.matching.rows import Mask
from koordsched.plugins.shared.podcounts.index import PodIndex
from koordsched.plugins.shared.podcounts.rowcounts import Counts, DomainCounts, RowCounts
from koordsched.queue.hints import HintRegistration

REASON_AFFINITY = "node(s) didn't match pod affinity rules"
REASON_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
REASON_EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"


class _CycleState:
    """The pod's own terms (None if it has none), and after `pre_score` what each domain is worth, per label key."""

    __slots__ = ("terms", "worth")

    def __init__(self, terms: IncomingTerms | None) -> None:
        self.terms = terms
        self.worth: dict[str, Counts] = {}


class InterPodAffinity(PreFilter, DryRunFilter, PodScore):
    """Refuses and prefers nodes by the pods in their domains.

    Counts are read as they are when asked, so hypothetical pods need no state of their own: what-ifs tell the
    indexes of them.
    """

    name = "InterPodAffinity"

    def __init__(self, args: InterPodAffinityArgs | None, handle: Handle) -> None:
        """The arguments must be valid."""
        args = args or InterPodAffinityArgs()
        self._hard_weight = args.hard_pod_affinity_weight
        self._ignore_preferred_of_existing = args.ignore_preferred_terms_of_existing_pods
        self._index = handle.cluster.shared(PodIndex)
        self._existing = handle.cluster.shared(ExistingTerms)
        self._topology = self._index.topology
        self._node_keys = handle.cluster.table.label_keys
        self._compiler = IncomingCompiler(self._existing.namespaces)
        intern = handle.reasons.intern
        self._code_affinity = intern(self.name, Code.UNRESOLVABLE, REASON_AFFINITY)
        self._code_anti_affinity = intern(self.name, Code.UNSCHEDULABLE, REASON_ANTI_AFFINITY)
        self._code_existing = intern(self.name, Code.UNSCHEDULABLE, REASON_EXISTING)

    def _state(self, cycle: CycleState, pod: Pod) -> _CycleState:
        state: _CycleState | None = cycle.state.get(self)
        if state is None:
            state = cycle.state[self] = _CycleState(self._compiler.terms_of(pod))
        return state

    def _domains(self, counts: RowCounts, key: str) -> DomainCounts:
        return counts.domains(key, self._topology.everywhere)

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """Pods coming, going or changing labels; nodes whose topology keys change."""
        return AffinityHints(self.name, self._compiler.terms_of, self._existing).registrations()

    # --- filter ----------------------------------------------------------------------------------

    def pre_filter(self, cycle: CycleState, pod: Pod) -> PreFilterResult | Status:
        """SKIP if the pod has no required terms, and no existing pod has anti-affinity to it."""
        try:
            terms = self._state(cycle, pod).terms
        except SelectorError as error:
            return Status(Code.ERROR, (str(error),))
        if terms is not None and terms.requires:
            return SUCCESS
        repelling = self._existing.matching(pod)[TermKind.REQUIRED_ANTI]
        if not repelling:
            return SKIP
        self._topology.refresh()
        applying = ((key, term) for key in self._node_keys & repelling.keys() for term, _ in repelling[key])
        return SUCCESS if any(self._domains(term, key).any for key, term in applying) else SKIP

    def filter(self, cycle: CycleState, pod: Pod, table: NodeTable, rows: RowArray) -> Codes | None:
        """Affinity first, then the pod's own anti-affinity, then that of the pods there."""
        self._topology.refresh()
        terms = self._state(cycle, pod).terms
        codes: Codes | None = None
        if terms is not None:
            if terms.affinity is not None or terms.impossible:
                lonely = self._lonely(terms, pod, table, rows)
                codes = _refuse(codes, lonely, self._code_affinity)
            for key in self._node_keys & terms.anti_affinity.keys():
                for term in terms.anti_affinity[key]:
                    disliked = self._any_there(term.counter(self._index), key, table, rows)
                    codes = _refuse(codes, disliked, self._code_anti_affinity)
        repelling = self._existing.matching(pod)[TermKind.REQUIRED_ANTI]
        for key in self._node_keys & repelling.keys():
            for existing, _ in repelling[key]:
                unwelcome = self._any_there(existing, key, table, rows)
                codes = _refuse(codes, unwelcome, self._code_existing)
        return codes

    def dry_run(self, cycle: CycleState, pod: Pod, coming: Iterable[Pod]) -> AffinityDryRun:
        """See `framework.dryruns`."""
        return AffinityDryRun(
            self._state(cycle, pod).terms,
            pod,
            coming,
            self._index,
            self._existing,
            affinity=self._code_affinity,
            anti_affinity=self._code_anti_affinity,
            existing=self._code_existing,
        )

    def _any_there(self, counts: RowCounts, key: str, table: NodeTable, rows: RowArray) -> Mask | None:
        """Where the node's domain counts any; None if nowhere."""
        if not counts.total:
            return None
        ids = table.label_column(key).ids.data.take(rows)
        there: Mask = self._domains(counts, key).counts.take(ids) > 0
        there &= ids != ABSENT
        return there

    def _lonely(self, terms: IncomingTerms, pod: Pod, table: NodeTable, rows: RowArray) -> Mask:
        """Where required affinity is not satisfied."""
        if terms.impossible or terms.affinity is None or any(key not in self._node_keys for key in terms.keys):
            return np.ones(len(rows), dtype=np.bool_)
        counter = terms.affinity.counter(self._index)
        domains = [self._domains(counter, key) for key in terms.keys]
        # The first pod of a group that wants to be together cannot wait for the others.
        first = not any(found.any for found in domains) and terms.attracts(pod)
        lonely: Mask = np.zeros(len(rows), dtype=np.bool_)
        for key, found in zip(terms.keys, domains, strict=True):
            ids = table.label_column(key).ids.data.take(rows)
            lonely |= ids == ABSENT
            if not first:
                lonely |= found.counts.take(ids) <= 0
        return lonely

    # --- score -----------------------------------------------------------------------------------

    def abstains(self, cycle: CycleState, pod: Pod) -> bool:
        """Pods without preferences that no existing pod's terms match."""
        try:
            return not self._preferences(self._state(cycle, pod), pod)
        except SelectorError:
            return False

    def _preferences(self, state: _CycleState, pod: Pod) -> bool:
        """Whether there are terms that may prefer nodes for the pod, its own or those of existing pods."""
        terms = state.terms
        if self._ignore_preferred_of_existing and not (terms is not None and terms.prefers):
            return False
        _, required, preferring = self._existing.matching(pod)
        return bool(required or preferring or (terms is not None and terms.preferred))

    def pre_score(self, cycle: CycleState, pod: Pod, rows: RowArray) -> Status:
        """SKIP if no pod anywhere makes a difference."""
        try:
            state = self._state(cycle, pod)
        except SelectorError as error:
            return Status(Code.ERROR, (str(error),))
        if not self._preferences(state, pod):
            return SKIP
        preferred = state.terms.preferred if state.terms is not None else {}
        node_keys = self._node_keys
        _, required, preferring = self._existing.matching(pod)
        self._topology.refresh()
        state.worth = {}
        for key in node_keys & preferred.keys():
            for weight, term in preferred[key]:
                self._weigh(state.worth, term.counter(self._index), key, weight)
        if self._hard_weight > 0:
            for key in node_keys & required.keys():
                for existing, times in required[key]:
                    self._weigh(state.worth, existing, key, self._hard_weight * times)
        for key in node_keys & preferring.keys():
            for existing, times in preferring[key]:
                self._weigh(state.worth, existing, key, existing.weight * times)
        return SUCCESS if state.worth else SKIP

    def _weigh(self, worth: dict[str, Counts], counts: RowCounts, key: str, weight: int) -> None:
        domains = self._domains(counts, key)
        if not counts.total or not domains.any:
            return
        found = worth.get(key)
        worth[key] = domains.counts * weight if found is None else found + domains.counts * weight

    def score(self, cycle: CycleState, pod: Pod, table: NodeTable, rows: RowArray) -> Scores:
        """The sum over all terms and pods of the weights that apply in the node's domains."""
        total: npt.NDArray[np.int64] = np.zeros(len(rows), dtype=np.int64)
        for key, by_domain in self._state(cycle, pod).worth.items():
            by_domain[ABSENT] = 0
            total += by_domain.take(table.label_column(key).ids.data.take(rows))
        return total

    def normalize(self, cycle: CycleState, pod: Pod, scores: Scores) -> Scores:
        """From the lowest, 0, to the highest, 100; all 0 if they are equal."""
        assert not isinstance(scores, int), "score returns an array"
        lowest, highest = int(scores.min()), int(scores.max())
        if lowest == highest:
            return 0
        return (float(MAX_SCORE) * ((scores - lowest) / (highest - lowest))).astype(np.int64)


def _refuse(codes: Codes | None, fails: Mask | None, code: int) -> Codes | None:
    """Adds a reason where there is none yet."""
    if fails is None or not fails.any():
        return codes
    if codes is None:
        return fails * np.int32(code)
    codes[fails & (codes == PASS)] = code
    return codes
