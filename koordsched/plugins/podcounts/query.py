"""Descriptions of pods that can be compared, hashed and asked: namespaces and a label selector."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koordsched.api.meta import LabelSelector
from koordsched.api.selectors import Selector, SelectorError, value_test

Requirement = tuple[str, str, tuple[str, ...]]
"""(label key, operator, values)."""

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def requirements_of(selector: LabelSelector) -> tuple[Requirement, ...]:
    """The selector in canonical form: equal for selectors that are written differently but say the same."""
    found: set[Requirement] = {(key, "In", (value,)) for key, value in selector.match_labels.items()}
    found |= {(e.key, e.operator, tuple(sorted(set(e.values)))) for e in selector.match_expressions}
    return tuple(sorted(found))


def pinned(labels: Mapping[str, str], keys: Iterable[str]) -> tuple[Requirement, ...]:
    """Requirements for exactly the values that `labels` has under these keys; absent ones require nothing."""
    return tuple((key, "In", (labels[key],)) for key in keys if key in labels)


def _compile(requirements: tuple[Requirement, ...]) -> Selector:
    for _, operator, _ in requirements:
        if operator not in _OPERATORS:
            raise SelectorError(f"{operator[:64]!r} is not a valid label selector operator")
    return Selector(
        tuple((key, value_test(operator, values)) for key, operator, values in requirements),
        tuple((key, values[0]) for key, operator, values in requirements if operator == "In" and len(values) == 1),
    )


class PodQuery:
    """Pods of some namespaces (None: of all) with labels that satisfy the requirements (none: any labels).

    Raises SelectorError if a requirement is not valid. Equal queries are interchangeable.
    """

    __slots__ = ("_hash", "namespaces", "requirements", "selector")

    def __init__(self, namespaces: frozenset[str] | None, requirements: tuple[Requirement, ...]) -> None:
        self.namespaces = namespaces
        self.requirements = requirements
        self.selector = _compile(requirements)
        self._hash = hash((namespaces, requirements))

    def covers(self, namespace: str) -> bool:
        """Whether pods of the namespace can match."""
        return self.namespaces is None or namespace in self.namespaces

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a pod of that namespace with these labels matches."""
        return self.covers(namespace) and self.selector.matches(labels)

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
