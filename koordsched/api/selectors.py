"""Label selectors and node selector terms, compiled once and asked many times.

Source: apimachinery `labels.Requirement`, component-helpers `nodeaffinity`; default-plugins spec 3.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from koordsched.api.core import NodeSelectorRequirement
from koordsched.api.meta import LabelSelector

_NAME = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,63}", re.ASCII)


class SelectorError(ValueError):
    """The selector cannot be parsed; the message says where and why."""


def is_label_key(text: str) -> bool:
    """Whether the text is a qualified name: an optional DNS prefix, then at most 63 characters."""
    prefix, slash, name = text.rpartition("/")
    return bool(name) and _NAME.fullmatch(name) is not None and (not slash or _PREFIX.fullmatch(prefix) is not None)


def is_label_value(text: str) -> bool:
    """Whether the text may be the value of a label (it may be empty)."""
    return _NAME.fullmatch(text) is not None


def check_labels(key: str, values: Iterable[str]) -> None:
    """Raises SelectorError unless these may be the key and values of labels: for what no API server has checked."""
    if not is_label_key(key):
        raise SelectorError(f"not a label key: {key[:64]!r}")
    for value in values:
        if not is_label_value(value):
            raise SelectorError(f"not a label value: {value[:64]!r}")


def parse_integer(text: str) -> int | None:
    """The value of a signed 64-bit integer in decimal, as Gt and Lt compare them; None if it is not one."""
    if _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


ValueTest = Callable[[str | None], bool]
"""Decides on the value of one label; None stands for an absent label."""


def value_test(operator: str, values: tuple[str, ...]) -> ValueTest:
    """The test that a requirement puts to the value of its key.

    Operators: In, NotIn (also true for an absent key), Exists, DoesNotExist, Gt, Lt.
    Raises SelectorError for an unknown operator or a wrong number or kind of values.
    """
    if operator in ("In", "NotIn"):
        if not values:
            raise SelectorError(f"for operator {operator!r} at least one value is required")
        wanted = frozenset(values)
        if operator == "In":
            return lambda value: value in wanted
        return lambda value: value not in wanted
    if operator in ("Exists", "DoesNotExist"):
        if values:
            raise SelectorError(f"for operator {operator!r} no values are allowed")
        if operator == "Exists":
            return lambda value: value is not None
        return lambda value: value is None
    if operator in ("Gt", "Lt"):
        if len(values) != 1:
            raise SelectorError(f"for operator {operator!r} exactly one value is required")
        bound = parse_integer(values[0])
        if bound is None:
            raise SelectorError(f"for operator {operator!r} the value must be an integer, not {values[0][:64]!r}")
        if operator == "Gt":
            return lambda value: value is not None and (n := parse_integer(value)) is not None and n > bound
        return lambda value: value is not None and (n := parse_integer(value)) is not None and n < bound
    raise SelectorError(f"{operator[:64]!r} is not a valid selector operator")


class Selector:
    """A compiled label selector.

    `requirements` is the ANDed list of (key, test); `equalities` the (key, value) pairs that every match
    must carry, which an index can be keyed by; `empty` is true for `{}`, which matches everything.
    """

    __slots__ = ("empty", "equalities", "requirements")

    def __init__(self, requirements: tuple[tuple[str, ValueTest], ...], equalities: tuple[tuple[str, str], ...]):
        self.requirements = requirements
        self.equalities = equalities
        self.empty = not requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy every requirement."""
        get = labels.get
        return all(test(get(key)) for key, test in self.requirements)

    @property
    def keys(self) -> tuple[str, ...]:
        """The label keys that the verdict depends on."""
        return tuple(key for key, _ in self.requirements)


EVERYTHING = Selector((), ())


def compile_selector(selector: LabelSelector) -> Selector:
    """Compiles a label selector. Raises SelectorError if an expression is not valid."""
    if not selector.match_labels and not selector.match_expressions:
        return EVERYTHING
    requirements: list[tuple[str, ValueTest]] = []
    equalities: list[tuple[str, str]] = []
    for key, value in sorted(selector.match_labels.items()):
        requirements.append((key, value_test("In", (value,))))
        equalities.append((key, value))
    for expression in selector.match_expressions:
        if expression.operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            raise SelectorError(f"{expression.operator[:64]!r} is not a valid label selector operator")
        requirements.append((expression.key, value_test(expression.operator, expression.values)))
        if expression.operator == "In" and len(expression.values) == 1:
            equalities.append((expression.key, expression.values[0]))
    return Selector(tuple(requirements), tuple(equalities))


def compile_unchecked(selector: LabelSelector) -> Selector:
    """The same for a selector that no API server has checked. Raises SelectorError.

    As upstream, keys and values need to be those of labels only where there are expressions.
    """
    if selector.match_expressions:
        for key, value in selector.match_labels.items():
            check_labels(key, (value,))
        for expression in selector.match_expressions:
            check_labels(expression.key, expression.values)
    return compile_selector(selector)


def field_test(requirement: NodeSelectorRequirement) -> Callable[[str], bool]:
    """The test that a matchFields requirement puts to the node's name.

    Only `metadata.name` with In or NotIn and exactly one value exists; anything else raises SelectorError.
    """
    if requirement.key != "metadata.name":
        raise SelectorError(f"not a valid field selector key: {requirement.key[:64]!r}")
    if requirement.operator not in ("In", "NotIn") or len(requirement.values) != 1:
        raise SelectorError("a field selector takes the operator In or NotIn and exactly one value")
    name = requirement.values[0]
    if requirement.operator == "In":
        return lambda node: node == name
    return lambda node: node != name
