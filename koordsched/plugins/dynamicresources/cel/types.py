"""Types as the checker knows them, and how they are written in its errors and in declarations."""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache
from typing import ClassVar
from weakref import WeakValueDictionary

_MOST_SHOWN = 1000
"""Names of types beyond which the parameters of a type are not written."""


class Kind(Enum):
    """What sort of type; OPAQUE has a name and perhaps parameters, STRUCT a name alone."""

    ANY = auto()
    BOOL = auto()
    BYTES = auto()
    DOUBLE = auto()
    DURATION = auto()
    DYN = auto()
    ERROR = auto()
    INT = auto()
    LIST = auto()
    MAP = auto()
    NULL = auto()
    OPAQUE = auto()
    PARAMETER = auto()
    STRING = auto()
    STRUCT = auto()
    TIMESTAMP = auto()
    TYPE = auto()
    UINT = auto()


class Type:
    """A type. Equal ones are one object: a type may have a parameter in many places, and be huge when it is written.

    `is_open`: a type parameter is in it.
    """

    __slots__ = ("__weakref__", "_names", "is_open", "kind", "name", "parameters")

    _known: ClassVar[WeakValueDictionary[tuple[Kind, str, tuple[Type, ...]], Type]] = WeakValueDictionary()

    kind: Kind
    name: str
    parameters: tuple[Type, ...]
    is_open: bool
    _names: int

    def __new__(cls, kind: Kind, name: str, parameters: tuple[Type, ...] = ()) -> Type:
        key = kind, name, parameters
        found = cls._known.get(key)
        if found is None:
            found = cls._known[key] = super().__new__(cls)
            found.kind, found.name, found.parameters = key
            found.is_open = kind is Kind.PARAMETER or any(each.is_open for each in parameters)
            found._names = 1 + sum(each._names for each in parameters)
        return found

    def __str__(self) -> str:
        """As in errors about the result of an expression."""
        name = f"<{self.name}>" if self.kind is Kind.PARAMETER else self.name
        return f"{name}({self._listed([str(each) for each in self._few])})" if self.parameters else name

    @property
    def _few(self) -> tuple[Type, ...]:
        return self.parameters if self._names <= _MOST_SHOWN else ()

    @staticmethod
    def _listed(texts: list[str]) -> str:
        return ", ".join(texts) or "..."

    @property
    def shown(self) -> str:
        """As in errors of the checker."""
        if (special := _SHOWN.get(self.kind)) is not None:
            return special
        return f"{self.name}({self._listed([each.shown for each in self._few])})" if self.parameters else self.name


_SHOWN = {
    Kind.ANY: "any",
    Kind.DURATION: "duration",
    Kind.ERROR: "!error!",
    Kind.NULL: "null",
    Kind.TIMESTAMP: "timestamp",
}

ANY = Type(Kind.ANY, "any")
BOOL = Type(Kind.BOOL, "bool")
BYTES = Type(Kind.BYTES, "bytes")
DOUBLE = Type(Kind.DOUBLE, "double")
DURATION = Type(Kind.DURATION, "google.protobuf.Duration")
DYN = Type(Kind.DYN, "dyn")
ERROR = Type(Kind.ERROR, "error")
INT = Type(Kind.INT, "int")
NULL = Type(Kind.NULL, "null_type")
STRING = Type(Kind.STRING, "string")
TIMESTAMP = Type(Kind.TIMESTAMP, "google.protobuf.Timestamp")
UINT = Type(Kind.UINT, "uint")
QUANTITY = Type(Kind.STRUCT, "kubernetes.Quantity")
SEMVER = Type(Kind.STRUCT, "kubernetes.Semver")
URL = Type(Kind.STRUCT, "kubernetes.URL")
FORMAT = Type(Kind.STRUCT, "kubernetes.NamedFormat")
DEVICE = Type(Kind.STRUCT, "kubernetes.DRADevice")
IP = Type(Kind.OPAQUE, "net.IP")
CIDR = Type(Kind.OPAQUE, "net.CIDR")


def list_of(element: Type) -> Type:
    """list(element)."""
    return Type(Kind.LIST, "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """map(key, value)."""
    return Type(Kind.MAP, "map", (key, value))


def optional_of(value: Type) -> Type:
    """optional_type(value)."""
    return Type(Kind.OPAQUE, "optional_type", (value,))


def type_of(value: Type) -> Type:
    """type(value): the type of a type."""
    return Type(Kind.TYPE, "type", (value,))


def parameter(name: str) -> Type:
    """A type parameter."""
    return Type(Kind.PARAMETER, name)


_NAMED = {
    "any": ANY,
    "bool": BOOL,
    "bytes": BYTES,
    "double": DOUBLE,
    "duration": DURATION,
    "dyn": DYN,
    "int": INT,
    "null": NULL,
    "string": STRING,
    "timestamp": TIMESTAMP,
    "uint": UINT,
    "Quantity": QUANTITY,
    "Semver": SEMVER,
    "URL": URL,
    "Format": FORMAT,
    "IP": IP,
    "CIDR": CIDR,
}
_CONSTRUCTORS = {"list": list_of, "map": map_of, "optional": optional_of, "type": type_of}
_WORD = re.compile(r"\s*([A-Za-z]+|[(),])")


@lru_cache(maxsize=1024)
def parse_types(text: str) -> tuple[Type, ...]:
    """Types as declarations write them, with commas between them: `list(T), int`; a single capital is a parameter."""
    words = _WORD.findall(text)
    types: list[Type] = []
    index = 0

    def read() -> Type:
        nonlocal index
        word = words[index]
        index += 1
        if word not in _CONSTRUCTORS:
            return parameter(word) if len(word) == 1 else _NAMED[word]
        parts = []
        while words[index] != ")":
            index += 1
            parts.append(read())
        index += 1
        return _CONSTRUCTORS[word](*parts)  # type: ignore[operator, no-any-return]

    while index < len(words):
        types.append(read())
        index += 1
    return tuple(types)
