"""The terms of an incoming pod, with counters of the existing pods that they match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.plugins.interpodaffinity.terms import WireTerms, has_terms, query_of
from koordsched.plugins.shared.podcounts.index import Counter, PodIndex
from koordsched.plugins.shared.podcounts.namespaces import Namespaces
from koordsched.plugins.shared.podcounts.query import PodQuery, PodWeights, WeightedQueries


class CountedTerm:
    """A term, or many with the same topology key: the label key of its domains, the pods it is about, and their
    counter.
    """

    __slots__ = ("_counter", "key", "pods")

    def __init__(self, key: str, pods: PodWeights) -> None:
        self.key = key
        self.pods = pods
        self._counter: Counter | None = None

    def times(self, pod: Pod) -> int:
        """How often the pod counts; 0 if it does not."""
        return self.pods.weigh(pod.namespace, pod.labels.labels)

    def counter(self, index: PodIndex) -> Counter:
        """The pods that it is about, terminating ones included."""
        if self._counter is None:
            self._counter = index.counter(self.pods, count_deleting=True)
        else:
            self._counter = index.used(self._counter)
        return self._counter


_FEW_TERMS = 32
"""Up to this many terms are counted one by one, and for all pods with an equal one together."""

Weighted = tuple[int, CountedTerm]
"""What one pod is worth each time it counts."""


class IncomingTerms:
    """The terms of the pods of one shape in one namespace.

    `affinity`: an existing pod counts for a required affinity term only if it matches all of them, so these
    share one counter; `keys` are their topology keys. `impossible`: one of them matches nothing.
    `anti_affinity`, `preferred` (with signed weights): by topology key, as those that no node has matter to none, and
    pods may name ten thousand. Terms that match nothing are left out; `requires` and `prefers` say whether there are
    any terms at all.
    """

    def __init__(self, wire: WireTerms, namespaces: Namespaces) -> None:
        """Raises SelectorError."""
        self.version = namespaces.version
        queries = [query_of(term, namespaces) for term in wire.required if term is not None]
        self.impossible = len(queries) < len(wire.required)
        self.keys = dict.fromkeys(term.key for term in wire.required if term is not None)
        self.affinity = CountedTerm(next(iter(self.keys)), PodQuery.all_of(queries)) if queries else None
        unwanted = [(term.key, 1, query_of(term, namespaces)) for term in wire.required_anti if term is not None]
        self._disliked: WeightedQueries | None = None
        self.anti_affinity = {key: tuple(t for _, t in terms) for key, terms in _counted(unwanted).items()}
        self.requires = bool(wire.required or wire.required_anti)
        self.prefers = bool(wire.preferred)
        self.preferred = _counted(
            [(term.key, weight, query_of(term, namespaces)) for weight, term in wire.preferred if term is not None]
        )

    def required_queries(self) -> Iterator[tuple[bool, PodQuery]]:
        """(True, the pods that all required affinity terms are about), (False, those of an anti-affinity term), …"""
        if self.affinity is not None:
            yield from ((True, query) for _, query in _members(self.affinity.pods))
        for terms in self.anti_affinity.values():
            yield from ((False, query) for term in terms for _, query in _members(term.pods))

    def attracts(self, pod: Pod) -> bool:
        """Whether the pod matches all required affinity terms."""
        return self.affinity is not None and not self.impossible and self.affinity.times(pod) > 0

    def dislikes(self, pod: Pod) -> bool:
        """Whether the pod matches a required anti-affinity term."""
        if not self.anti_affinity:
            return False
        if self._disliked is None:
            members = (_members(term.pods) for terms in self.anti_affinity.values() for term in terms)
            self._disliked = WeightedQueries(tuple(member for found in members for member in found))
        return self._disliked.weigh(pod.namespace, pod.labels.labels) > 0


def _members(pods: PodWeights) -> tuple[tuple[int, PodQuery], ...]:
    return pods.members if isinstance(pods, WeightedQueries) else ((1, pods),)


def _counted(terms: Sequence[tuple[str, int, PodQuery]]) -> dict[str, tuple[Weighted, ...]]:
    """Terms (topology key, weight, pods) by key: each by itself if they are few, otherwise those of a sign together."""
    found: dict[str, list[Weighted]] = {}
    if len(terms) <= _FEW_TERMS:
        for key, weight, query in terms:
            found.setdefault(key, []).append((weight, CountedTerm(key, query)))
    else:
        # What is worth nothing, or as much as something else takes away, is still a preference that applies.
        together: dict[tuple[str, int], list[tuple[int, PodQuery]]] = {}
        for key, weight, query in terms:
            sign = (weight > 0) - (weight < 0)
            together.setdefault((key, sign), []).append((abs(weight) or 1, query))
        for (key, sign), members in together.items():
            found.setdefault(key, []).append((sign, CountedTerm(key, WeightedQueries(tuple(members)))))
    return {key: tuple(weighted) for key, weighted in found.items()}


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
