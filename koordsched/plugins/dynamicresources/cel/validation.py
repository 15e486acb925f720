"""Checks of a tree that is well typed: literals that are no duration, timestamp or pattern, mixed lists, formats.

They run on trees without other errors only, as upstream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from koordsched.plugins.dynamicresources.cel import types
from koordsched.plugins.dynamicresources.cel.errors import Failure
from koordsched.plugins.dynamicresources.cel.frame import MOST_PATTERNS
from koordsched.plugins.dynamicresources.cel.regexes import pattern
from koordsched.plugins.dynamicresources.cel.source import Issues
from koordsched.plugins.dynamicresources.cel.stringformat import WANTED, clauses
from koordsched.plugins.dynamicresources.cel.syntax import Call, Comprehension, ListNode, Literal, MapNode, Node, Select
from koordsched.plugins.dynamicresources.cel.times import EARLIEST, LATEST, parse_duration, parse_timestamp
from koordsched.plugins.dynamicresources.cel.types import Kind, Type
from koordsched.plugins.dynamicresources.cel.unification import unwrap_optional
from koordsched.plugins.dynamicresources.cel.values import Value

_OF_PATTERNS = ("matches", "find", "findAll")
"""Functions of text and regular expression."""

_MIXED_ALLOWED = "format"
"""The function below which lists and maps may be mixed."""


def validate(tree: Node, issues: Issues) -> None:
    """Reports what is wrong."""
    found = list(walk(tree))
    if (position := _position_of_too_many([node for node, _ in found if isinstance(node, Call)])) is not None:
        issues.report(position, f"more than {MOST_PATTERNS} regular expressions")
        return
    for function, valid in _LITERALS.items():
        for node, _ in found:
            if isinstance(node, Call) and node.function == function:
                _check_literal(node, valid, issues)
    for node, mixed in found:
        if isinstance(node, ListNode) and not mixed:
            _check_list(node, issues)
    for node, mixed in found:
        if isinstance(node, MapNode) and not mixed:
            _check_map(node, issues)
    for node, _ in found:
        if isinstance(node, Call) and node.function == "format":
            _check_format(node, issues)


def _position_of_too_many(calls: list[Call]) -> int | None:
    """Of the first regular expression that is one too many."""
    patterns: set[Value] = set()
    for node in calls:
        if node.function in _OF_PATTERNS and node.arguments and isinstance(node.arguments[0], Literal):
            patterns.add(node.arguments[0].value)
            if len(patterns) > MOST_PATTERNS:
                return node.arguments[0].position
    return None


def children(node: Node) -> list[Node]:
    """The parts of a node, in the order of the text."""
    match node:
        case Select():
            return [node.operand]
        case Call():
            return node.arguments if node.target is None else [node.target, *node.arguments]
        case ListNode():
            return node.elements
        case MapNode():
            return [part for entry in node.entries for part in (entry.key, entry.value)]
        case Comprehension():
            return [node.range, node.initial, node.condition, node.step, node.result]
    return []


def walk(tree: Node) -> Iterator[tuple[Node, bool]]:
    """Every node once, parents first, and whether mixed lists are allowed there."""
    seen: set[Node] = set()
    waiting = [(tree, False)]
    while waiting:
        node, mixed = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node, mixed
        mixed = mixed or (isinstance(node, Call) and node.function == _MIXED_ALLOWED)
        waiting += [(each, mixed) for each in reversed(children(node))]


def _is_pattern(text: Value) -> bool:
    try:
        pattern(text)
    except Failure:
        return False
    return True


def _is_duration(value: Value) -> bool:
    return type(value) is str and parse_duration(value) is not None


def _is_timestamp(value: Value) -> bool:
    if type(value) is int:
        return EARLIEST <= value <= LATEST
    try:
        return type(value) is str and parse_timestamp(value) is not None
    except Failure:
        return False


_LITERALS: dict[str, Callable[[Value], bool]] = {
    "duration": _is_duration,
    "timestamp": _is_timestamp,
    "matches": _is_pattern,
}


def _check_literal(node: Call, valid: Callable[[Value], bool], issues: Issues) -> None:
    argument = node.arguments[0] if node.arguments else None
    if isinstance(argument, Literal) and not valid(argument.value):
        issues.report(argument.position, f"invalid {node.function} argument")


def _differ(node: Node, expected: Type, found: Type, issues: Issues) -> bool:
    if expected == found:
        return False
    issues.report(node.position, f"expected type '{expected.shown}' but found '{found.shown}'")
    return True


def _type(node: Node, *, optional: bool) -> Type:
    type_ = node.type or types.ERROR
    return unwrap_optional(type_)[0] if optional else type_


def _check_list(node: ListNode, issues: Issues) -> None:
    expected: Type | None = None
    for index, element in enumerate(node.elements):
        found = _type(element, optional=index in node.optional)
        expected = expected or found
        if _differ(element, expected, found, issues):
            return


def _check_map(node: MapNode, issues: Issues) -> None:
    expected: tuple[Type, Type] | None = None
    for entry in node.entries:
        found = _type(entry.key, optional=False), _type(entry.value, optional=entry.optional)
        expected = expected or found
        _differ(entry.key, expected[0], found[0], issues)
        _differ(entry.value, expected[1], found[1], issues)


# --- string.format

_ALLOWED = {
    "s": frozenset(
        (
            Kind.LIST,
            Kind.MAP,
            Kind.INT,
            Kind.UINT,
            Kind.DOUBLE,
            Kind.BOOL,
            Kind.STRING,
            Kind.TIMESTAMP,
            Kind.BYTES,
            Kind.DURATION,
            Kind.TYPE,
            Kind.NULL,
        )
    ),
    "d": frozenset((Kind.INT, Kind.UINT)),
    "f": frozenset((Kind.DOUBLE, Kind.STRING)),
    "e": frozenset((Kind.DOUBLE, Kind.STRING)),
    "b": frozenset((Kind.INT, Kind.UINT, Kind.BOOL)),
    "x": frozenset((Kind.INT, Kind.UINT, Kind.STRING, Kind.BYTES)),
    "o": frozenset((Kind.INT, Kind.UINT)),
}


def _check_format(node: Call, issues: Issues) -> None:
    template = node.target
    if not isinstance(template, Literal) or type(template.value) is not str or len(node.arguments) != 1:
        return
    arguments = node.arguments[0]
    if not isinstance(arguments, ListNode):
        return
    try:
        parts = [each for each in clauses(template.value, len(arguments.elements)) if each.letter]
    except Failure as error:
        issues.report(node.position, str(error))
        return
    for clause, argument in zip(parts, arguments.elements, strict=False):
        letter = clause.letter.lower()
        if (bad := _unfit(letter, argument)) is not None:
            found = bad.type or types.ERROR
            issues.report(bad.position, f"error during formatting: {WANTED[letter].format(found.name)}")
            return
    if len(arguments.elements) > len(parts):
        counts = f"(expected {len(parts)}, got {len(arguments.elements)})"
        issues.report(node.position, f"too many arguments supplied to string.format {counts}")


def _unfit(letter: str, node: Node) -> Node | None:
    """The argument, or the part of it, that the clause is not for."""
    type_ = node.type or types.ERROR
    if type_.kind is not Kind.DYN and type_.kind not in _ALLOWED[letter]:
        return node
    if letter == "s" and isinstance(node, (ListNode, MapNode)):
        return next((bad for each in children(node) if (bad := _unfit(letter, each)) is not None), None)
    return None
