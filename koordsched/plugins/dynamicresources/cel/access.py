"""Selecting from values: `a.b`, `a[b]`, `a.?b`, `a[?b]` and has(a.b)."""

from __future__ import annotations

from koordsched.plugins.dynamicresources.cel.errors import Failure
from koordsched.plugins.dynamicresources.cel.values import (
    MISSING,
    NONE,
    Map,
    Optional,
    Uint,
    Value,
    shown,
    type_name,
)


def index(value: Value, key: Value) -> Value:
    """What is there at a key or an index; of an optional value an optional one. Raises Failure if nothing is."""
    if type(value) is Optional:
        return index_optional(value, key)
    if isinstance(value, Map):
        found = value.find(key, MISSING)
        if found is not MISSING:
            return found
    elif type(value) is tuple:
        place = _place(key)
        if 0 <= place < len(value):
            return value[place]
        raise Failure(f"index out of bounds: {shown(key)}")
    raise Failure(f"no such key: {shown(key)}")


def index_optional(value: Value, key: Value) -> Optional:
    """The same, as an optional value: NONE if nothing is there. Raises Failure for a key that no such value has."""
    if type(value) is Optional:
        if not value.present:
            return NONE
        value = value.value
    found: Value = MISSING
    if isinstance(value, Map):
        found = value.find(key, MISSING)
    elif type(value) is tuple:
        place = _place(key)
        found = value[place] if 0 <= place < len(value) else MISSING
    return NONE if found is MISSING else Optional(found)


def has(value: Value, key: str) -> bool:
    """Whether a value has a field."""
    return index_optional(value, key).present


def _place(key: Value) -> int:
    kind = type(key)
    if kind is int or kind is Uint:
        return int(key)
    if kind is float:
        if key == key and abs(key) < 1 << 63 and key == int(key):
            return int(key)
        raise Failure(f"unsupported index value {shown(key)} in list")
    raise Failure(f"unsupported index type '{type_name(key)}' in list")
