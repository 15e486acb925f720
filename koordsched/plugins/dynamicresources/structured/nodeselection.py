"""Which nodes a slice or a device is for: node selectors, compiled once (dra spec 3.6, pools for a node)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from koordsched.api.core import NodeSelector, NodeSelectorTerm
from koordsched.api.selectors import ValueTest, field_test, value_test


class CompiledSelector:
    """A node selector: terms, ORed; a term without requirements matches nothing."""

    __slots__ = ("_terms", "selector")

    def __init__(self, selector: NodeSelector) -> None:
        """Raises SelectorError."""
        self.selector = selector
        self._terms = tuple(_Term(term) for term in selector.node_selector_terms)

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """The verdict on a node."""
        return any(term.matches(name, labels) for term in self._terms)


class _Term:
    __slots__ = ("_labels", "_names")

    def __init__(self, term: NodeSelectorTerm) -> None:
        self._labels: list[tuple[str, ValueTest]] = [
            (each.key, value_test(each.operator, each.values)) for each in term.match_expressions
        ]
        self._names: list[Callable[[str], bool]] = [field_test(each) for each in term.match_fields]

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        if not self._labels and not self._names:
            return False
        return all(test(labels.get(key)) for key, test in self._labels) and all(test(name) for test in self._names)
