"""Node selectors, compiled to tests over the label columns.

Source: component-helpers `scheduling/corev1/nodeaffinity`; default-plugins spec 3.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakValueDictionary

import numpy as np

from koordsched.api.core import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec
from koordsched.api.selectors import SelectorError, check_labels, field_test, is_label_key, is_label_value, value_test
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.plugins.shared.matching.lookup import LabelTest, MembershipTest
from koordsched.plugins.shared.matching.rows import Mask, count_of

_ABSENT = (None,)
"""What a label key without a value is looked up as."""


class NameTest:
    """A matchFields requirement: the node is, or is not, the one of that name."""

    __slots__ = ("name", "wanted")

    def __init__(self, requirement: NodeSelectorRequirement) -> None:
        """Raises SelectorError unless it is metadata.name, In or NotIn, one value."""
        self.name = requirement.values[0] if requirement.values else ""
        self.wanted = field_test(requirement)(self.name)

    def passes(self, name: str) -> bool:
        """The verdict on a node's name."""
        return (name == self.name) == self.wanted

    def mask(self, table: NodeTable, rows: Rows) -> Mask:
        """The verdict on each row."""
        row = table.row_of.get(self.name, -1)
        if not isinstance(rows, slice):
            return np.asarray(rows == row if self.wanted else rows != row)
        mask = np.full(count_of(rows), not self.wanted, dtype=np.bool_)
        if rows.start <= row < rows.stop:
            mask[row - rows.start] = self.wanted
        return mask


class NodeTerm:
    """Tests of labels and of the name, ANDed."""

    __slots__ = ("_labels", "_names")

    def __init__(self, labels: tuple[LabelTest, ...], names: tuple[NameTest, ...] = ()) -> None:
        self._labels = labels
        self._names = names

    def matches(self, node: Node) -> bool:
        """The verdict on a node as the watch delivered it."""
        labels = node.metadata.labels
        return all(test.passes(labels.get(test.key)) for test in self._labels) and all(
            test.passes(node.metadata.name) for test in self._names
        )

    def matches_row(self, table: NodeTable, row: int) -> bool:
        """The verdict on the node of one row."""
        return all(test.passes_row(table, row) for test in self._labels) and all(
            test.passes(table.names[row]) for test in self._names
        )

    def mask(self, table: NodeTable, rows: Rows) -> Mask:
        """The verdict on each row."""
        tests: list[LabelTest | NameTest] = list(self._names)
        for test in self._labels:
            if test.key in table.label_keys:
                tests.append(test)
            elif not test.passes(None):
                return np.zeros(count_of(rows), dtype=np.bool_)
        if not tests:
            return np.ones(count_of(rows), dtype=np.bool_)
        mask = tests[0].mask(table, rows)
        for other in tests[1:]:
            mask &= other.mask(table, rows)
        return mask


class EqualLabels:
    """A nodeSelector: every label present with that value. It keeps nothing beside the labels that it is made from."""

    __slots__ = ("_labels",)

    def __init__(self, labels: dict[str, str]) -> None:
        self._labels = labels

    def matches(self, node: Node) -> bool:
        """The verdict on a node as the watch delivered it."""
        return self._labels.items() <= node.metadata.labels.items()

    def matches_row(self, table: NodeTable, row: int) -> bool:
        """The verdict on the node of one row."""
        for key, value in self._labels.items():
            column = table.label_column(key)
            if column.values[column.ids.data.item(row)] != value:
                return False
        return True

    def mask(self, table: NodeTable, rows: Rows) -> Mask:
        """The verdict on each row."""
        found: Mask | None = None
        if self._labels.keys() <= table.label_keys:
            for key, value in self._labels.items():
                column = table.label_column(key)
                number = column.index.get(value)
                if number is None:
                    break
                mask = np.asarray(column.ids.data[rows] == number)
                found = mask if found is None else found & mask
            else:
                assert found is not None, "a selector is not empty"
                return found
        return np.zeros(count_of(rows), dtype=np.bool_)


class NodeTerms:
    """Terms, ORed; none at all match nothing."""

    __slots__ = ("_terms",)

    def __init__(self, terms: tuple[NodeTerm, ...]) -> None:
        self._terms = terms

    def matches(self, node: Node) -> bool:
        """The verdict on a node as the watch delivered it."""
        return any(term.matches(node) for term in self._terms)

    def matches_row(self, table: NodeTable, row: int) -> bool:
        """The verdict on the node of one row."""
        return any(term.matches_row(table, row) for term in self._terms)

    def mask(self, table: NodeTable, rows: Rows) -> Mask:
        """The verdict on each row."""
        if not self._terms:
            return np.zeros(count_of(rows), dtype=np.bool_)
        mask = self._terms[0].mask(table, rows)
        for term in self._terms[1:]:
            mask |= term.mask(table, rows)
        return mask


