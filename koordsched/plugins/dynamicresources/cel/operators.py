"""Operators but for those that decide which operands are evaluated: arithmetic, order, `in`, and size().

Integers are 64 bits wide, and an overflow is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from koordsched.plugins.dynamicresources.cel.declarations import Overload, function, method, tenths
from koordsched.plugins.dynamicresources.cel.errors import CostExceeded, Failure, no_such_overload
from koordsched.plugins.dynamicresources.cel.frame import MOST_CHARACTERS, MOST_ELEMENTS
from koordsched.plugins.dynamicresources.cel.times import Duration, Timestamp
from koordsched.plugins.dynamicresources.cel.values import (
    LARGEST,
    LARGEST_UINT,
    SMALLEST,
    Map,
    Opaque,
    Optional,
    TypeValue,
    Uint,
    Value,
    compare,
    same,
    size,
)
from koordsched.plugins.dynamicresources.cel.work import WORK


def _int(value: int) -> int:
    if SMALLEST <= value <= LARGEST:
        return value
    raise Failure("integer overflow")


def _uint(value: int) -> Uint:
    if 0 <= value <= LARGEST_UINT:
        return Uint(value)
    raise Failure("unsigned integer overflow")


def _without(operator: str, value: Value) -> Failure:
    """The error of an operator that the left operand's type does not have at all."""
    return no_such_overload() if type(value) is str else Failure(f"no such overload: {operator}")


def add(left: Value, right: Value) -> Value:
    """`+`."""
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return _int(left + right)
        if kind is Uint:
            return _uint(int(left) + int(right))
        if kind is float:
            return left + right
        if kind is str or kind is bytes or kind is tuple:
            if len(left) + len(right) > (MOST_ELEMENTS if kind is tuple else MOST_CHARACTERS):
                raise CostExceeded
            return left + right
        if kind is Duration:
            return Duration(left.order + right.order)
    if (kind is Duration and type(right) is Timestamp) or (kind is Timestamp and type(right) is Duration):
        return Timestamp(left.order + right.order)
    if kind in _ADDERS:
        raise no_such_overload()
    raise _without("_+_", left)


_ADDERS: Final = frozenset((int, Uint, float, str, bytes, tuple, Duration, Timestamp))


def subtract(left: Value, right: Value) -> Value:
    """`-`."""
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return _int(left - right)
        if kind is Uint:
            return _uint(int(left) - int(right))
        if kind is float:
            return left - right
        if kind is Duration or kind is Timestamp:
            return Duration(left.order - right.order)
    if kind is Timestamp and type(right) is Duration:
        return Timestamp(left.order - right.order)
    if kind in (int, Uint, float, Duration, Timestamp):
        raise no_such_overload()
    raise _without("_-_", left)


def multiply(left: Value, right: Value) -> Value:
    """`*`."""
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return _int(left * right)
        if kind is Uint:
            return _uint(int(left) * int(right))
        if kind is float:
            return left * right
    if kind in (int, Uint, float):
        raise no_such_overload()
    raise _without("_*_", left)


