"""Quantities as the server stores them: checked and in canonical form (apimachinery `pkg/api/resource`)."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any

from koordsched.api.quantity import QuantityError, parse
from koordsched.fakecluster.errors import FieldError, invalid_value

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_EXPONENT = ("e-9", "e-6", "e-3", "", "e3", "e6", "e9", "e12", "e15", "e18")
_SYNTAX_TEXT = (
    "quantities must match the regular expression "
    r"'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


@lru_cache(maxsize=16384)
def canonical(text: str | int | float) -> str:
    """The canonical text: no fraction, the largest suffix that keeps it so. Raises QuantityError."""
    if isinstance(text, str) and _plain(text):
        return text
    value = parse(text)
    if value == 0:
        return "0"
    binary = isinstance(text, str) and text.endswith("i")
    if binary and value.denominator == 1 and abs(value) >= 1024:
        return _scaled(value, 1024, _BINARY)
    # Precision below nano is rounded up, as Go does.
    nano = -((-value * 10**9).__floor__())
    exponent = isinstance(text, str) and not binary and ("e" in text or "E" in text[:-1])
    return _scaled(Fraction(nano), 1000, _EXPONENT if exponent else _DECIMAL)


def _plain(text: str) -> bool:
    """A small whole number without suffix, which is canonical as it stands."""
    return text.isascii() and text.isdigit() and len(text) < 4 and (text == "0" or text[0] != "0")


def _scaled(value: Fraction, base: int, suffixes: tuple[str, ...]) -> str:
    number, step = int(value), 0
    while number % base == 0 and step + 1 < len(suffixes):
        number //= base
        step += 1
    return f"{number}{suffixes[step]}"


def canonicalize(quantities: Any, field: str) -> list[FieldError]:
    """Bring a resource list into canonical form, in place; tells what is not a quantity."""
    if not quantities:
        return []
    wrong = []
    for name, text in quantities.items():
        try:
            stored = canonical(text)
        except (QuantityError, TypeError):
            wrong.append(invalid_value(f"{field}[{name}]", text, _SYNTAX_TEXT))
            continue
        if stored is not text:
            quantities[name] = stored
    return wrong


def canonicalize_member(holder: dict[str, Any], key: str, field: str) -> list[FieldError]:
    """Bring one quantity of an object into canonical form, in place, if it is there; tells if it is none."""
    text = holder.get(key)
    if text is None:
        return []
    try:
        stored = canonical(text)
    except (QuantityError, TypeError):
        return [invalid_value(field, text, _SYNTAX_TEXT)]
    if stored is not text:
        holder[key] = stored
    return []


@lru_cache(maxsize=16384)
def amount(text: str | int | float) -> Fraction:
    """The exact value. Raises QuantityError."""
    return parse(text)


@lru_cache(maxsize=16384)
def exceeds(text: str | int | float, bound: str | int | float) -> bool:
    """Whether one quantity is larger than another. Raises QuantityError."""
    return parse(text) > parse(bound)


@lru_cache(maxsize=16384)
def positive(text: str | int | float | None) -> bool:
    """Whether the quantity is there and above zero; what is no quantity is not."""
    try:
        return text is not None and parse(text) > 0
    except QuantityError:
        return False


def equal(one: str | int | float | None, other: str | int | float | None) -> bool:
    """Whether both are there, and quantities of the same amount."""
    try:
        return one is not None and other is not None and parse(one) == parse(other)
    except QuantityError:
        return False


@lru_cache(maxsize=16384)
def whole(text: str | int | float) -> bool:
    """Whether the quantity is an integer. Raises QuantityError."""
    return parse(text).denominator == 1
