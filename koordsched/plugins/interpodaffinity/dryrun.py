"""Required terms in many dry runs at once (see `framework.dryruns`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.columns import ABSENT
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.framework.dryruns import Amounts, FilterDryRun, Tally
from koordsched.framework.status import PASS, Codes
from koordsched.plugins.interpodaffinity.existing import ExistingTerms, TermKind
from koordsched.plugins.interpodaffinity.incoming import CountedTerm, IncomingTerms
from koordsched.plugins.shared.matching.rows import Mask
from koordsched.plugins.shared.podcounts.index import PodIndex
from koordsched.plugins.shared.podcounts.rowcounts import Counts, RowCounts

Ids = npt.NDArray[np.int32]


class AffinityDryRun(FilterDryRun):
    """One tally for the pods that required affinity is about, one per anti-affinity term, and one per label key for
    the terms by which pods on nodes keep this one away.

    `affinity`, `anti_affinity` and `existing` are the codes of the three refusals.
    """

    def __init__(
        self,
        terms: IncomingTerms | None,
        pod: Pod,
        coming: Iterable[Pod],
        index: PodIndex,
        terms_of_others: ExistingTerms,
        *,
        affinity: int,
        anti_affinity: int,
        existing: int,
    ) -> None:
        self._terms = terms
        self._pod = pod
        self._index = index
        self._topology = index.topology
        self._codes = affinity, anti_affinity, existing
        node_keys = index.topology.table.label_keys
        self._repelling = terms_of_others.matching(pod)[TermKind.REQUIRED_ANTI]
        apart = terms.anti_affinity if terms is not None else {}
        self._apart = [term for key, counted in apart.items() if key in node_keys for term in counted]
        self.tallies = []
        if terms is not None:
            counted = (terms.affinity, *self._apart)
            self.tallies.extend(_selected(term) for term in counted if term is not None)
        keys = dict.fromkeys(key for key in self._repelling if key in node_keys)
        keys.update((key, None) for other in coming for key, _ in terms_of_others.objections(other, pod))
        self._repelling_keys = tuple(keys)
        self.tallies.extend(_objecting(key, pod, terms_of_others) for key in keys)
        self._repelled: dict[str, Counts | None] = {}

    def filter(self, table: NodeTable, rows: RowArray, changes: Sequence[Amounts]) -> Codes | None:
        """Affinity first, then the pod's own anti-affinity, then that of the pods there."""
        self._topology.refresh()
        affinity, anti_affinity, existing = self._codes
        codes: Codes = np.zeros(len(rows), dtype=np.int32)
        left = iter(changes)
        terms = self._terms
        if terms is not None:
            if terms.affinity is not None:
                codes[self._lonely(terms, terms.affinity, table, rows, next(left))] = affinity
            if terms.impossible:
                codes[:] = affinity
            for term in self._apart:
                counts = self._counts(term.counter(self._index), term.key)
                disliked = _any_there(counts, table.label_column(term.key).ids.data.take(rows), next(left))
                codes[disliked & (codes == PASS)] = anti_affinity
        for key in self._repelling_keys:
            unwelcome = _any_there(self._against(key), table.label_column(key).ids.data.take(rows), next(left))
            codes[unwelcome & (codes == PASS)] = existing
        return codes

    def _counts(self, counts: RowCounts, key: str) -> Counts | None:
        """By domain; None if there are none at all."""
        return counts.domains(key, self._topology.everywhere).counts if counts.total else None

    def _against(self, key: str) -> Counts | None:
        """By domain, how many terms of pods there keep the pod away; None if there are none at all."""
        if key not in self._repelled:
            found = [(self._counts(term, key), times) for term, times in self._repelling.get(key, ())]
            present = [counts * times for counts, times in found if counts is not None]
            self._repelled[key] = np.sum(present, axis=0, dtype=np.int64) if present else None
        return self._repelled[key]

    def _lonely(
        self, terms: IncomingTerms, term: CountedTerm, table: NodeTable, rows: RowArray, change: Amounts
    ) -> Mask:
        """Where required affinity is not satisfied."""
        if any(key not in table.label_keys for key in terms.keys):
            return np.ones(len(rows), dtype=np.bool_)
        counter = term.counter(self._index)
        first: Mask = np.full(len(rows), terms.attracts(self._pod))
        lacking: Mask = np.zeros(len(rows), dtype=np.bool_)
        alone: Mask = np.zeros(len(rows), dtype=np.bool_)
        for key in terms.keys:
            ids = table.label_column(key).ids.data.take(rows)
            counts = counter.domains(key, self._topology.everywhere).counts
            changed = np.where(ids == ABSENT, 0, change)
            # The first pod of a group that wants to be together cannot wait for the others.
            first &= counts[ABSENT + 1 :].sum() + changed == 0
            lacking |= ids == ABSENT
            alone |= counts.take(ids) + changed <= 0
        return lacking | (alone & ~first)


def _any_there(counts: Counts | None, ids: Ids, change: Amounts) -> Mask:
    """Where the node's domain counts any."""
    there: Mask = (change if counts is None else counts.take(ids) + change) > 0
    there &= ids != ABSENT
    return there


def _selected(term: CountedTerm) -> Tally:
    """The pods that a term is about, terminating ones included."""
    return Tally((AffinityDryRun, term.pods), term.times)


def _objecting(key: str, pod: Pod, terms_of_others: ExistingTerms) -> Tally:
    """The terms with this key by which other pods keep the pod away."""

    def count(other: Pod) -> int:
        return sum(times for found, times in terms_of_others.objections(other, pod) if found == key)

    return Tally((AffinityDryRun, pod.namespace, pod.labels, key, terms_of_others.namespaces.version), count)
