"""The terms of an incoming pod, with counters of the existing pods they speak of."""

from __future__ import annotations

from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.plugins.interpodaffinity.terms import Namespaces, Term, WireTerms, has_terms
from koordsched.plugins.podcounts.index import Counter, PodIndex
from koordsched.plugins.podcounts.query import PodQuery


class CountedTerm:
    """One term: the label key of its domains, the query for its pods, and their counter."""

    __slots__ = ("_counter", "key", "queries")

    def __init__(self, key: str, queries: tuple[PodQuery, ...]) -> None:
        self.key = key
        self.queries = queries
        self._counter: Counter | None = None

    def selects(self, pod: Pod) -> bool:
        """Whether the pod matches all queries of the term."""
        return all(query.matches(pod.namespace, pod.labels.labels) for query in self.queries)

    def counter(self, index: PodIndex) -> Counter:
        """The pods that match all queries of the term, terminating ones included."""
        if self._counter is None:
            self._counter = index.counter(self.queries, count_deleting=True)
        else:
            self._counter = index.used(self._counter)
        return self._counter


class IncomingTerms:
    """The terms of the pods of one shape in one namespace.

    `affinity`: an existing pod counts for a required affinity term only if it matches all of them, so these
    share one counter; `keys` are their topology keys. `impossible`: one of them matches nothing.
    `preferred`: with signed weights. Terms that match nothing are left out; `requires` and `prefers` say whether
    there are any terms at all.
    """

    __slots__ = ("affinity", "anti_affinity", "impossible", "keys", "preferred", "prefers", "requires", "version")

    def __init__(self, wire: WireTerms, namespaces: Namespaces) -> None:
        """Raises SelectorError."""
        self.version = namespaces.version
        queries = tuple(namespaces.query(term) for term in wire.required if term is not None)
        self.impossible = len(queries) < len(wire.required)
        self.keys = tuple(dict.fromkeys(term.key for term in wire.required if term is not None))
        self.affinity = CountedTerm(self.keys[0], queries) if queries else None
        self.anti_affinity = tuple(_counted(term, namespaces) for term in wire.required_anti if term is not None)
        self.requires = bool(wire.required or wire.required_anti)
        self.prefers = bool(wire.preferred)
        self.preferred = tuple(
            (weight, _counted(term, namespaces)) for weight, term in wire.preferred if term is not None
        )

    def attracts(self, pod: Pod) -> bool:
        """Whether the pod matches all required affinity terms."""
        return self.affinity is not None and not self.impossible and self.affinity.selects(pod)


def _counted(term: Term, namespaces: Namespaces) -> CountedTerm:
    return CountedTerm(term.key, (namespaces.query(term),))


class IncomingCompiler:
    """Compiles the terms of incoming pods; what it makes is kept with the shape."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces

    def terms_of(self, pod: Pod) -> IncomingTerms | None:
        """The pod's terms, None if it has none. Raises SelectorError."""
        by_namespace = pod.shape.compiled(self, _by_namespace)
        if by_namespace is _WITHOUT_TERMS:
            return None
        found = by_namespace.get(pod.namespace)
        if found is None or found.version != self._namespaces.version:
            if len(by_namespace) >= _KEPT_PER_SHAPE:
                by_namespace.clear()
            wire = WireTerms(pod.shape, pod.namespace)
            found = by_namespace[pod.namespace] = IncomingTerms(wire, self._namespaces)
        return found


_KEPT_PER_SHAPE = 1024
"""Namespaces; pods of one shape may be in ever new ones."""

_WITHOUT_TERMS: dict[str, IncomingTerms] = {}


def _by_namespace(shape: PodShape) -> dict[str, IncomingTerms]:
    return {} if has_terms(shape) else _WITHOUT_TERMS
