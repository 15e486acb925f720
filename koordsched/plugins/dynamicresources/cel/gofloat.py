"""Doubles as Go writes and reads them."""

from __future__ import annotations

import re
from decimal import Decimal

_EXACT = 6
_SPECIAL = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}
# Each text is matched in one way at most: what users write must not take time that grows faster than its length.
_FLOAT = re.compile(r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|inf|infinity|nan)", re.ASCII | re.IGNORECASE)
_HEX = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?\d+", re.ASCII)
_LONGEST = 4096


def general(number: float) -> str:
    """The shortest text that stands for the number, with an exponent below 1e-4 and from 1e6 on (Go's %g and %v)."""
    shortest = repr(number)
    if shortest in _SPECIAL:
        return _SPECIAL[shortest]
    sign, digits, exponent = Decimal(shortest).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + exponent - 1 if any(digits) else 0
    if point < -4 or point >= _EXACT:
        mantissa = f"{text[0]}.{text[1:]}" if len(text) > 1 else text
        return f"{'-' if sign else ''}{mantissa}e{'-' if point < 0 else '+'}{abs(point):02}"
    return shortest.removesuffix(".0")


def parse_float(text: str) -> float | None:
    """The number that a text stands for; None if it is none, or out of range."""
    if len(text) > _LONGEST:
        return None
    if _HEX.fullmatch(text):
        try:
            return float.fromhex(text)
        except OverflowError:
            return None
    if not _FLOAT.fullmatch(text):
        return None
    number = float(text)
    spelled = text.lower().lstrip("+-")
    return None if number in (float("inf"), float("-inf")) and not spelled.startswith("inf") else number
