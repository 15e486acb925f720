"""Affinity terms in canonical form.

Source: upstream `framework/types.go` AffinityTerm; default-plugins spec 3.10. matchLabelKeys and
mismatchLabelKeys are part of the selector already: the API server merges them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from koordsched.api.core import Namespace, PodAffinity, PodAffinityTerm
from koordsched.api.selectors import SelectorError
from koordsched.cluster.builtinkinds import NAMESPACES
from koordsched.cluster.objects import Store
from koordsched.cluster.shape import PodShape
from koordsched.cluster.state import ClusterState
from koordsched.plugins.shared.podcounts.query import PodQuery, requirements_of
from koordsched.plugins.shared.podcounts.weights import Requirement


@dataclass(frozen=True, slots=True)
class Term:
    """Which pods, related to a node through the value of `key`.

    The pods' namespaces are the `listed` ones and those whose labels satisfy `by_labels` (None: none, (): all).
    """

    key: str
    listed: frozenset[str]
    by_labels: tuple[Requirement, ...] | None
    requirements: tuple[Requirement, ...]


def compile_term(term: PodAffinityTerm, own_namespace: str) -> Term | None:
    """A term of a pod in that namespace; None if it has no label selector, and so matches nothing."""
    if term.label_selector is None:
        return None
    selector = term.namespace_selector
    listed = frozenset(term.namespaces)
    if not listed and selector is None:
        listed = frozenset((own_namespace,))
    return Term(
        key=term.topology_key,
        listed=listed,
        by_labels=None if selector is None else requirements_of(selector),
        requirements=requirements_of(term.label_selector),
    )


_RESOLVED_KEPT = 1024

MOST_COMPARISONS = 250_000
"""Of namespace selectors with namespaces that the terms of one pod may take: about 0.3 s, in which nothing else is
done. Any user can create pods whose terms would take longer than a leader has to renew its lease.
"""


class Namespaces:
    """Labels of namespaces, and which of them satisfy a selector.

    `version` grows with every change of labels: what was derived before is out of date then.
    """

    def __init__(self, cluster: ClusterState) -> None:
        self._store: Store[Namespace] = cluster.objects.of(NAMESPACES)
        self.version = 0
        self._resolved: dict[tuple[frozenset[str], tuple[Requirement, ...]], frozenset[str]] = {}
        self._store.subscribe(self._on_change)

    def _on_change(self, old: Namespace | None, new: Namespace | None) -> None:
        if old is None or new is None or old.metadata.labels != new.metadata.labels:
            self.version += 1
            self._resolved.clear()

    def labels(self, name: str) -> Mapping[str, str] | None:
        """The labels of a namespace: none if there is no such namespace, None if we may not see it."""
        namespace = self._store.get("", name)
        if namespace is None:
            return None if self._store.hidden else {}
        return namespace.metadata.labels

    def check_cost(self, terms: Iterable[Term]) -> None:
        """Raises SelectorError if it takes too long to find the namespaces of these terms."""
        selectors = len({term.by_labels for term in terms if term.by_labels})
        if selectors > 1 and selectors * len(self._store) > MOST_COMPARISONS:
            raise SelectorError(
                f"affinity terms with {selectors} different namespace selectors cannot be evaluated among "
                f"{len(self._store)} namespaces: at most {MOST_COMPARISONS // len(self._store)} can"
            )

    def query(self, term: Term) -> PodQuery:
        """The pods that a term of an incoming pod selects, its namespaces resolved. Raises SelectorError."""
        if term.by_labels is None:
            return PodQuery(term.listed, term.requirements)
        if term.by_labels == ():
            return PodQuery(None, term.requirements)
        scope = (term.listed, term.by_labels)
        found = self._resolved.get(scope)
        if found is None:
            if len(self._resolved) >= _RESOLVED_KEPT:
                self._resolved.clear()
            wanted = PodQuery(None, term.by_labels)
            labelled = {n.metadata.name for n in self._store if wanted.admits(n.metadata.labels)}
            found = self._resolved[scope] = term.listed | labelled
        return PodQuery(found, term.requirements)


def _terms(terms: tuple[PodAffinityTerm, ...], namespace: str) -> tuple[Term | None, ...]:
    return tuple(compile_term(term, namespace) for term in terms)


class WireTerms:
    """The four lists of terms in a pod's spec, as a pod of one namespace has them; None matches nothing."""

    __slots__ = ("preferred", "required", "required_anti")

    def __init__(self, shape: PodShape, namespace: str) -> None:
        affinity = shape.spec.affinity
        towards = (affinity.pod_affinity if affinity is not None else None) or PodAffinity()
        away = (affinity.pod_anti_affinity if affinity is not None else None) or PodAffinity()
        self.required = _terms(towards.required, namespace)
        self.required_anti = _terms(away.required, namespace)
        self.preferred = tuple(
            (sign * preference.weight, compile_term(preference.pod_affinity_term, namespace))
            for sign, kind in ((1, towards), (-1, away))
            for preference in kind.preferred
        )

    def terms(self) -> Iterator[Term]:
        """All that may match something."""
        found = chain(self.required, self.required_anti, (term for _, term in self.preferred))
        return (term for term in found if term is not None)


def has_terms(shape: PodShape) -> bool:
    """Whether pods of this shape have any affinity or anti-affinity to pods."""
    affinity = shape.spec.affinity
    return affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)


class TermMatcher:
    """A term of an existing pod, put to incoming pods. Raises SelectorError if a selector is not valid."""

    __slots__ = ("_by_labels", "key", "listed", "query")

    def __init__(self, term: Term) -> None:
        self.key = term.key
        self.listed = term.listed
        self.query = PodQuery(None, term.requirements)
        self._by_labels = None if term.by_labels is None else PodQuery(None, term.by_labels)

    @property
    def equalities(self) -> tuple[tuple[str, str], ...]:
        """(key, value) pairs that every pod carries which is meant."""
        return self.query.equalities

    def matches(self, namespace: str, namespace_labels: Mapping[str, str] | None, labels: Mapping[str, str]) -> bool:
        """Whether a pod of that namespace with these labels is meant; unknown labels (None) may be any."""
        if namespace not in self.listed:
            if self._by_labels is None:
                return False
            if namespace_labels is not None and not self._by_labels.admits(namespace_labels):
                return False
        return self.query.admits(labels)

    def applying(
        self, namespace: str, namespace_labels: Mapping[str, str] | None, labels: Mapping[str, str]
    ) -> Iterable[tuple[str, int]]:
        """(topology key, 1) if such a pod is meant."""
        return ((self.key, 1),) if self.matches(namespace, namespace_labels, labels) else ()
