"""The terms of an existing pod that has many of them, put to incoming pods all at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from koordsched.plugins.interpodaffinity.terms import Namespaces, Term
from koordsched.plugins.shared.podcounts.query import PodQuery
from koordsched.plugins.shared.podcounts.weights import Requirement, ScopedWeights

_Scope = tuple[frozenset[str], tuple[Requirement, ...] | None]
"""Namespaces by name, and by labels."""


class TermSet:
    """Terms with positive weights; their selectors must be valid.

    `node_keys`: the label keys that some node has. Terms with other keys concern no node, so a pod may name ten
    thousand keys.
    """

    __slots__ = ("_all", "_by_key", "_namespaces", "_node_keys", "_terms", "_version")

    equalities: tuple[tuple[str, str], ...] = ()
    """There is no label that all pods carry which are meant."""

    def __init__(self, terms: Iterable[tuple[int, Term]], namespaces: Namespaces, node_keys: Collection[str]) -> None:
        self._terms: dict[str, list[tuple[_Scope, int, tuple[Requirement, ...]]]] = {}
        for weight, term in terms:
            scope = (term.listed, term.by_labels)
            self._terms.setdefault(term.key, []).append((scope, weight, term.requirements))
        self._namespaces = namespaces
        self._node_keys = node_keys
        self._version = (-1, False)
        self._all: ScopedWeights[_Scope] | None = None
        self._by_key: dict[str, ScopedWeights[_Scope]] = {}

    def matches(self, namespace: str, namespace_labels: Mapping[str, str] | None, labels: Mapping[str, str]) -> bool:
        """Whether any term means a pod of that namespace with these labels; unknown labels (None) may be any."""
        self._follow(namespace_labels)
        if self._all is None:
            self._all = ScopedWeights(member for members in self._terms.values() for member in members)
        return self._all.within(namespace, _covers(namespace, namespace_labels)).of(labels) > 0

    def applying(
        self, namespace: str, namespace_labels: Mapping[str, str] | None, labels: Mapping[str, str]
    ) -> Iterator[tuple[str, int]]:
        """(topology key, what the terms with this key weigh together that mean such a pod)."""
        if not self.matches(namespace, namespace_labels, labels):
            return
        for key in self._node_keys if len(self._node_keys) < len(self._terms) else self._terms:
            if key not in self._terms or key not in self._node_keys:
                continue
            weights = self._by_key.get(key)
            if weights is None:
                weights = self._by_key[key] = ScopedWeights(self._terms[key])
            weight = weights.within(namespace, _covers(namespace, namespace_labels)).of(labels)
            if weight:
                yield key, weight

    def _follow(self, namespace_labels: Mapping[str, str] | None) -> None:
        """Labels of namespaces may have changed."""
        version = (self._namespaces.version, namespace_labels is None)
        if version != self._version:
            self._version = version
            for weights in (self._all, *self._by_key.values()):
                if weights is not None:
                    weights.forget()


def _covers(namespace: str, labels: Mapping[str, str] | None) -> Callable[[_Scope], bool]:
    def covers(scope: _Scope) -> bool:
        listed, by_labels = scope
        if namespace in listed:
            return True
        return by_labels is not None and (labels is None or PodQuery(None, by_labels).admits(labels))

    return covers
