"""Values of the language.

bool, str, bytes, float and None are Python's own; int is an int64. A list is a tuple. The others are below, in `times`
and in the modules of the functions that make them. int, Uint and bool must be told apart by `type(...) is`, since each
is an int to Python.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from koordsched.plugins.dynamicresources.cel import types
from koordsched.plugins.dynamicresources.cel.errors import Failure, no_such_overload
from koordsched.plugins.dynamicresources.cel.gofloat import general
from koordsched.plugins.dynamicresources.cel.types import Type
from koordsched.plugins.dynamicresources.cel.work import WORK

Value = Any
"""Any value of the language."""

SMALLEST, LARGEST = -(1 << 63), (1 << 63) - 1
LARGEST_UINT = (1 << 64) - 1


class Uint(int):
    """An unsigned integer."""

    __slots__ = ()


class Opaque(ABC):
    """A value with a type of its own; `go_name` is its name in two of upstream's errors."""

    __slots__ = ()
    type: ClassVar[Type]
    go_name: ClassVar[str]

    @abstractmethod
    def equals(self, other: Value) -> bool:
        """Whether two values are equal. Raises Failure if they cannot be compared."""

    def size(self) -> int:
        """What counts as its size in costs."""
        return 1


class _BoolKey:
    """A bool as a key of a map, where it must not be the same key as 1 or 0."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value


_BOOL_KEYS: Final = {True: _BoolKey(True), False: _BoolKey(False)}
_KEYS: Final = frozenset((str, int, Uint))


def _key(key: Value) -> Any:
    kind = type(key)
    if kind in _KEYS:
        return key
    if kind is bool:
        return _BOOL_KEYS[key]
    return key if kind is float else None


class Map:
    """A map: keys are str, int, Uint or bool. It does not change once it is made."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[tuple[Value, Value]] = ()) -> None:
        self._entries: dict[Any, Value] = {}
        for key, value in entries:
            self.put(key, value)

    def put(self, key: Value, value: Value) -> None:
        """Adds an entry while the map is being made. Raises Failure for a key of another type."""
        known = _key(key)
        if known is None or type(known) is float:
            raise Failure(f"unsupported key type: {type_name(key)}")
        self._entries[known] = value

    def remove(self, key: Value) -> None:
        """Removes an entry, if there is one, while the map is being made."""
        self._entries.pop(_key(key), None)

    def find(self, key: Value, default: Value) -> Value:
        """The value of a key."""
        return self._entries.get(_key(key), default)

    def find_text(self, key: str, default: Value) -> Value:
        """As `find`, for a key that is a str."""
        return self._entries.get(key, default)

    def __contains__(self, key: Value) -> bool:
        return _key(key) in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def keys(self) -> list[Value]:
        """The keys, in the order in which they came."""
        return [each.value if type(each) is _BoolKey else each for each in self._entries]

    def items(self) -> list[tuple[Value, Value]]:
        """Keys and values."""
        return list(zip(self.keys(), self._entries.values(), strict=True))

    def copy(self) -> Map:
        """A map with the same entries."""
        copy = Map()
        copy._entries = dict(self._entries)
        return copy


def text_map(entries: Mapping[str, Value]) -> Map:
    """A map with keys that are str, without a look at each."""
    result = Map()
    result._entries = dict(entries)
    return result


EMPTY_MAP: Final = Map()


class Domains(Map):
    """Attributes or capacity by domain: looking up a domain that is not there finds an empty map."""

    __slots__ = ()

    def find(self, key: Value, default: Value) -> Value:
        """The attributes of a domain."""
        return self._entries.get(_key(key), EMPTY_MAP)

    def find_text(self, key: str, default: Value) -> Value:
        """The attributes of a domain."""
        return self._entries.get(key, EMPTY_MAP)


class Optional:
    """An optional value; NONE is the empty one."""

    __slots__ = ("_value",)

    def __init__(self, value: Value) -> None:
        self._value = value

    @property
    def present(self) -> bool:
        """Whether there is a value."""
        return self._value is not MISSING

    @property
    def value(self) -> Value:
        """The value. Raises Failure if there is none."""
        if self._value is MISSING:
            raise Failure("optional.none() dereference")
        return self._value


class _Missing:
    __slots__ = ()


MISSING: Final = _Missing()
"""Stands for a value that is not there; never seen by an expression."""

NONE: Final = Optional(MISSING)


class TypeValue:
    """A type as a value."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


_NAMES: dict[type, str] = {
    bool: "bool",
    bytes: "bytes",
    float: "double",
    int: "int",
    type(None): "null_type",
    str: "string",
    Uint: "uint",
    tuple: "list",
    Map: "map",
    Domains: "map",
    Optional: "optional_type",
    TypeValue: "type",
}
_GO_NAMES: dict[type, str] = {
    bool: "types.Bool",
    bytes: "types.Bytes",
    float: "types.Double",
    int: "types.Int",
    type(None): "types.Null",
    str: "types.String",
    Uint: "types.Uint",
    Optional: "*types.Optional",
    TypeValue: "*types.Type",
}


def type_name(value: Value) -> str:
    """The name of a value's type."""
    name = _NAMES.get(type(value))
    return name if name is not None else value.type.name