def _divide_double(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left != left or left == 0:
        return float("nan")
    negative = str(left).startswith("-") is not str(right).startswith("-")
    return float("-inf") if negative else float("inf")


def divide(left: Value, right: Value) -> Value:
    """`/`, which truncates toward zero for integers."""
    kind = type(left)
    if kind is type(right) and kind in (int, Uint, float):
        if kind is float:
            return _divide_double(left, right)
        if right == 0:
            raise Failure("division by zero")
        quotient = abs(left) // abs(right)
        return _uint(quotient) if kind is Uint else _int(quotient if (left < 0) is (right < 0) else -quotient)
    if kind in (int, Uint, float):
        raise no_such_overload()
    raise _without("_/_", left)


def modulo(left: Value, right: Value) -> Value:
    """`%`, with the sign of the left operand."""
    kind = type(left)
    if kind is type(right) and kind in (int, Uint):
        if right == 0:
            raise Failure("modulus by zero")
        if left == SMALLEST and right == -1:
            raise Failure("integer overflow")
        remainder = abs(left) % abs(right)
        return Uint(remainder) if kind is Uint else (-remainder if left < 0 else remainder)
    if kind in (int, Uint):
        raise no_such_overload()
    raise _without("_%_", left)


def negate(operand: Value) -> Value:
    """Unary `-`."""
    kind = type(operand)
    if kind is int:
        return _int(-operand)
    if kind is float:
        return -operand
    if kind is Duration:
        return Duration(-operand.order)
    if kind is bool:
        raise no_such_overload()
    raise _without("-_", operand)


def logical_not(operand: Value) -> bool:
    """`!`."""
    if operand is True:
        return False
    if operand is False:
        return True
    raise no_such_overload()


def _relation(operator: str, holds: Callable[[int], bool]) -> Callable[[Value, Value], bool]:
    def relate(left: Value, right: Value) -> bool:
        kind = type(left)
        if kind in (type(None), tuple, Optional, TypeValue) or isinstance(left, Map):
            raise Failure(f"no such overload: {operator}")
        if isinstance(left, Opaque) and not hasattr(left, "order"):
            raise Failure(f"no such overload: {operator}")
        return holds(compare(left, right))

    return relate


def contains(element: Value, collection: Value) -> bool:
    """`in`."""
    if type(collection) is tuple:
        WORK.spend(len(collection))
        return any(same(element, each) for each in collection)
    if isinstance(collection, Map):
        return element in collection
    raise no_such_overload()


def length(value: Value) -> int:
    """size()."""
    if type(value) in (str, bytes, tuple) or isinstance(value, Map):
        return len(value)
    if isinstance(value, Opaque) and value.size() != 1:
        return value.size()
    raise _without("size", value)


def add_cost(left: Value, right: Value) -> int:
    """The cost of `+`: of copying strings, else 1."""
    if type(left) in (str, bytes) and type(right) in (str, bytes):
        return tenths(len(left) + len(right))
    return 1


def order_cost(left: Value, right: Value) -> int:
    """The cost of `<` and the like: of going through the shorter of two strings, else 1."""
    if type(left) in (str, bytes) and type(right) in (str, bytes):
        return tenths(min(len(left), len(right)))
    return 1


def contains_cost(_: Value, collection: Value) -> int:
    """The cost of `in`: the size of a list; 1 for a map."""
    return size(collection) if type(collection) is tuple else 1


def equal_cost(left: Value, right: Value) -> int:
    """The cost of `==`: of going through the smaller operand."""
    return 1 if isinstance(left, Opaque) and not hasattr(left, "order") else tenths(min(size(left), size(right)))


_NUMBERS = ("int", "uint", "double")
_ORDERED = (
    *(f"{left}, {right}" for left in _NUMBERS for right in _NUMBERS),
    *(f"{each}, {each}" for each in ("bool", "string", "bytes", "timestamp", "duration")),
)
_ARITHMETIC = {
    "_+_": {
        "bytes, bytes": "bytes",
        "double, double": "double",
        "duration, duration": "duration",
        "duration, timestamp": "timestamp",
        "timestamp, duration": "timestamp",
        "int, int": "int",
        "list(A), list(A)": "list(A)",
        "string, string": "string",
        "uint, uint": "uint",
    },
    "_-_": {
        "double, double": "double",
        "duration, duration": "duration",
        "int, int": "int",
        "timestamp, duration": "timestamp",
        "timestamp, timestamp": "duration",
        "uint, uint": "uint",
    },
    "_*_": {"double, double": "double", "int, int": "int", "uint, uint": "uint"},
    "_/_": {"double, double": "double", "int, int": "int", "uint, uint": "uint"},
    "_%_": {"int, int": "int", "uint, uint": "uint"},
    "-_": {"double": "double", "int": "int"},
}
_COSTS = {"_+_": add_cost}

OVERLOADS: Final[tuple[Overload, ...]] = (
    function("_?_:_", "conditional", "bool, A, A", "A"),
    function("_&&_", "logical_and", "bool, bool", "bool"),
    function("_||_", "logical_or", "bool, bool", "bool"),
    function("!_", "logical_not", "bool", "bool"),
    function("@not_strictly_false", "not_strictly_false", "bool", "bool"),
    function("_==_", "equals", "A, A", "bool"),
    function("_!=_", "not_equals", "A, A", "bool"),
    *(
        function(name, f"{name} {parameters}", parameters, result, cost=_COSTS.get(name, 1))
        for name, overloads in _ARITHMETIC.items()
        for parameters, result in overloads.items()
    ),
    *(
        function(name, f"{name} {parameters}", parameters, "bool", cost=order_cost)
        for name in ("_<_", "_<=_", "_>_", "_>=_")
        for parameters in _ORDERED
    ),
    function("_[_]", "index_list", "list(A), int", "A"),
    function("_[_]", "index_map", "map(A, B), A", "B"),
    function("_[_]", "optional_list_index_int", "optional(list(V)), int", "optional(V)"),
    function("_[_]", "optional_map_index_value", "optional(map(K, V)), K", "optional(V)"),
    function("@in", "in_list", "A, list(A)", "bool", cost=contains_cost),
    function("@in", "in_map", "A, map(A, B)", "bool", cost=contains_cost),
    *(
        declare("size", f"{name}_size", parameters, "int")
        for name, parameters in (("bytes", "bytes"), ("list", "list(A)"), ("map", "map(A, B)"), ("string", "string"))
        for declare in (function, method)
    ),
)
SINGLETONS: Final[dict[str, Callable[..., Value]]] = {
    "!_": logical_not,
    "_+_": add,
    "_-_": subtract,
    "_*_": multiply,
    "_/_": divide,
    "_%_": modulo,
    "-_": negate,
    "_<_": _relation("_<_", lambda order: order < 0),
    "_<=_": _relation("_<=_", lambda order: order <= 0),
    "_>_": _relation("_>_", lambda order: order > 0),
    "_>=_": _relation("_>=_", lambda order: order >= 0),
    "@in": contains,
    "size": length,
}
