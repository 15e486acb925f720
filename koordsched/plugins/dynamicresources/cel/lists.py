"""Functions of lists: version 3 of cel-go's extension, Kubernetes' own, and sets."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cmp_to_key
from itertools import pairwise
from typing import Any, Final

from koordsched.plugins.dynamicresources.cel import operators
from koordsched.plugins.dynamicresources.cel.declarations import Overload, function, method
from koordsched.plugins.dynamicresources.cel.errors import CostExceeded, Failure, no_such_overload
from koordsched.plugins.dynamicresources.cel.frame import COST_LIMIT, MOST_ELEMENTS, Frame
from koordsched.plugins.dynamicresources.cel.macros import MAP_INSERT
from koordsched.plugins.dynamicresources.cel.times import Duration
from koordsched.plugins.dynamicresources.cel.values import (
    Map,
    Uint,
    Value,
    comparable,
    compare,
    same,
    shown,
    size,
    type_name,
)
from koordsched.plugins.dynamicresources.cel.work import WORK

_LIST = 11
"""Cost of a call that makes a list, without its elements."""

_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_SUMMABLE: Final = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": None}

List = tuple[Value, ...]


def _slice(elements: List, start: int, end: int) -> List:
    call = f"cannot slice({start}, {end})"
    if start < 0 or end < 0:
        raise Failure(f"{call}, negative indexes not supported")
    if start > end:
        raise Failure(f"{call}, start index must be less than or equal to end index")
    if len(elements) < end:
        raise Failure(f"{call}, list is length {len(elements)}")
    return elements[start:end]


def _flatten(elements: Value, depth: Value = 1) -> List:
    if type(elements) is not tuple or type(depth) is not int:
        raise Failure(f"no such overload: {type_name(elements)}.flatten({'' if depth == 1 else type_name(depth)})")
    if depth < 0:
        raise Failure("level must be non-negative")
    result: list[Value] = []
    _flatten_into(result, elements, depth)
    return tuple(result)


def _flatten_into(result: list[Value], elements: List, depth: int) -> None:
    WORK.spend(len(elements) + 1)
    for each in elements:
        if type(each) is tuple and depth > 0:
            _flatten_into(result, each, depth - 1)
        else:
            result.append(each)


def _flatten_cost(elements: Value, depth: Value = 1) -> int:
    return min(size(elements) * max(depth, 0), COST_LIMIT) + _LIST if type(depth) is int else 1


def _sort(elements: List) -> List:
    return _sort_by_keys(elements, elements)


def _sort_by_keys(elements: List, keys: List) -> List:
    if len(elements) != len(keys):
        raise Failure(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, "
            f"but got {len(elements)} and {len(keys)} elements respectively"
        )
    if not elements:
        return elements
    if not comparable(keys[0]):
        raise Failure("list elements must be comparable")
    if len({type(each) for each in keys}) > 1:
        raise Failure("list elements must have the same type")

    def by_key(one: tuple[Value, Value], other: tuple[Value, Value]) -> int:
        return compare(one[0], other[0])

    pairs = sorted(zip(keys, elements, strict=True), key=cmp_to_key(by_key))
    return tuple(element for _, element in pairs)


def _compared_cost(elements: Value, *more: Value) -> int:
    keys = more[0] if more else elements
    if type(keys) is not tuple:
        return 1
    each = 2.1 if keys and type(keys[0]) in (str, bytes) else 2
    return int(len(keys) ** 2 * each) + _LIST


def _range(frame: Frame, count: int) -> List:
    frame.charge(max(count, 0) + _LIST)
    return tuple(range(count))


def _distinct(elements: List) -> List:
    result: list[Value] = []
    for each in elements:
        WORK.spend(len(result))
        if not any(same(each, other) for other in result):
            result.append(each)
    return tuple(result)


def _output_cost(elements: Value, *bounds: Value) -> int:
    return (bounds[1] - bounds[0] if bounds and bounds[1] > bounds[0] else 0 if bounds else size(elements)) + _LIST


def _reversed(elements: List) -> List:
    return elements[::-1]


def _is_sorted(elements: List) -> bool:
    for each in elements:
        if not comparable(each):
            raise no_such_overload()
    return all(_at_most(one, other) for one, other in pairwise(elements))


def _at_most(one: Value, other: Value) -> bool:
    try:
        return compare(one, other) <= 0
    except Failure:
        return True


def _sum(zero: Value) -> Any:
    def run(elements: List) -> Value:
        total = Duration(0) if zero is None else zero
        for each in elements:
            total = operators.add(total, each)
        return total

    return run


def _extreme(name: str, sign: int) -> Any:
    def run(elements: List) -> Value:
        if not elements:
            raise Failure(f"{name} called on empty list")
        best = elements[0]
        for each in elements:
            if not comparable(each):
                raise no_such_overload()
            try:
                if compare(each, best) * sign > 0:
                    best = each
            except Failure:
                continue
        return best

    return run


def _index_of(elements: List, wanted: Value) -> int:
    return next((index for index, each in enumerate(elements) if same(each, wanted)), -1)


def _last_index_of(elements: List, wanted: Value) -> int:
    return next((index for index in reversed(range(len(elements))) if same(elements[index], wanted)), -1)


def _parts_cost(value: Value, *_: Value) -> int:
    """Of going through a list with all that is in it."""
    kind = type(value)
    if kind is tuple:
        WORK.spend(len(value))
        return sum(map(_parts_cost, value))
    if isinstance(value, Map):
        WORK.spend(len(value))
        return sum(_parts_cost(key) + _parts_cost(each) for key, each in value.items())
    if kind is str:
        return len(value.encode(errors="surrogatepass")) // 10
    return len(value) // 10 if kind is bytes else 1


def _sets_cost(factor: int) -> Any:
    return lambda one, other: 1 + size(one) * size(other) * factor


def _contains_all(elements: List, part: List) -> bool:
    return all(operators.contains(each, elements) for each in part)


def _intersects(one: List, other: List) -> bool:
    return any(operators.contains(each, other) for each in one)


def _equivalent(one: List, other: List) -> bool:
    return _contains_all(one, other) and _contains_all(other, one)


def insert(result: Map, entries: Iterable[tuple[Value, Value]]) -> None:
    """Adds entries to a map that is being made. Raises Failure for a key that is there."""
    for key, value in entries:
        if key in result:
            raise Failure(f"insert failed: key {shown(key)} already exists")
        if len(result) > MOST_ELEMENTS:
            raise CostExceeded
        result.put(key, value)


OVERLOADS: Final[tuple[Overload, ...]] = (
    method("slice", "list_slice", "list(T), int, int", "list(T)", _slice, cost=_output_cost),
    method("flatten", "list_flatten", "list(list(T))", "list(T)", _flatten, cost=_flatten_cost, unguarded=True),
    method("flatten", "list_flatten_int", "list(dyn), int", "list(dyn)", _flatten, cost=_flatten_cost, unguarded=True),
    *(
        method("sort", f"list_{name}_sort", f"list({name})", f"list({name})", _sort, cost=_compared_cost)
        for name in _COMPARABLE
    ),
    *(
        method(
            "@sortByAssociatedKeys",
            f"list_{name}_sortByAssociatedKeys",
            f"list(T), list({name})",
            "list(T)",
            _sort_by_keys,
            cost=_compared_cost,
        )
        for name in _COMPARABLE
    ),
    function("lists.range", "lists_range", "int", "list(int)", _range, metered=True, cost=0),
    method("reverse", "list_reverse", "list(T)", "list(T)", _reversed, cost=_output_cost),
    method("distinct", "list_distinct", "list(T)", "list(T)", _distinct, cost=_compared_cost),
    *(
        method("isSorted", f"list_{name}_is_sorted_bool", f"list({name})", "bool", _is_sorted, cost=_parts_cost)
        for name in _COMPARABLE
    ),
    *(
        method("sum", f"list_{name}_sum_{name}", f"list({name})", name, _sum(zero), cost=_parts_cost)
        for name, zero in _SUMMABLE.items()
    ),
    *(
        method(which, f"list_{name}_{which}_{name}", f"list({name})", name, _extreme(which, sign), cost=_parts_cost)
        for which, sign in (("max", 1), ("min", -1))
        for name in _COMPARABLE
    ),
    method("indexOf", "list_a_index_of_int", "list(A), A", "int", _index_of, cost=_parts_cost),
    method("lastIndexOf", "list_a_last_index_of_int", "list(A), A", "int", _last_index_of, cost=_parts_cost),
    function("sets.contains", "list_sets_contains_list", "list(T), list(T)", "bool", _contains_all, cost=_sets_cost(1)),
    function(
        "sets.equivalent", "list_sets_equivalent_list", "list(T), list(T)", "bool", _equivalent, cost=_sets_cost(2)
    ),
    function(
        "sets.intersects", "list_sets_intersects_list", "list(T), list(T)", "bool", _intersects, cost=_sets_cost(1)
    ),
    function(MAP_INSERT, "@mapInsert_map_key_value", "map(K, V), K, V", "map(K, V)"),
    function(MAP_INSERT, "@mapInsert_map_map", "map(K, V), map(K, V)", "map(K, V)"),
)
