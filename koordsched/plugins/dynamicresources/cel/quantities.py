"""Kubernetes quantities in expressions: quantity(), isQuantity() and their methods.

Source: apimachinery `pkg/api/resource`. A quantity is a number of billionths, rounded away from zero, as there. Whether
it is an integer depends on how it is kept there, which `scale` tells: a power of ten, or None for a big decimal.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from koordsched.api.quantity import NANO
from koordsched.plugins.dynamicresources.cel import types
from koordsched.plugins.dynamicresources.cel.declarations import Overload, function, method, traversal
from koordsched.plugins.dynamicresources.cel.errors import Failure, no_such_overload
from koordsched.plugins.dynamicresources.cel.values import LARGEST, SMALLEST, Opaque, Value

_SYNTAX = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_EXPONENT = re.compile(r"[eE]([-+]?[0-9]{1,9})", re.ASCII)
_MOST_DIGITS = 18
_BINARY_DIGITS = 15
_LONGEST = 1000

WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
WRONG_NUMBER = "unable to parse numeric part of quantity"
WRONG_SUFFIX = "unable to parse quantity's suffix"


class Quantity(Opaque):
    """A quantity: `order` is the number of billionths."""

    __slots__ = ("order", "scale")
    type = types.QUANTITY
    go_name = "cel.Quantity"

    def __init__(self, nano: int, scale: int | None) -> None:
        self.order = nano
        self.scale = scale

    def equals(self, other: Value) -> bool:
        """Same amount. Raises Failure if the other is no quantity."""
        if type(other) is not Quantity:
            raise no_such_overload()
        return self.order == other.order

    def integer(self) -> int | None:
        """The amount as an int64; None if it is not kept as one."""
        if self.scale is None or self.scale < 0 or not SMALLEST <= self.order // NANO <= LARGEST:
            return None
        return self.order // NANO


@lru_cache(maxsize=4096)
def parse_quantity(text: str) -> Quantity:
    """A quantity. Raises Failure with apimachinery's text if it is none."""
    match = _SYNTAX.fullmatch(text) if text and len(text) <= _LONGEST else None
    if match is None:
        raise Failure(WRONG_FORMAT)
    sign, whole, fraction, suffix = match.groups()
    number, fraction = whole.lstrip("0"), fraction or ""
    if not whole and not fraction and suffix in ("", *"+-"):
        raise Failure(WRONG_FORMAT)
    base, exponent = _suffix(suffix)
    if not whole and not fraction:
        raise Failure(WRONG_NUMBER)
    digits = int(number + fraction or "0")
    if base == 2:
        fast = not fraction and _BINARY_DIGITS - len(number) - exponent * 3 // 10 - 1 >= 0
        numerator, denominator = (digits << exponent) * NANO, 10 ** len(fraction)
        scale: int | None = 0
    else:
        power = exponent - len(fraction)
        fast = _MOST_DIGITS - len(number) - len(fraction) >= 0 and power >= _DECIMAL["n"]
        numerator = digits * 10 ** min(max(power, 0), 64) * NANO
        denominator = 10 ** min(max(-power, 0), _LONGEST + 64)
        scale = power
    nano = -(-numerator // denominator)
    if not fast:
        nano, scale = min(nano, LARGEST * NANO), None
    return Quantity(-nano if sign == "-" else nano, scale)


def _suffix(suffix: str) -> tuple[int, int]:
    """Base and exponent."""
    if suffix in _DECIMAL:
        return 10, _DECIMAL[suffix]
    if suffix in _BINARY:
        return 2, _BINARY[suffix]
    match = _EXPONENT.fullmatch(suffix)
    if match is None:
        raise Failure(WRONG_SUFFIX)
    return 10, int(match.group(1))


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except Failure:
        return False
    return True


def _sign(quantity: Quantity) -> int:
    return int(quantity.order > 0) - int(quantity.order < 0)


def _sum(one: Quantity, other: Quantity, sign: int) -> Quantity:
    nano = one.order + sign * other.order
    if other.order == 0:
        return one
    if one.order == 0:
        return Quantity(nano, other.scale)
    if one.scale is None or other.scale is None:
        return Quantity(nano, None)
    scale = min(one.scale, other.scale)
    fits = SMALLEST <= nano // 10 ** (scale + 9) <= LARGEST
    return Quantity(nano, scale if fits else None)


def _whole(number: int) -> Quantity:
    return Quantity(number * NANO, 0)


def _as_integer(quantity: Quantity) -> int:
    number = quantity.integer()
    if number is None:
        raise Failure("cannot convert value to integer")
    return number


def _compare(one: Quantity, other: Quantity) -> int:
    return int(one.order > other.order) - int(one.order < other.order)


OVERLOADS: Final[tuple[Overload, ...]] = (
    function("quantity", "string_to_quantity", "string", "Quantity", parse_quantity, cost=traversal),
    function("isQuantity", "is_quantity_string", "string", "bool", _is_quantity, cost=traversal),
    function("sign", "quantity_sign", "Quantity", "int", _sign),
    method(
        "isGreaterThan",
        "quantity_is_greater_than",
        "Quantity, Quantity",
        "bool",
        lambda one, other: one.order > other.order,
    ),
    method(
        "isLessThan", "quantity_is_less_than", "Quantity, Quantity", "bool", lambda one, other: one.order < other.order
    ),
    method("compareTo", "quantity_compare_to", "Quantity, Quantity", "int", _compare),
    method("asApproximateFloat", "quantity_get_float", "Quantity", "double", lambda quantity: quantity.order / NANO),
    method("asInteger", "quantity_get_int", "Quantity", "int", _as_integer),
    method("isInteger", "quantity_is_integer", "Quantity", "bool", lambda quantity: quantity.integer() is not None),
    method("add", "quantity_add", "Quantity, Quantity", "Quantity", lambda one, other: _sum(one, other, 1)),
    method("add", "quantity_add_int", "Quantity, int", "Quantity", lambda one, number: _sum(one, _whole(number), 1)),
    method("sub", "quantity_sub", "Quantity, Quantity", "Quantity", lambda one, other: _sum(one, other, -1)),
    method("sub", "quantity_sub_int", "Quantity, int", "Quantity", lambda one, number: _sum(one, _whole(number), -1)),
)
