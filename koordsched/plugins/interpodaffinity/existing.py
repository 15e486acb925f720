"""Terms of existing pods, counted where those pods are, and found by the incoming pods they speak of.

Equal terms are one object, however many pods have them; pods without terms cost nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from weakref import WeakValueDictionary

from koordsched.api.selectors import SelectorError
from koordsched.cluster.interning import LabelSet
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.cluster.state import ClusterState
from koordsched.plugins.interpodaffinity.terms import Namespaces, Term, TermMatcher, WireTerms, has_terms
from koordsched.plugins.podcounts.rowcounts import RowCounts
from koordsched.plugins.podcounts.topology import Topology


class TermKind(IntEnum):
    """What a term does to pods that it matches."""

    REQUIRED_ANTI = 0
    REQUIRED = 1
    PREFERRED = 2


class TermCounts(RowCounts):
    """How many pods with a term are on each row. `weight`: signed, of a preference; 0 for the other kinds."""

    __slots__ = ("key", "kind", "matcher", "weight")

    def __init__(self, topology: Topology, kind: TermKind, weight: int, term: Term) -> None:
        """Raises SelectorError if a selector is not valid."""
        super().__init__(topology)
        self.kind = kind
        self.weight = weight
        self.key = term.key
        self.matcher = TermMatcher(term)


Matched = tuple[tuple[TermCounts, ...], tuple[TermCounts, ...], tuple[TermCounts, ...]]
"""The terms that match a pod, by TermKind."""

_KEPT = 8192
_NAMESPACES_KEPT = 64


class ExistingTerms:
    """All terms of existing pods; one per cluster (`ClusterState.shared(ExistingTerms)`)."""

    def __init__(self, cluster: ClusterState) -> None:
        self.topology = cluster.shared(Topology)
        self.namespaces = cluster.shared(Namespaces)
        self._interned: WeakValueDictionary[tuple[TermKind, int, Term], TermCounts] = WeakValueDictionary()
        # Terms that some pod has now: label key -> value -> terms that ask for it, and those that ask otherwise.
        self._by_pair: dict[str, dict[str, dict[TermCounts, None]]] = {}
        self._others: dict[TermCounts, None] = {}
        self._matched: dict[tuple[str, LabelSet], Matched] = {}
        self._matched_version = 0
        cluster.add_accountant(self)

    # --- pods ------------------------------------------------------------------------------------

    def pod_added(self, row: int, pod: Pod) -> int:
        """Counts the pod's terms; no facet of the row changes, since whoever reads counts asks every time."""
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
            found = by_namespace[pod.namespace] = tuple(self._compile(WireTerms(pod.shape, pod.namespace)))
        return found

    def _compile(self, wire: WireTerms) -> Iterator[TermCounts]:
        for term in wire.required_anti:
            yield from self._intern(TermKind.REQUIRED_ANTI, 0, term)
        for term in wire.required:
            yield from self._intern(TermKind.REQUIRED, 0, term)
        for weight, term in wire.preferred:
            yield from self._intern(TermKind.PREFERRED, weight, term)

    def _intern(self, kind: TermKind, weight: int, term: Term | None) -> Iterator[TermCounts]:
        if term is None:
            return
        found = self._interned.get((kind, weight, term))
        if found is None:
            try:
                found = TermCounts(self.topology, kind, weight, term)
            except SelectorError:
                return  # the API server accepts no such selector; a pod that has one anyway binds nobody else
            self._interned[(kind, weight, term)] = found
        yield found

    # --- matching --------------------------------------------------------------------------------

    def _file(self, term: TermCounts) -> None:
        self._matched.clear()
        equalities = term.matcher.query.selector.equalities
        if equalities:
            key, value = equalities[0]
            self._by_pair.setdefault(key, {}).setdefault(value, {})[term] = None
        else:
            self._others[term] = None

    def _unfile(self, term: TermCounts) -> None:
        self._matched.clear()
        equalities = term.matcher.query.selector.equalities
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
        if self._matched_version != self.namespaces.version:
            self._matched.clear()
            self._matched_version = self.namespaces.version
        identity = (pod.namespace, pod.labels)
        found = self._matched.get(identity)
        if found is None:
            if len(self._matched) >= _KEPT:
                self._matched.clear()
            found = self._matched[identity] = self._match(pod.namespace, pod.labels.labels)
        return found

    def objects_to(self, owner: Pod, other: Pod) -> bool:
        """Whether a required anti-affinity term of one pod, which need not be on a node any more, is about another."""
        return any(True for _ in self.objections(owner, other))

    def objections(self, owner: Pod, other: Pod) -> Iterator[TermCounts]:
        """The required anti-affinity terms of one pod, which need not be on a node, that are about another."""
        terms = self._terms_of(owner)
        if not terms:
            return
        labels = self.namespaces.labels(other.namespace)
        for term in terms:
            if term.kind is TermKind.REQUIRED_ANTI and term.matcher.matches(
                other.namespace, labels, other.labels.labels
            ):
                yield term

    def _match(self, namespace: str, labels: dict[str, str]) -> Matched:
        candidates: list[Iterable[TermCounts]] = [self._others]
        for key, by_value in self._by_pair.items():
            value = labels.get(key)
            if value in by_value:
                candidates.append(by_value[value])
        namespace_labels = self.namespaces.labels(namespace)
        matched: tuple[list[TermCounts], ...] = ([], [], [])
        for terms in candidates:
            for term in terms:
                if term.matcher.matches(namespace, namespace_labels, labels):
                    matched[term.kind].append(term)
        return tuple(matched[0]), tuple(matched[1]), tuple(matched[2])


class _TermsByNamespace(dict[str, tuple[TermCounts, ...]]):
    """The terms of one shape, by the namespace of the pod. A shape may last while namespaces come and go."""

    __slots__ = ("look_at",)

    def __init__(self) -> None:
        super().__init__()
        self.look_at = _NAMESPACES_KEPT
        """With so many, those of which no pod is left are forgotten."""

    def forget_unused(self) -> None:
        """Keeps the terms that some pod has. Others are found again for as long as somebody looks at their counts."""
        for namespace in [n for n, terms in self.items() if not any(term.total for term in terms)]:
            del self[namespace]
        self.look_at = max(_NAMESPACES_KEPT, 2 * len(self))


_WITHOUT_TERMS = _TermsByNamespace()


def _by_namespace(shape: PodShape) -> _TermsByNamespace:
    return _TermsByNamespace() if has_terms(shape) else _WITHOUT_TERMS