class RequiredNodes:
    """What a pod requires of its node: nodeSelector and required node affinity. None where it has none."""

    __slots__ = ("_affinity", "_selector")

    def __init__(self, selector: EqualLabels | None, affinity: NodeTerms | None) -> None:
        self._selector = selector
        self._affinity = affinity

    def matches(self, node: Node) -> bool:
        """The verdict on a node as the watch delivered it."""
        return (self._selector is None or self._selector.matches(node)) and (
            self._affinity is None or self._affinity.matches(node)
        )

    def matches_row(self, table: NodeTable, row: int) -> bool:
        """The verdict on the node of one row."""
        return (self._selector is None or self._selector.matches_row(table, row)) and (
            self._affinity is None or self._affinity.matches_row(table, row)
        )

    def mask(self, table: NodeTable, rows: Rows) -> Mask:
        """The verdict on each row."""
        if self._affinity is not None:
            mask = self._affinity.mask(table, rows)
            return mask if self._selector is None else mask & self._selector.mask(table, rows)
        if self._selector is not None:
            return self._selector.mask(table, rows)
        return np.ones(count_of(rows), dtype=np.bool_)


def _single_value(term: NodeSelectorTerm) -> tuple[str, str] | None:
    """The label key and value that a term asks for, if it is valid and asks for nothing else."""
    if term.match_fields or len(term.match_expressions) != 1:
        return None
    only = term.match_expressions[0]
    if only.operator != "In" or len(only.values) != 1:
        return None
    value = only.values[0]
    return (only.key, value) if is_label_key(only.key) and is_label_value(value) else None


class NodeSelectors:
    """Compiles node selectors; equal requirements share the look-up table of their test, if it has one."""

    __slots__ = ("_tests",)

    def __init__(self) -> None:
        self._tests: WeakValueDictionary[tuple[str, str, tuple[str, ...]], LabelTest] = WeakValueDictionary()

    def required_by(self, spec: PodSpec) -> RequiredNodes:
        """What a pod's spec requires of its node."""
        affinity = spec.affinity.node_affinity if spec.affinity is not None else None
        required = affinity.required if affinity is not None else None
        return RequiredNodes(
            EqualLabels(spec.node_selector) if spec.node_selector else None,
            self.terms(required) if required is not None else None,
        )

    def terms(self, selector: NodeSelector) -> NodeTerms:
        """A node selector without the terms that never match."""
        return self.any_of(selector.node_selector_terms)

    def any_of(self, terms: Iterable[NodeSelectorTerm]) -> NodeTerms:
        """Terms, ORed, without those that never match; those that ask for one value of the same key become one."""
        found: list[NodeTerm] = []
        wanted: dict[str, dict[str, None]] = {}
        for term in terms:
            single = _single_value(term)
            if single is not None:
                wanted.setdefault(single[0], {})[single[1]] = None
            elif (compiled := self.term(term)) is not None:
                found.append(compiled)
        found.extend(NodeTerm((self._test(key, "In", tuple(values)),)) for key, values in wanted.items())
        return NodeTerms(tuple(found))

    def term(self, term: NodeSelectorTerm) -> NodeTerm | None:
        """One term; None if it never matches, being empty or not valid."""
        if not term.match_expressions and not term.match_fields:
            return None
        try:
            return NodeTerm(
                tuple(self._expression(requirement) for requirement in term.match_expressions),
                tuple(NameTest(requirement) for requirement in term.match_fields),
            )
        except SelectorError:
            return None

    def _expression(self, requirement: NodeSelectorRequirement) -> LabelTest:
        check_labels(requirement.key, requirement.values)
        return self._test(requirement.key, requirement.operator, requirement.values)

    def _test(self, key: str, operator: str, values: tuple[str, ...]) -> LabelTest:
        if operator in ("In", "NotIn"):
            return MembershipTest(key, values, inverted=operator == "NotIn")
        if operator in ("Exists", "DoesNotExist") and not values:
            return MembershipTest(key, _ABSENT, inverted=operator == "Exists")
        identity = (key, operator, values)
        found = self._tests.get(identity)
        if found is None:
            found = self._tests[identity] = LabelTest(key, value_test(operator, values))
        return found
