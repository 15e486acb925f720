"""Macros: calls that the parser replaces by comprehensions.

Standard ones, optMap and optFlatMap, cel.bind, sortBy, and those with two variables. The expansion is that of cel-go,
because the type checker's errors and the cost follow from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from koordsched.plugins.dynamicresources.cel.source import Issues, SyntaxFailure
from koordsched.plugins.dynamicresources.cel.syntax import (
    Call,
    Comprehension,
    Entry,
    Ident,
    ListNode,
    Literal,
    Loop,
    MapNode,
    Node,
    Select,
)

ACCUMULATOR = "@result"
_OLD_ACCUMULATOR = "__result__"
UNUSED = "#unused"
SORT_INPUT = "@__sortBy_input__"
MAP_INSERT = "cel.@mapInsert"


@dataclass
class Builder:
    """Makes nodes at the position of the macro's call."""

    issues: Issues
    position: int = 0

    def call(self, function: str, *arguments: Node) -> Call:
        """A function."""
        return Call(self.position, function, None, list(arguments))

    def member(self, function: str, target: Node, *arguments: Node) -> Call:
        """A method."""
        return Call(self.position, function, target, list(arguments))

    def literal(self, value: bool | int) -> Literal:
        """A constant."""
        return Literal(self.position, value)

    def list(self, *elements: Node) -> ListNode:
        """A list."""
        return ListNode(self.position, list(elements), frozenset())

    def map(self, *entries: Entry) -> MapNode:
        """A map."""
        return MapNode(self.position, list(entries))

    def accumulated(self) -> Ident:
        """The accumulator so far."""
        return Ident(self.position, ACCUMULATOR)

    def fail(self, position: int, message: str) -> None:
        """Reports an error of the arguments. Raises SyntaxFailure."""
        self.issues.report(position, message)
        raise SyntaxFailure


def expand(builder: Builder, position: int, function: str, target: Node | None, arguments: list[Node]) -> Node:
    """What a call stands for: the call itself, or the expansion of the macro that it is."""
    builder.position = position
    if target is None:
        if function == "has" and len(arguments) == 1:
            return _has(builder, arguments[0])
    elif (macro := _MACROS.get((function, len(arguments)))) and (tree := macro(builder, target, arguments)):
        return tree
    return Call(position, function, target, arguments)


_Macro = Callable[[Builder, Node, list[Node]], Node | None]


def _has(builder: Builder, argument: Node) -> Node:
    if not isinstance(argument, Select):
        builder.fail(argument.position, "invalid argument to has() macro")
        raise AssertionError("unreachable")
    return Select(builder.position, argument.operand, argument.field, test_only=True)


def _variable(builder: Builder, argument: Node, message: str) -> str:
    if not isinstance(argument, Ident):
        builder.fail(argument.position, message)
        raise AssertionError("unreachable")
    return argument.name


def _iteration_variable(builder: Builder, argument: Node, message: str) -> str:
    name = _variable(builder, argument, message)
    if name in (ACCUMULATOR, _OLD_ACCUMULATOR):
        builder.fail(argument.position, "iteration variable overwrites accumulator variable")
    return name


def _quantified(
    builder: Builder, loop: Loop, target: Node, variable: str, second: str | None, predicate: Node
) -> Comprehension:
    initial: Node
    condition: Node
    step: Node
    result: Node = builder.accumulated()
    if loop is Loop.ALL:
        initial = builder.literal(True)
        condition = builder.call("@not_strictly_false", builder.accumulated())
        step = builder.call("_&&_", builder.accumulated(), predicate)
    elif loop is Loop.EXISTS:
        initial = builder.literal(False)
        condition = builder.call("@not_strictly_false", builder.call("!_", builder.accumulated()))
        step = builder.call("_||_", builder.accumulated(), predicate)
    else:
        initial = builder.literal(0)
        condition = builder.literal(True)
        more = builder.call("_+_", builder.accumulated(), builder.literal(1))
        step = builder.call("_?_:_", predicate, more, builder.accumulated())
        result = builder.call("_==_", builder.accumulated(), builder.literal(1))
    parts = initial, condition, step, result
    return Comprehension(builder.position, target, variable, second, ACCUMULATOR, *parts, loop, predicate, None)


def _collecting(
    builder: Builder,
    loop: Loop,
    target: Node,
    variable: str,
    second: str | None,
    keep: Node | None,
    yields: Node,
) -> Comprehension:
    initial: Node
    step: Node
    if loop is Loop.LIST:
        initial = builder.list()
        step = builder.call("_+_", builder.accumulated(), builder.list(yields))
    else:
        initial = builder.map()
        keys = (Ident(builder.position, variable),) if loop is Loop.MAP else ()
        step = builder.call(MAP_INSERT, builder.accumulated(), *keys, yields)
    if keep is not None:
        step = builder.call("_?_:_", keep, step, builder.accumulated())
    parts = initial, builder.literal(True), step, builder.accumulated()
    return Comprehension(builder.position, target, variable, second, ACCUMULATOR, *parts, loop, keep, yields)


