"""Label selectors and node selector terms, compiled once and asked many times.

Source: apimachinery `labels.Requirement`, component-helpers `nodeaffinity`; default-plugins spec 3.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping

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


Requirement = tuple[str, str, tuple[str, ...]]
"""One of a label selector: (label key, operator, values)."""

_TAKES_VALUES = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}
_FEW_VALUES = 8
"""Up to so many values are compared one by one."""


def check(requirements: Iterable[Requirement]) -> None:
    """Raises SelectorError if one is not valid."""
    for _, operator, values in requirements:
        takes_values = _TAKES_VALUES.get(operator)
        if takes_values is None:
            raise SelectorError(f"{operator[:64]!r} is not a valid label selector operator")
        if takes_values is not bool(values):
            value_test(operator, values)


class Selector:
    """A compiled label selector. Users write tens of thousands of requirements: a verdict costs what the labels take.

    `required`: by key, the values of which the label must have one, None for any; `forbidden`: the values that it must
    not have. `equalities` are the (key, value) pairs that every match must carry, which an index can be keyed by;
    `empty` is true for `{}`, which matches everything.
    """

    __slots__ = ("empty", "equalities", "forbidden", "required")

    def __init__(self, requirements: Iterable[Requirement]) -> None:
        """The requirements, which must be valid, are ANDed."""
        self.required: dict[str, Collection[str] | None] = {}
        self.forbidden: dict[str, Collection[str] | None] = {}
        equalities: list[tuple[str, str]] = []
        for key, operator, values in requirements:
            if operator == "In":
                if len(values) == 1:
                    equalities.append((key, values[0]))
                known = self.required.get(key)
                self.required[key] = _compact(values) if known is None else _common(known, values)
            elif operator == "Exists":
                self.required.setdefault(key)
            elif operator == "DoesNotExist":
                self.forbidden[key] = None
            elif key not in self.forbidden:
                self.forbidden[key] = _compact(values)
            elif (known := self.forbidden[key]) is not None:
                self.forbidden[key] = _joined(known, values)
        self.equalities = tuple(equalities)
        self.empty = not self.required and not self.forbidden

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy every requirement."""
        required, forbidden = self.required, self.forbidden
        if len(required) > len(labels):
            return False
        for key, wanted in required.items():
            value = labels.get(key)
            if value is None or (wanted is not None and value not in wanted):
                return False
        for key in forbidden if len(forbidden) < len(labels) else labels:
            if key in forbidden and (value := labels.get(key)) is not None:
                unwanted = forbidden[key]
                if unwanted is None or value in unwanted:
                    return False
        return True


def _compact(values: tuple[str, ...]) -> Collection[str]:
    return values if len(values) <= _FEW_VALUES else frozenset(values)


def _common(known: Collection[str], values: tuple[str, ...]) -> Collection[str]:
    """The values in both."""
    wanted = _compact(values)
    return _compact(tuple(value for value in known if value in wanted))


def _joined(known: Collection[str], values: tuple[str, ...]) -> set[str]:
    joined = known if isinstance(known, set) else set(known)
    joined.update(values)
    return joined


EVERYTHING = Selector(())


def compile_selector(selector: LabelSelector) -> Selector:
    """Compiles a label selector. Raises SelectorError if an expression is not valid."""
    if not selector.match_labels and not selector.match_expressions:
        return EVERYTHING
    requirements: list[Requirement] = [(key, "In", (value,)) for key, value in sorted(selector.match_labels.items())]
    requirements += ((each.key, each.operator, each.values) for each in selector.match_expressions)
    check(requirements)
    return Selector(requirements)


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
