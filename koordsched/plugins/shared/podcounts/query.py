"""Descriptions of pods that can be compared, hashed and asked: namespaces and a label selector."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from koordsched.api.meta import LabelSelector
from koordsched.api.selectors import Requirement, Selector, check
from koordsched.plugins.shared.podcounts.bits import Weights
from koordsched.plugins.shared.podcounts.labelselectors import LabelSelectors, Requirements
from koordsched.plugins.shared.podcounts.namespaces import NamespaceScopes


def requirements_of(selector: LabelSelector) -> Requirements:
    """The selector in canonical form: equal for selectors that are written differently but say the same."""
    found: set[Requirement] = {(key, "In", (value,)) for key, value in selector.match_labels.items()}
    found |= {(e.key, e.operator, tuple(sorted(set(e.values)))) for e in selector.match_expressions}
    return tuple(sorted(found))


def pinned(labels: Mapping[str, str], keys: Iterable[str]) -> Requirements:
    """Requirements for exactly the values that `labels` has under these keys; absent ones require nothing."""
    return tuple((key, "In", (labels[key],)) for key in keys if key in labels)


_QUERY_BYTES, _VALUE_BYTES = 1500, 120
"""What a query takes, with the index of its labels and its set of namespaces; and each value that it asks for."""


class PodQuery:
    """Pods of some namespaces (None: of all) with labels that satisfy the requirements (none: any labels).

    Raises SelectorError if a requirement is not valid. Equal queries are interchangeable.
    """

    __slots__ = ("_hash", "_selector", "namespaces", "requirements")

    def __init__(self, namespaces: Set[str] | None, requirements: Requirements) -> None:
        check(requirements)
        self.namespaces = namespaces
        self.requirements = requirements
        self._selector: Selector | None = None
        self._hash = hash((namespaces, requirements))

    @classmethod
    def all_of(cls, queries: Iterable[PodQuery]) -> PodQuery:
        """The pods that match all of them."""
        namespaces: Set[str] | None = None
        requirements: set[Requirement] = set()
        for query in queries:
            requirements.update(query.requirements)
            if query.namespaces is not None:
                namespaces = query.namespaces if namespaces is None else namespaces & query.namespaces
        return cls(namespaces, tuple(sorted(requirements)))

    @property
    def equalities(self) -> tuple[tuple[str, str], ...]:
        """(key, value) pairs that every match carries."""
        return tuple((key, values[0]) for key, op, values in self.requirements if op == "In" and len(values) == 1)

    @property
    def nbytes(self) -> int:
        """About what it takes."""
        return _QUERY_BYTES + sum(_VALUE_BYTES * (1 + len(values)) for _, _, values in self.requirements)

    def covers(self, namespace: str) -> bool:
        """Whether pods of the namespace can match."""
        return self.namespaces is None or namespace in self.namespaces

    def admits(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy the requirements."""
        selector = self._selector
        if selector is None:
            selector = self._selector = Selector(self.requirements)
        return selector.matches(labels)

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a pod of that namespace with these labels matches."""
        return self.covers(namespace) and self.admits(labels)

    def weigh(self, namespace: str, labels: Mapping[str, str]) -> int:
        """1 for pods that match, otherwise 0."""
        return 1 if self.covers(namespace) and self.admits(labels) else 0

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PodQuery)
            and self._hash == other._hash
            and (self.namespaces, self.requirements) == (other.namespaces, other.requirements)
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"PodQuery({self.namespaces and sorted(self.namespaces)}, {self.requirements})"


class WeightedQueries:
    """Queries of which any may match; a pod counts as much as those that match it weigh together.

    Weights are positive. Equal ones are interchangeable.
    """

    __slots__ = ("_compiled", "_hash", "_weights", "members")

    equalities: tuple[tuple[str, str], ...] = ()
    """There is no label that every match carries."""

    def __init__(self, members: tuple[tuple[int, PodQuery], ...]) -> None:
        self.members = members
        self._weights = Weights([weight for weight, _ in members])
        self._compiled: tuple[LabelSelectors, NamespaceScopes] | None = None
        self._hash = hash(members)

    @property
    def nbytes(self) -> int:
        """About what they take."""
        return sum(query.nbytes for _, query in self.members)

    def weigh(self, namespace: str, labels: Mapping[str, str]) -> int:
        """The sum of the weights of the queries that match; 0 if none does."""
        if self._compiled is None:
            self._compiled = (
                LabelSelectors(query.requirements for _, query in self.members),
                NamespaceScopes([query.namespaces for _, query in self.members]),
            )
        selectors, scopes = self._compiled
        matching = selectors.matching(labels)
        return self._weights.of(matching & scopes.of(namespace)) if matching else 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WeightedQueries) and self._hash == other._hash and self.members == other.members

    def __hash__(self) -> int:
        return self._hash


PodWeights = PodQuery | WeightedQueries
"""How much a pod counts, by its namespace and labels."""
