"""Functions of optional values; selecting from them, or() and orValue() are the planner's."""

from __future__ import annotations

from typing import Final

from koordsched.plugins.dynamicresources.cel.declarations import Overload, function, method
from koordsched.plugins.dynamicresources.cel.errors import Failure
from koordsched.plugins.dynamicresources.cel.times import EARLIEST, SECOND, Duration, Timestamp
from koordsched.plugins.dynamicresources.cel.values import NONE, Map, Optional, Value, shown


def _zero(value: Value) -> bool:
    """As cel-go has it: the earliest time is zero, and no optional value is, not even none."""
    if isinstance(value, Duration):
        return value.order == 0
    if isinstance(value, Timestamp):
        return value.order == EARLIEST * SECOND
    return value is None or (isinstance(value, (str, bytes, tuple, Map, int, float)) and not value)


def _of_non_zero(value: Value) -> Optional:
    return NONE if _zero(value) else Optional(value)


def _unwrapped(elements: tuple[Value, ...]) -> tuple[Value, ...]:
    for each in elements:
        if type(each) is not Optional:
            raise Failure(f"value {shown(each)} is not optional")
    return tuple(each.value for each in elements if each.present)


OVERLOADS: Final[tuple[Overload, ...]] = (
    function("optional.of", "optional_of", "V", "optional(V)", Optional),
    function("optional.ofNonZeroValue", "optional_ofNonZeroValue", "V", "optional(V)", _of_non_zero),
    function("optional.none", "optional_none", "", "optional(V)", lambda: NONE),
    method("value", "optional_value", "optional(V)", "V", lambda optional: optional.value),
    method("hasValue", "optional_hasValue", "optional(V)", "bool", lambda optional: optional.present),
    method("or", "optional_or_optional", "optional(V), optional(V)", "optional(V)"),
    method("orValue", "optional_orValue_value", "optional(V), V", "V"),
    function("_[?_]", "list_optindex_optional_int", "list(V), int", "optional(V)"),
    function("_[?_]", "optional_list_optindex_optional_int", "optional(list(V)), int", "optional(V)"),
    function("_[?_]", "map_optindex_optional_value", "map(K, V), K", "optional(V)"),
    function("_[?_]", "optional_map_optindex_optional_value", "optional(map(K, V)), K", "optional(V)"),
    method(
        "last", "list_last", "list(V)", "optional(V)", lambda elements: Optional(elements[-1]) if elements else NONE
    ),
    method(
        "first", "list_first", "list(V)", "optional(V)", lambda elements: Optional(elements[0]) if elements else NONE
    ),
    function("optional.unwrap", "optional_unwrap", "list(optional(V))", "list(V)", _unwrapped),
    method("unwrapOpt", "optional_unwrapOpt", "list(optional(V))", "list(V)", _unwrapped),
)
