"""Types of expressions: which overloads a call may mean, and errors with cel-go's texts.

Source of the rules: cel-spec's type checking, in the details cel-go's checker, whose texts users know.
"""

from __future__ import annotations

from koordsched.plugins.dynamicresources.cel import types
from koordsched.plugins.dynamicresources.cel.declarations import Environment
from koordsched.plugins.dynamicresources.cel.source import Issues
from koordsched.plugins.dynamicresources.cel.syntax import (
    Call,
    Comprehension,
    Entry,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Message,
    Node,
    Select,
)
from koordsched.plugins.dynamicresources.cel.types import Kind, Type
from koordsched.plugins.dynamicresources.cel.unification import (
    Substitution,
    assignable,
    is_dynamic,
    most_general,
    substitute,
    unwrap_optional,
)
from koordsched.plugins.dynamicresources.cel.values import Uint

_LITERALS: dict[type, Type] = {
    bool: types.BOOL,
    bytes: types.BYTES,
    float: types.DOUBLE,
    int: types.INT,
    type(None): types.NULL,
    str: types.STRING,
    Uint: types.UINT,
}


def check(tree: Node, environment: Environment, issues: Issues) -> Type:
    """The type of the expression; every node gets its own, and every call its overloads. Errors go to `issues`."""
    return _Checker(environment, issues).whole(tree)


