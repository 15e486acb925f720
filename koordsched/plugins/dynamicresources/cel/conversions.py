"""Conversions between types: int(), double(), string(), timestamp() and the like, and type() and dyn()."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from koordsched.plugins.dynamicresources.cel.declarations import Overload, function, traversal
from koordsched.plugins.dynamicresources.cel.errors import Failure
from koordsched.plugins.dynamicresources.cel.gofloat import general, parse_float
from koordsched.plugins.dynamicresources.cel.times import (
    EARLIEST,
    LATEST,
    SECOND,
    Duration,
    Timestamp,
    duration_text,
    parse_duration,
    parse_timestamp,
    timestamp_text,
)
from koordsched.plugins.dynamicresources.cel.values import (
    LARGEST,
    LARGEST_UINT,
    SMALLEST,
    Uint,
    Value,
    runtime_type,
)

_INT = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_UINT = re.compile(r"\d{1,20}", re.ASCII)
_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


def _identity(value: Value) -> Value:
    return value


def _refused(source: str, target: str) -> Failure:
    return Failure(f"type conversion error from '{source}' to '{target}'")


def _int_from_text(text: str) -> int:
    digits = text.replace("_", "x")
    stripped = re.sub(r"^([+-]?)0+(?=\d)", r"\1", digits)
    if _INT.fullmatch(stripped) and SMALLEST <= (value := int(stripped)) <= LARGEST:
        return value
    raise _refused("string", "int")


def _uint_from_text(text: str) -> Uint:
    stripped = re.sub(r"^0+(?=\d)", "", text)
    if _UINT.fullmatch(stripped) and (value := int(stripped)) <= LARGEST_UINT:
        return Uint(value)
    raise _refused("string", "uint")


def _int_from_double(number: float) -> int:
    if number != number or number <= SMALLEST or number >= LARGEST:
        raise Failure("integer overflow")
    return int(number)


def _uint_from_double(number: float) -> Uint:
    if number != number or number < 0 or number >= LARGEST_UINT:
        raise Failure("unsigned integer overflow")
    return Uint(int(number))


def _int_from_uint(number: Uint) -> int:
    if number > LARGEST:
        raise Failure("integer overflow")
    return int(number)


def _uint_from_int(number: int) -> Uint:
    if number < 0:
        raise Failure("unsigned integer overflow")
    return Uint(number)


def _double_from_text(text: str) -> float:
    number = parse_float(text)
    if number is None:
        raise _refused("string", "double")
    return number


def _bool_from_text(text: str) -> bool:
    if text not in _BOOLS:
        raise _refused("string", "bool")
    return _BOOLS[text]


def _text_from_bytes(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Failure("invalid UTF-8 in bytes, cannot convert to string") from None


def _duration_from_text(text: str) -> Duration:
    duration = parse_duration(text)
    if duration is None:
        raise _refused("string", "google.protobuf.Duration")
    return duration


def _timestamp_from_text(text: str) -> Timestamp:
    timestamp = parse_timestamp(text)
    if timestamp is None:
        raise _refused("string", "google.protobuf.Timestamp")
    return timestamp


def _timestamp_from_int(seconds: int) -> Timestamp:
    if not EARLIEST <= seconds <= LATEST:
        raise Failure("timestamp overflow")
    return Timestamp(seconds * SECOND)


def _duration_refused(_: int) -> Value:
    raise _refused("int", "google.protobuf.Duration")


def _shown(value: bool) -> str:
    return "true" if value else "false"


_CONVERSIONS: dict[str, dict[str, Callable[..., Value]]] = {
    "bool": {"bool": _identity, "string": _bool_from_text},
    "bytes": {"bytes": _identity, "string": lambda text: text.encode(errors="surrogatepass")},
    "double": {"double": _identity, "int": float, "string": _double_from_text, "uint": float},
    "duration": {"duration": _identity, "int": _duration_refused, "string": _duration_from_text},
    "int": {
        "int": _identity,
        "double": _int_from_double,
        "duration": lambda duration: duration.order,
        "string": _int_from_text,
        "timestamp": lambda timestamp: timestamp.order // SECOND,
        "uint": _int_from_uint,
    },
    "string": {
        "string": _identity,
        "bool": _shown,
        "bytes": _text_from_bytes,
        "double": general,
        "duration": duration_text,
        "int": str,
        "timestamp": timestamp_text,
        "uint": lambda number: str(int(number)),
    },
    "timestamp": {"timestamp": _identity, "int": _timestamp_from_int, "string": _timestamp_from_text},
    "uint": {"uint": _identity, "double": _uint_from_double, "int": _uint_from_int, "string": _uint_from_text},
}
_TRAVERSING = frozenset((("bytes", "string"), ("string", "bytes")))

OVERLOADS: Final[tuple[Overload, ...]] = (
    *(
        function(
            target,
            f"{source}_to_{target}",
            source,
            target,
            run,
            cost=traversal if (target, source) in _TRAVERSING else 1,
        )
        for target, sources in _CONVERSIONS.items()
        for source, run in sources.items()
    ),
    function("type", "type", "A", "type(A)", runtime_type),
    function("dyn", "to_dyn", "A", "dyn", _identity),
)
FOLDED: Final = frozenset((*_CONVERSIONS, "type", "dyn"))
"""Functions that are evaluated when an expression is compiled, if their argument is a constant."""
