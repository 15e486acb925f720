"""The mutants of a module: one operator, number or statement changed inside a function.

What runs at import (constants, defaults, decorators, class bodies), texts of errors and calls of the log are left out.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}

_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}

_LOGS = ("log", "_log", "logger")

PROBE = "__reached__"
"""The global name under which probes find the array that they write to."""


class Where(NamedTuple):
    """A place in a module: the function around it, by its qualified name, and the number of its statement there."""

    function: str
    statement: int


class Mutant(NamedTuple):
    """One defect. `what`: in words; `place`: which node of the module has it; `variant`: which one of that node's."""

    module: str
    where: Where
    line: int
    what: str
    place: int
    variant: int

    @property
    def name(self) -> str:
        """By what it is known in results, also when lines have moved."""
        return f"{self.where.function}: {self.what}"

    @property
    def key(self) -> str:
        """Its name, shortened."""
        return hashlib.blake2s(self.name.encode(), digest_size=4).hexdigest()


class _Place(NamedTuple):
    """A node inside a function, and the field of its parent that holds it."""

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None
    where: Where

    def put(self, new: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, new)
        else:
            getattr(self.parent, self.field)[self.index] = new


Variant = tuple[str, Callable[[], ast.AST]]
"""What is changed, in words, and a function that gives the changed node."""


def mutants_of(module: str, source: str) -> list[Mutant]:
    """All of a module, in the order of its text. `module` is a name for it."""
    seen = Counter[tuple[str, str]]()
    found = []
    for number, place in enumerate(_places(ast.parse(source))):
        for variant, (words, _) in enumerate(_variants(place)):
            what = f"`{_text(place)}` {words}"
            seen[place.where.function, what] += 1
            again = seen[place.where.function, what]
            what += f" #{again}" if again > 1 else ""
            found.append(Mutant(module, place.where, getattr(place.node, "lineno", 0), what, number, variant))
    return found


def mutated(source: str, mutant: Mutant) -> ast.Module:
    """The tree of the module with this defect."""
    tree = ast.parse(source)
    place = next(place for number, place in enumerate(_places(tree)) if number == mutant.place)
    place.put(ast.copy_location(list(_variants(place))[mutant.variant][1](), place.node))
    return ast.fix_missing_locations(tree)


def statements_of(source: str) -> list[Where]:
    """All statements inside functions, in the order of the text."""
    return [where for _, where, _ in _statements(ast.parse(source))]


def probed(source: str, first: int) -> ast.Module:
    """The module with a probe before each statement of its functions, which sets a byte: that of `first`, and so on."""
    tree = ast.parse(source)
    for number, (node, _, block) in enumerate(list(_statements(tree)), first):
        target = ast.Subscript(ast.Name(PROBE, ast.Load()), ast.Constant(number), ast.Store())
        probe = ast.copy_location(ast.Assign([target], ast.Constant(1)), node)
        block.insert(next(at for at, each in enumerate(block) if each is node), probe)
    return ast.fix_missing_locations(tree)


def _statements(
    node: ast.AST, around: str = "", function: str = "", counter: Counter[str] | None = None
) -> Iterator[tuple[ast.stmt, Where, list[ast.stmt]]]:
    """Each statement inside a function: with its place, and the list that holds it."""
    counter = Counter[str]() if counter is None else counter
    for value in [value for _, value in ast.iter_fields(node)]:
        for child in value if isinstance(value, list) else []:
            if isinstance(child, ast.stmt) and function:
                yield child, Where(function, counter[function]), value
                counter[function] += 1
            if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                yield from _statements(child, *_inside(child, around, function), counter)


def _inside(node: ast.AST, around: str, function: str) -> tuple[str, str]:
    """For what is inside a node: the prefix of qualified names, and the function around it ("": none)."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return f"{around}{node.name}.<locals>.", f"{around}{node.name}"
        case ast.ClassDef():
            return f"{around}{node.name}.", function
    return around, function


def _places(tree: ast.Module) -> Iterator[_Place]:
    wheres = {id(node): where for node, where, _ in _statements(tree)}
    return _walk(tree, None, wheres)


_OMITTED = ("annotation", "returns", "decorator_list", "args", "bases", "keywords")
"""Fields of definitions that do not run with the function."""


def _walk(parent: ast.AST, where: Where | None, wheres: dict[int, Where]) -> Iterator[_Place]:
    definition = isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.AnnAssign | ast.Lambda)
    for field, value in ast.iter_fields(parent):
        if definition and field in _OMITTED:
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Raise | ast.Assert | ast.JoinedStr):
                continue
            inner = wheres.get(id(child), where)
            if (
                _logs(child)
                or _checks(child)
                or (inner is not None and inner.function.endswith(("__repr__", "__str__")))
            ):
                continue
            if inner is not None:
                yield _Place(child, parent, field, index, inner)
            yield from _walk(child, inner, wheres)


def _logs(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name) | ast.Attribute(attr=name)))):
            return name in _LOGS
    return False


def _checks(node: ast.AST) -> bool:
    """What cannot fail: it is there to be found out, should it."""
    return isinstance(node, ast.keyword) and node.arg == "strict"


def _text(place: _Place) -> str:
    """The changed code: of numbers and bare operators, with what is around them."""
    node = place.parent if isinstance(place.node, ast.Constant) else place.node
    text = ast.unparse(node).partition("\n")[0]
    return text if len(text) <= 80 else f"{text[:78]}…"


def _variants(place: _Place) -> Iterator[Variant]:
    node = place.node
    match node:
        case ast.Compare():
            for at, old in enumerate(node.ops):
                if (new := _COMPARISONS.get(type(old))) is not None:
                    yield _words(old, new), partial(_compare, node, at, new)
        case ast.BinOp() if (operator := _OPERATORS.get(type(node.op))) is not None:
            yield _words(node.op, operator), partial(ast.BinOp, node.left, operator(), node.right)
        case ast.BoolOp():
            other = ast.Or if isinstance(node.op, ast.And) else ast.And
            yield _words(node.op, other), partial(ast.BoolOp, other(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield "Not left out", partial(_doubled, node)
        case ast.Constant(value=bool(value)):
            yield f"{value} to {not value}", partial(ast.Constant, not value)
        case ast.Constant(value=int(value)):
            yield f"{value} to {value + 1}", partial(ast.Constant, value + 1)
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield "left out", partial(_never, node)
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Delete():
            yield "left out", partial(_never, node)
        case ast.AugAssign():
            if (operator := _OPERATORS.get(type(node.op))) is not None:
                yield _words(node.op, operator), partial(ast.AugAssign, node.target, operator(), node.value)
            if not isinstance(node.target, ast.Name):
                yield "left out", partial(_never, node)
        case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
            # The expression stays, so that the function closes over the same names and stays a generator.
            yield "None returned", partial(_none, node.value)


def _words(old: ast.AST, new: type[ast.AST]) -> str:
    return f"{type(old).__name__} to {new.__name__}"


def _compare(node: ast.Compare, at: int, new: type[ast.cmpop]) -> ast.AST:
    return ast.Compare(node.left, [*node.ops[:at], new(), *node.ops[at + 1 :]], node.comparators)


def _doubled(node: ast.UnaryOp) -> ast.AST:
    return ast.UnaryOp(ast.Not(), ast.copy_location(node, node))


def _never(node: ast.stmt) -> ast.AST:
    return ast.If(ast.Constant(False), [node], [])


def _none(value: ast.expr) -> ast.AST:
    return ast.Return(ast.BoolOp(ast.And(), [ast.Constant(None), value]))