class _Checker:
    def __init__(self, environment: Environment, issues: Issues) -> None:
        self._environment = environment
        self._issues = issues
        self._known: Substitution = {}
        self._fresh = 0
        self._scopes: list[dict[str, Type]] = [environment.variables]
        self._checked: list[Node] = []

    def whole(self, tree: Node) -> Type:
        """Checks, and settles what is not known by then as dyn."""
        self._check(tree)
        for node in self._checked:
            node.type = substitute(self._known, node.type or types.ERROR, dynamic=True)
        return tree.type or types.ERROR

    # --- nodes

    def _check(self, node: Node) -> Type:
        if node.type is None:
            node.type = self._type(node)
            self._checked.append(node)
        return node.type

    def _type(self, node: Node) -> Type:
        match node:
            case Literal():
                return _LITERALS[type(node.value)]
            case Ident():
                found = self._lookup(node.name)
                return found if found is not None else self._undeclared(node, node.name)
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case ListNode():
                return self._list(node)
            case MapNode():
                return self._map(node)
            case Comprehension():
                return self._comprehension(node)
            case Message():
                return self._message(node)
        raise AssertionError(type(node))

    def _lookup(self, name: str) -> Type | None:
        name = name.removeprefix(".")
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        named = self._environment.types.get(name)
        return types.type_of(named) if named is not None else None

    def _undeclared(self, node: Node, name: str) -> Type:
        self._issues.report(node.position, f"undeclared reference to '{name}' (in container '')")
        return types.ERROR

    def _mismatch(self, node: Node, expected: Type, found: Type) -> None:
        self._issues.report(node.position, f"expected type '{expected.shown}' but found '{found.shown}'")

    # --- selection

    def _select(self, node: Select) -> Type:
        qualified = None if node.test_only else qualified_name(node)
        if qualified is not None:
            found = self._lookup(qualified)
            if found is not None:
                node.qualified = qualified.removeprefix(".")
                return found
        result = self._field(node, node.operand, node.field, optional=False)
        return types.BOOL if node.test_only else substitute(self._known, result, dynamic=False)

    def _field(self, node: Node, operand: Node, field: str, *, optional: bool) -> Type:
        target, unwrapped = unwrap_optional(substitute(self._known, self._check(operand), dynamic=False))
        if target.kind is Kind.MAP:
            result = target.parameters[1]
        elif target.kind is Kind.STRUCT:
            result = self._environment.fields.get(target.name, {}).get(field, types.ERROR)
            if result is types.ERROR:
                self._issues.report(node.position, f"undefined field '{field}'")
        else:
            result = types.DYN
            if target.kind is Kind.PARAMETER:
                self._assign(types.DYN, target)
            elif not is_dynamic(target) and target.kind is not Kind.ERROR:
                message = f"type '{target.shown}' does not support field selection"
                self._issues.report(node.position, message)
        return types.optional_of(result) if unwrapped or optional else result

    # --- calls

    def _call(self, node: Call) -> Type:
        if node.function == "_?._":
            field = node.arguments[1]
            assert isinstance(field, Literal)
            node.overloads = ["select_optional_field"]
            result = self._field(node, node.arguments[0], field.value, optional=True)
            return substitute(self._known, result, dynamic=False)
        for argument in node.arguments:
            self._check(argument)
        if node.target is None:
            node.function = node.function.removeprefix(".")
            return self._resolve(node)
        prefix = qualified_name(node.target)
        if prefix is not None:
            name = f"{prefix}.{node.function}".removeprefix(".")
            if name in self._environment.functions:
                node.function, node.target = name, None
                return self._resolve(node)
        self._check(node.target)
        return self._resolve(node)

    def _resolve(self, node: Call) -> Type:
        function = self._environment.functions.get(node.function)
        if function is None:
            return self._undeclared(node, node.function)
        operands = node.arguments if node.target is None else [node.target, *node.arguments]
        found = [each.type or types.ERROR for each in operands]
        if node.function in ("_&&_", "_||_"):
            return self._logical(operands, found)
        result: Type | None = None
        for overload in function.overloads:
            if overload.member is not (node.target is not None):
                continue
            parameters, returned = self._instantiated(overload.parameters, overload.result)
            known = assignable(self._known, found, parameters)
            if known is None:
                continue
            self._known = known
            node.overloads.append(overload.id)
            returned = substitute(known, returned, dynamic=False)
            if result is None:
                result = returned
            elif not is_dynamic(result) and returned != result:
                result = types.DYN
        if result is None:
            shown = [substitute(self._known, each, dynamic=True).shown for each in found]
            target = f"{shown.pop(0)}." if node.target is not None else ""
            message = f"found no matching overload for '{node.function}' applied to '{target}({', '.join(shown)})'"
            self._issues.report(node.position, message)
            return types.ERROR
        return result

    def _logical(self, operands: list[Node], found: list[Type]) -> Type:
        result = types.BOOL
        for operand, type_ in zip(operands, found, strict=True):
            if not self._assign(type_, types.BOOL):
                self._mismatch(operand, types.BOOL, type_)
                result = types.ERROR
        return result

    def _instantiated(self, parameters: tuple[Type, ...], result: Type) -> tuple[list[Type], Type]:
        fresh: Substitution = {}
        for each in (*parameters, result):
            self._freshen(each, fresh)
        if not fresh:
            return list(parameters), result
        instantiated = [substitute(fresh, each, dynamic=False) for each in (*parameters, result)]
        return instantiated[:-1], instantiated[-1]

    def _freshen(self, type_: Type, fresh: Substitution) -> None:
        if type_.kind is Kind.PARAMETER and type_.name not in fresh:
            fresh[type_.name] = self._variable()
        for each in type_.parameters:
            self._freshen(each, fresh)

    def _variable(self) -> Type:
        self._fresh += 1
        return types.parameter(f"_var{self._fresh - 1}")

    def _assign(self, first: Type, second: Type) -> bool:
        known = assignable(self._known, [first], [second])
        if known is None:
            return False
        self._known = known
        return True

    # --- collections

    def _list(self, node: ListNode) -> Type:
        joined: Type | None = None
        for index, element in enumerate(node.elements):
            type_ = self._check(element)
            if index in node.optional:
                type_ = self._unwrapped(element, type_)
            joined = self._join(joined, type_)
        return types.list_of(joined or self._variable())

    def _map(self, node: MapNode) -> Type:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            key = self._join(key, self._check(entry.key))
            type_ = self._check(entry.value)
            value = self._join(value, self._entry(entry, type_))
        return types.map_of(key or self._variable(), value or self._variable())

    def _entry(self, entry: Entry, type_: Type) -> Type:
        return self._unwrapped(entry.value, type_) if entry.optional else type_

    def _unwrapped(self, node: Node, type_: Type) -> Type:
        value, optional = unwrap_optional(type_)
        if not optional and not is_dynamic(value):
            self._mismatch(node, types.optional_of(value), value)
        return value

    def _join(self, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        # Mixed collections are refused by `validation`, which knows where they are allowed.
        return most_general(previous, current) if self._assign(previous, current) else types.DYN

    def _message(self, node: Message) -> Type:
        found = self._lookup(node.name)
        for entry in node.entries:
            self._check(entry.value)
        if found is None:
            return self._undeclared(node, node.name)
        named = found.parameters[0] if found.kind is Kind.TYPE else found
        what = "message type" if found.kind is Kind.TYPE else "type"
        self._issues.report(node.position, f"'{named.name}' is not a {what}")
        return types.ERROR

    # --- loops

    def _comprehension(self, node: Comprehension) -> Type:
        self._check(node.range)
        accumulated = self._check(node.initial)
        over = substitute(self._known, self._check(node.range), dynamic=False)
        self._scopes.append({node.accumulator: accumulated})
        first, second = self._iterated(node, over)
        scope = {node.variable: first}
        if node.second is not None:
            scope[node.second] = second
        self._scopes.append(scope)
        self._expect(node.condition, types.BOOL)
        self._expect(node.step, accumulated)
        self._scopes.pop()
        result = self._check(node.result)
        self._scopes.pop()
        return substitute(self._known, result, dynamic=False)

    def _expect(self, node: Node, expected: Type) -> None:
        found = self._check(node)
        if not self._assign(expected, found):
            self._mismatch(node, expected, found)

    def _iterated(self, node: Comprehension, over: Type) -> tuple[Type, Type]:
        if over.kind is Kind.LIST:
            element = over.parameters[0]
            return (types.INT, element) if node.second is not None else (element, element)
        if over.kind is Kind.MAP:
            return over.parameters[0], over.parameters[1]
        if over.kind in (Kind.DYN, Kind.ERROR, Kind.PARAMETER):
            self._assign(types.DYN, over)
            return types.DYN, types.DYN
        message = (
            f"expression of type '{over.shown}' cannot be range of a comprehension (must be list, map, or dynamic)"
        )
        self._issues.report(node.range.position, message)
        return types.ERROR, types.ERROR


def qualified_name(node: Node) -> str | None:
    """`a.b.c` if the node is names with dots between them and nothing else."""
    names: list[str] = []
    while isinstance(node, Select):
        if node.test_only:
            return None
        names.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join((node.name, *reversed(names)))
