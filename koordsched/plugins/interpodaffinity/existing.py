"""Terms of existing pods, counted where those pods are, and found by the incoming pods that they match.

Equal terms are one object, however many pods have them; pods without terms cost nothing here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import IntEnum
from functools import partial
from typing import TypeGuard
from weakref import WeakValueDictionary

from koordsched.api.selectors import SelectorError, check
from koordsched.cluster.interning import LabelSet
from koordsched.cluster.kept import Kept
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.cluster.state import ClusterState
from koordsched.plugins.interpodaffinity.terms import Term, TermMatcher, WireTerms, has_terms
from koordsched.plugins.interpodaffinity.termset import TermSet
from koordsched.plugins.shared.podcounts.namespaces import Namespaces
from koordsched.plugins.shared.podcounts.rowcounts import RowCounts
from koordsched.plugins.shared.podcounts.topology import Topology


class TermKind(IntEnum):
    """What a term does to pods that it matches."""

    REQUIRED_ANTI = 0
    REQUIRED = 1
    PREFERRED = 2


class TermCounts(RowCounts):
    """How many pods with a term, or with some set of terms, are on each row.

    `weight`: signed, of a preference (of a set: -1, 0 or 1, as its weights are inside); 0 for the other kinds.
    """

    __slots__ = ("kind", "matcher", "weight")

    def __init__(self, topology: Topology, kind: TermKind, weight: int, matcher: TermMatcher | TermSet) -> None:
        super().__init__(topology)
        self.kind = kind
        self.weight = weight
        self.matcher = matcher


Applying = dict[str, list[tuple[TermCounts, int]]]
"""By topology key: terms that match a pod, and how often each pod that has them counts."""

Matched = tuple[Applying, Applying, Applying]
"""The terms that match a pod, by TermKind."""

_NONE_MATCH: Matched = ({}, {}, {})
"""Read only, as all of them."""

_FEW_TERMS = 32
"""Up to this many terms of a pod are counted one by one, and together with equal ones of other pods."""

_BUDGET = 32 << 20
"""Bytes of labels for which the terms that match are known."""

_MATCHED_BYTES, _TERM_BYTES = 500, 100

_NAMESPACES_KEPT = 64


class ExistingTerms:
    """All terms of existing pods; one per cluster (`ClusterState.shared(ExistingTerms)`)."""

    facets = 0  # those who read counts ask every time

    def __init__(self, cluster: ClusterState) -> None:
        self.topology = cluster.shared(Topology)
        self.namespaces = cluster.shared(Namespaces)
        self._interned: WeakValueDictionary[Hashable, TermCounts] = WeakValueDictionary()
        # Terms that some pod has now: label key -> value -> terms that ask for it, and those that ask otherwise.
        self._by_pair: dict[str, dict[str, dict[TermCounts, None]]] = {}
        self._others: dict[TermCounts, None] = {}
        self._repelling: Counter[str] = Counter()
        """By topology key, how many required anti-affinity terms of these have it."""
        self._matched: Kept[tuple[str, LabelSet], Matched] = Kept(_BUDGET)
        self._matched_version = 0
        self._matched_keys: frozenset[str] = frozenset()
        """The label keys that nodes had; looked at only if there are sets of terms, that depend on them."""
        self._sets = 0
        cluster.add_accountant(self, amendable=False, concerns=has_terms)

    # --- pods ------------------------------------------------------------------------------------

    def pod_added(self, row: int, pod: Pod) -> int:
        """Counts the pod's terms."""
        for term in self._terms_of(pod):
            if not term.total:
                self._file(term)
            term.add(row, 1)
        return 0

    def pod_removed(self, row: int, pod: Pod) -> int:
        """The opposite."""
        for term in self._terms_of(pod):
            term.add(row, -1)
            if not term.total:
                self._unfile(term)
        return 0

    def _terms_of(self, pod: Pod) -> tuple[TermCounts, ...]:
        by_namespace = pod.shape.compiled(self, _by_namespace)
        if by_namespace is _WITHOUT_TERMS:
            return ()
        found = by_namespace.get(pod.namespace)
        if found is None:
            if len(by_namespace) >= by_namespace.look_at:
                by_namespace.forget_unused()
            found = by_namespace[pod.namespace] = tuple(self._compile(pod))
        return found

    def _compile(self, pod: Pod) -> Iterable[TermCounts]:
        wire = WireTerms(pod.shape, pod.namespace)
        terms = [
            *((TermKind.REQUIRED_ANTI, 0, term) for term in wire.required_anti if _binding(term)),
            *((TermKind.REQUIRED, 0, term) for term in wire.required if _binding(term)),
            *((TermKind.PREFERRED, weight, term) for weight, term in wire.preferred if _binding(term)),
        ]
        if len(terms) <= _FEW_TERMS:
            return [
                self._intern((kind, weight, term), kind, weight, partial(TermMatcher, term))
                for kind, weight, term in terms
            ]
        together: dict[tuple[TermKind, int], list[tuple[int, Term]]] = {}
        for kind, weight, term in terms:
            sign = (weight > 0) - (weight < 0)
            together.setdefault((kind, sign), []).append((abs(weight) or 1, term))
        build = partial(TermSet, node_keys=self.topology.table.label_keys)
        return [
            self._intern((kind, sign, pod.shape.key, pod.namespace), kind, sign, partial(build, members))
            for (kind, sign), members in together.items()
        ]

    def _intern(
        self, identity: Hashable, kind: TermKind, weight: int, matcher: Callable[[], TermMatcher | TermSet]
    ) -> TermCounts:
        found = self._interned.get(identity)
        if found is None:
            found = self._interned[identity] = TermCounts(self.topology, kind, weight, matcher())
        return found

    # --- matching --------------------------------------------------------------------------------

    def _file(self, term: TermCounts) -> None:
        self._matched.clear()
        self._sets += isinstance(term.matcher, TermSet)
        if term.kind is TermKind.REQUIRED_ANTI:
            self._repelling.update(term.matcher.keys)
        equalities = term.matcher.equalities
        if equalities:
            key, value = equalities[0]
            self._by_pair.setdefault(key, {}).setdefault(value, {})[term] = None
        else:
            self._others[term] = None

    def _unfile(self, term: TermCounts) -> None:
        self._matched.clear()
        self._sets -= isinstance(term.matcher, TermSet)
        if term.kind is TermKind.REQUIRED_ANTI:
            for key in term.matcher.keys:
                self._repelling[key] -= 1
                if not self._repelling[key]:
                    del self._repelling[key]
        equalities = term.matcher.equalities
        if not equalities:
            del self._others[term]
            return
        key, value = equalities[0]
        by_value = self._by_pair[key]
        del by_value[value][term]
        if not by_value[value]:
            del by_value[value]
            if not by_value:
                del self._by_pair[key]

    def matching(self, pod: Pod) -> Matched:
        """The terms of existing pods that match this pod."""
        if not self._by_pair and not self._others:
            return _NONE_MATCH
        if self._matched_version != self.namespaces.version:
            self._matched.clear()
            self._matched_version = self.namespaces.version
        keys = self.topology.table.label_keys
        if self._sets and keys != self._matched_keys:
            self._matched.clear()
            self._matched_keys = frozenset(keys)
        identity = (pod.namespace, pod.labels)
        found = self._matched.get(identity)
        if found is None:
            found = self._match(pod.namespace, pod.labels.labels)
            self._matched.put(identity, found, pod.labels.nbytes + _bytes_of(found))
        return found

    def repels_by(self, keys: Iterable[str]) -> bool:
        """Whether a required anti-affinity term of any pod has one of these topology keys."""
        return any(key in self._repelling for key in keys)

    def repels(self, owner: Pod) -> bool:
        """Whether one pod, which need not be on a node any more, has required anti-affinity terms."""
        return any(term.kind is TermKind.REQUIRED_ANTI for term in self._terms_of(owner))

    def objects_to(self, owner: Pod, other: Pod) -> bool:
        """Whether a required anti-affinity term of one pod, which need not be on a node any more, is about another."""
        labels = self.namespaces.labels(other.namespace)
        return any(
            term.kind is TermKind.REQUIRED_ANTI and term.matcher.matches(other.namespace, labels, other.labels.labels)
            for term in self._terms_of(owner)
        )

    def objections(self, owner: Pod, other: Pod) -> Iterator[tuple[str, int]]:
        """(topology key, how many) of the required anti-affinity terms of one pod, which need not be on a node, that
        are about another. A key may come more than once.
        """
        terms = self._terms_of(owner)
        if not terms:
            return
        labels = self.namespaces.labels(other.namespace)
        for term in terms:
            if term.kind is TermKind.REQUIRED_ANTI:
                yield from term.matcher.applying(other.namespace, labels, other.labels.labels)

    def _match(self, namespace: str, labels: dict[str, str]) -> Matched:
        candidates: list[Iterable[TermCounts]] = [self._others]
        for key, by_value in self._by_pair.items():
            value = labels.get(key)
            if value in by_value:
                candidates.append(by_value[value])
        namespace_labels = self.namespaces.labels(namespace)
        matched: Matched = ({}, {}, {})
        for terms in candidates:
            for term in terms:
                for key, times in term.matcher.applying(namespace, namespace_labels, labels):
                    matched[term.kind].setdefault(key, []).append((term, times))
        return matched


