"""Affinity terms in canonical form.

Source: upstream `framework/types.go` AffinityTerm; default-plugins spec 3.10. matchLabelKeys and
mismatchLabelKeys are part of the selector already: the API server merges them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from koordsched.api.core import PodAffinity, PodAffinityTerm
from koordsched.api.selectors import Requirement
from koordsched.cluster.shape import PodShape
from koordsched.plugins.shared.podcounts.namespaces import Namespaces
from koordsched.plugins.shared.podcounts.query import PodQuery, requirements_of


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


def query_of(term: Term, namespaces: Namespaces) -> PodQuery:
    """The pods that a term of an incoming pod selects, its namespaces resolved. Raises SelectorError."""
    if term.by_labels is None:
        return PodQuery(term.listed, term.requirements)
    if term.by_labels == ():
        return PodQuery(None, term.requirements)
    return PodQuery(namespaces.meant(term.listed, term.by_labels), term.requirements)


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
    def keys(self) -> tuple[str]:
        """The topology key."""
        return (self.key,)

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