def go_name(value: Value) -> str:
    """The name that upstream's implementation has for a value's type."""
    name = _GO_NAMES.get(type(value))
    return name if name is not None else value.go_name


def shown(value: Value) -> str:
    """A value as in upstream's errors."""
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case bytes():
            return value.decode(errors="replace")
        case float():
            return general(value)
        case tuple():
            return f"[{', '.join(map(shown, value[:_MOST_SHOWN]))}]"
        case Map():
            entries = value.items()[:_MOST_SHOWN]
            return f"{{{', '.join(f'{shown(key)}: {shown(each)}' for key, each in entries)}}}"
    return str(value)


_MOST_SHOWN = 16

_SAME: Final = frozenset((bool, bytes, int, str, Uint))
_NUMBERS: Final = frozenset((int, Uint, float))


def equal(left: Value, right: Value) -> bool:
    """`==`. Raises Failure if the values cannot be compared."""
    kind, other = type(left), type(right)
    if kind is other and kind in _SAME:
        return bool(left == right)
    if left is None or right is None:
        return left is right
    if kind in _NUMBERS:
        return other in _NUMBERS and compare_numbers(left, right) == 0
    if kind in _SAME:
        return False
    if kind is tuple:
        if other is not tuple or len(left) != len(right):
            return False
        WORK.spend(len(left))
        return all(map(_alike, left, right))
    if isinstance(left, Map):
        return isinstance(right, Map) and len(left) == len(right) and _same_entries(left, right)
    if kind is Optional:
        return other is Optional and _equal_optionals(left, right)
    if kind is TypeValue:
        return other is TypeValue and bool(left.name == right.name)
    return bool(left.equals(right))


def _alike(left: Value, right: Value) -> bool:
    # Inside of collections only a plain False makes a difference to upstream.
    try:
        return equal(left, right)
    except Failure:
        return True


def same(left: Value, right: Value) -> bool:
    """Whether two values are equal; values that cannot be compared are not."""
    try:
        return equal(left, right)
    except Failure:
        return False


def _same_entries(left: Map, right: Map) -> bool:
    WORK.spend(len(left))
    for key, value in left.items():
        other = right.find(key, MISSING)
        if other is MISSING or not _alike(value, other):
            return False
    return True


def _equal_optionals(left: Optional, right: Optional) -> bool:
    if not left.present or not right.present:
        return left.present is right.present
    return equal(left.value, right.value)


def compare_numbers(left: Value, right: Value) -> int | None:
    """-1, 0 or 1; None if one is not a number. An integer is compared with a double as a double, as upstream does."""
    if type(left) is float or type(right) is float:
        if left != left or right != right:
            return None
        left, right = _clipped(left, right), _clipped(right, left)
    return int(left > right) - int(left < right)


def _clipped(number: Value, other: Value) -> float:
    if type(number) is not float:
        return float(number)
    limits = (0.0, float(LARGEST_UINT)) if type(other) is Uint else (float(SMALLEST), float(LARGEST))
    if type(other) is float or limits[0] <= number <= limits[1]:
        return number
    return float("inf") if number > limits[1] else float("-inf")


def compare(left: Value, right: Value) -> int:
    """-1, 0 or 1. Raises Failure if there is no order between the values."""
    kind, other = type(left), type(right)
    if kind in _NUMBERS:
        if other not in _NUMBERS:
            if kind is float and left != left:
                raise Failure("NaN values cannot be ordered")
            raise no_such_overload()
        result = compare_numbers(left, right)
        if result is None:
            raise Failure("NaN values cannot be ordered")
        return result
    if kind is not other:
        raise no_such_overload()
    if kind is str:
        # UTF-8 sorts as code points do, UTF-16 would not.
        return int(left > right) - int(left < right)
    if kind is bool or kind is bytes:
        return int(left > right) - int(left < right)
    order = getattr(left, "order", None)
    if order is None:
        raise no_such_overload()
    return int(order > right.order) - int(order < right.order)


def comparable(value: Value) -> bool:
    """Whether there is an order between values of this type."""
    return type(value) in _NUMBERS or type(value) in (str, bool, bytes) or hasattr(value, "order")


def size(value: Value) -> int:
    """What counts as the size of a value in costs."""
    kind = type(value)
    if kind is str or kind is tuple or kind is bytes or isinstance(value, Map):
        return len(value)
    if kind is Optional:
        return size(value.value) if value.present else 1
    return value.size() if isinstance(value, Opaque) else 1


def runtime_type(value: Value) -> TypeValue:
    """`type(value)`."""
    return TypeValue(type_name(value))


TYPE_NAMES: Final = {
    each.name: each
    for each in (
        types.BOOL,
        types.BYTES,
        types.DOUBLE,
        types.INT,
        types.NULL,
        types.STRING,
        types.UINT,
        types.DURATION,
        types.TIMESTAMP,
        types.IP,
        types.CIDR,
        types.list_of(types.DYN),
        types.map_of(types.DYN, types.DYN),
        types.optional_of(types.DYN),
        types.type_of(types.DYN),
    )
}
"""Types that are also names in expressions."""