def _bound(builder: Builder, name: str, value: Node, result: Node) -> Comprehension:
    parts = value, builder.literal(False), Ident(builder.position, name), result
    return Comprehension(builder.position, builder.list(), UNUSED, None, name, *parts, Loop.BIND, None, None)


def _quantifier(loop: Loop) -> _Macro:
    def make(builder: Builder, target: Node, arguments: list[Node]) -> Node:
        name = _iteration_variable(builder, arguments[0], "argument must be a simple name")
        return _quantified(builder, loop, target, name, None, arguments[1])

    return make


def _quantifier_of_two(loop: Loop) -> _Macro:
    def make(builder: Builder, target: Node, arguments: list[Node]) -> Node:
        return _quantified(builder, loop, target, *_two_variables(builder, arguments), arguments[2])

    return make


def _two_variables(builder: Builder, arguments: list[Node]) -> tuple[str, str]:
    first = _variable(builder, arguments[0], "argument must be a simple name")
    second = _variable(builder, arguments[1], "argument must be a simple name")
    if first == second:
        builder.fail(arguments[1].position, f"duplicate variable name: {first}")
    _iteration_variable(builder, arguments[0], "")
    _iteration_variable(builder, arguments[1], "")
    return first, second


def _map(builder: Builder, target: Node, arguments: list[Node]) -> Node:
    name = _iteration_variable(builder, arguments[0], "argument is not an identifier")
    keep = arguments[1] if len(arguments) == 3 else None
    return _collecting(builder, Loop.LIST, target, name, None, keep, arguments[-1])


def _filter(builder: Builder, target: Node, arguments: list[Node]) -> Node:
    name = _iteration_variable(builder, arguments[0], "argument is not an identifier")
    return _collecting(builder, Loop.LIST, target, name, None, arguments[1], arguments[0])


def _transform(loop: Loop) -> _Macro:
    def make(builder: Builder, target: Node, arguments: list[Node]) -> Node:
        keep = arguments[2] if len(arguments) == 4 else None
        return _collecting(builder, loop, target, *_two_variables(builder, arguments), keep, arguments[-1])

    return make


def _bind(builder: Builder, target: Node, arguments: list[Node]) -> Node | None:
    if not isinstance(target, Ident) or target.name != "cel":
        return None
    name = _variable(builder, arguments[0], "cel.bind() variable names must be simple identifiers")
    return _bound(builder, name, arguments[1], arguments[2])


def _optional(*, flat: bool) -> _Macro:
    def make(builder: Builder, target: Node, arguments: list[Node]) -> Node:
        function = "optFlatMap" if flat else "optMap"
        name = _variable(builder, arguments[0], f"{function}() variable name must be a simple identifier")
        value: Node = _bound(builder, name, builder.member("value", target), arguments[1])
        if not flat:
            value = builder.call("optional.of", value)
        return builder.call("_?_:_", builder.member("hasValue", target), value, builder.call("optional.none"))

    return make


def _sort_by(builder: Builder, target: Node, arguments: list[Node]) -> Node:
    if isinstance(target, (Literal, MapNode)):
        message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        builder.fail(target.position, message)
    keys = _map(builder, Ident(builder.position, SORT_INPUT), arguments)
    sort = builder.member("@sortByAssociatedKeys", Ident(builder.position, SORT_INPUT), keys)
    return _bound(builder, SORT_INPUT, target, sort)


_MACROS: dict[tuple[str, int], _Macro] = {
    ("all", 2): _quantifier(Loop.ALL),
    ("exists", 2): _quantifier(Loop.EXISTS),
    ("exists_one", 2): _quantifier(Loop.EXISTS_ONE),
    ("existsOne", 2): _quantifier(Loop.EXISTS_ONE),
    ("map", 2): _map,
    ("map", 3): _map,
    ("filter", 2): _filter,
    ("all", 3): _quantifier_of_two(Loop.ALL),
    ("exists", 3): _quantifier_of_two(Loop.EXISTS),
    ("exists_one", 3): _quantifier_of_two(Loop.EXISTS_ONE),
    ("existsOne", 3): _quantifier_of_two(Loop.EXISTS_ONE),
    ("transformList", 3): _transform(Loop.LIST),
    ("transformList", 4): _transform(Loop.LIST),
    ("transformMap", 3): _transform(Loop.MAP),
    ("transformMap", 4): _transform(Loop.MAP),
    ("transformMapEntry", 3): _transform(Loop.ENTRIES),
    ("transformMapEntry", 4): _transform(Loop.ENTRIES),
    ("bind", 3): _bind,
    ("optMap", 2): _optional(flat=False),
    ("optFlatMap", 2): _optional(flat=True),
    ("sortBy", 2): _sort_by,
}
