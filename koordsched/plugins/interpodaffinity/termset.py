"""The terms of an existing pod that has many of them, put to incoming pods all at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from koordsched.plugins.interpodaffinity.terms import Term
from koordsched.plugins.shared.podcounts.bits import BitIndex, Weights, bits
from koordsched.plugins.shared.podcounts.labelselectors import LabelSelectors


class TermSet:
    """Terms with positive weights; their selectors must be valid.

    `node_keys`: the label keys that some node has. Terms with other keys concern no node, so a pod may name ten
    thousand keys.
    """

    __slots__ = ("_by_key", "_by_labels", "_listed", "_namespaces", "_node_keys", "_selectors", "_weights")

    equalities: tuple[tuple[str, str], ...] = ()
    """There is no label that all pods carry which are meant."""

    def __init__(self, terms: Iterable[tuple[int, Term]], node_keys: Collection[str]) -> None:
        members = list(terms)
        self._node_keys = node_keys
        self._weights = Weights([weight for weight, _ in members])
        self._selectors = LabelSelectors(term.requirements for _, term in members)
        self._namespaces = LabelSelectors(term.by_labels or () for _, term in members)
        self._by_labels = bits(number for number, (_, term) in enumerate(members) if term.by_labels is not None)
        self._listed: BitIndex[str] = BitIndex()
        self._by_key: BitIndex[str] = BitIndex()
        for number, (_, term) in enumerate(members):
            self._by_key.add(term.key, number)
            for name in term.listed:
                self._listed.add(name, number)

    @property
    def keys(self) -> Collection[str]:
        """The topology keys, each once."""
        return self._by_key.keys()

    def matches(self, namespace: str, namespace_labels: Mapping[str, str] | None, labels: Mapping[str, str]) -> bool:
        """Whether any term means a pod of that namespace with these labels; unknown labels (None) may be any."""
        return self._meaning(namespace, namespace_labels, labels) > 0

    def applying(
        self, namespace: str, namespace_labels: Mapping[str, str] | None, labels: Mapping[str, str]
    ) -> Iterator[tuple[str, int]]:
        """(topology key, what the terms with this key weigh together that mean such a pod)."""
        found = self._meaning(namespace, namespace_labels, labels)
        if not found:
            return
        keys = self._by_key.keys()
        for key in self._node_keys if len(self._node_keys) < len(keys) else keys:
            if key not in self._node_keys:
                continue
            weight = self._weights.of(found & self._by_key.of((key,)))
            if weight:
                yield key, weight

    def _meaning(self, namespace: str, namespace_labels: Mapping[str, str] | None, labels: Mapping[str, str]) -> int:
        found = self._selectors.matching(labels)
        if not found:
            return 0
        covering = self._by_labels
        if covering and namespace_labels is not None:
            covering &= self._namespaces.matching(namespace_labels)
        return found & (covering | self._listed.of((namespace,)))
