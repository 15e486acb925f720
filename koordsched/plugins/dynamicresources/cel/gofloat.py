"""Doubles as Go writes and reads them."""

from __future__ import annotations

import re
from decimal import Decimal

_EXACT = 6
_SPECIAL = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}
# Each text is matched in one way at most: what users write must not take time that grows faster than its length.
_DIGITS, _HEX_DIGITS = r"\d+(?:_\d+)*", r"[\da-f]+(?:_[\da-f]+)*"
_FLOAT = re.compile(
    rf"[+-]?(?:(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:e[+-]?{_DIGITS})?|inf|infinity)|nan",
    re.ASCII | re.IGNORECASE,
)
_HEX = re.compile(
    rf"[+-]?0x(?:_?{_HEX_DIGITS}(?:\.(?:{_HEX_DIGITS})?)?|\.{_HEX_DIGITS})p[+-]?{_DIGITS}", re.ASCII | re.IGNORECASE
)
_LONGEST = 4096


def general(number: float) -> str:
    """The shortest text that stands for the number, with an exponent below 1e-4 and from 1e6 on (Go's %g and %v)."""
    shortest = repr(number)
    if shortest in _SPECIAL:
        return _SPECIAL[shortest]
    sign, digits, exponent = Decimal(shortest).as_tuple()
    assert isinstance(exponent, int)
    point = len(digits) + exponent - 1
    if point < _EXACT:
        return shortest.removesuffix(".0")  # Python has exponents below 1e-4, too
    text = "".join(map(str, digits)).rstrip("0")
    mantissa = f"{text[0]}.{text[1:]}" if len(text) > 1 else text
    return f"{'-' if sign else ''}{mantissa}e+{point:02}"


def parse_float(text: str) -> float | None:
    """The number that a text stands for; None if it is none, or out of range."""
    if len(text) > _LONGEST:
        return None
    if _HEX.fullmatch(text):
        try:
            return float.fromhex(text.replace("_", ""))
        except OverflowError:
            return None
    if not _FLOAT.fullmatch(text):
        return None
    number = float(text)
    spelled = text.lower().lstrip("+-")
    return None if number in (float("inf"), float("-inf")) and not spelled.startswith("inf") else number