def _bytes_of(found: Matched) -> int:
    """Bytes that are its own."""
    return _MATCHED_BYTES + _TERM_BYTES * sum(len(terms) for applying in found for terms in applying.values())


def _binding(term: Term | None) -> TypeGuard[Term]:
    """False for terms that match nothing, or with a selector that is not valid."""
    if term is None:
        return False
    try:
        check(term.requirements)
        check(term.by_labels or ())
    except SelectorError:
        return False  # the API server accepts no such selector; a pod that has one anyway restricts no other pod
    return True


class _TermsByNamespace(dict[str, tuple[TermCounts, ...]]):
    """The terms of one shape, by the namespace of the pod. A shape may last while namespaces come and go."""

    __slots__ = ("look_at",)

    def __init__(self) -> None:
        super().__init__()
        self.look_at = _NAMESPACES_KEPT
        """With this many, those without pods are dropped."""

    def forget_unused(self) -> None:
        """Keeps the terms that some pod has. Others are found again for as long as their counts are looked at."""
        for namespace in [n for n, terms in self.items() if not any(term.total for term in terms)]:
            del self[namespace]
        self.look_at = max(_NAMESPACES_KEPT, 2 * len(self))


_WITHOUT_TERMS = _TermsByNamespace()


def _by_namespace(shape: PodShape) -> _TermsByNamespace:
    return _TermsByNamespace() if has_terms(shape) else _WITHOUT_TERMS
