"""Kubernetes quantities (`100m`, `1.5Gi`, `2e3`) as exact integers.

Go keeps quantities as arbitrary-precision decimals and hands them out rounded up (`Value()`,
`MilliValue()`); so do we. Rows of the node table hold int64, therefore results are clamped to
±`LIMIT`, which leaves room to add up a few hundred clamped values without overflow.

Source: apimachinery `pkg/api/resource/quantity.go`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

LIMIT = 1 << 53
"""Largest magnitude handed out: float64-exact and 2**10 times below the edge of int64."""

NANO = 10**9

_SYNTAX = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?\d{1,9})?", re.ASCII)

_SCALE: dict[str, Fraction] = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(1 << 10),
    "Mi": Fraction(1 << 20),
    "Gi": Fraction(1 << 30),
    "Ti": Fraction(1 << 40),
    "Pi": Fraction(1 << 50),
    "Ei": Fraction(1 << 60),
}
_EXPONENT_LIMIT = 40
_TEXT_LIMIT = 256
_PLAIN_DIGITS = 16
"""Numbers of fewer digits are within LIMIT."""


class QuantityError(ValueError):
    """The text is not a quantity."""


def parse(text: str | int | float) -> Fraction:
    """The exact value of a quantity; numbers, which YAML users write, are taken at their value.

    Raises QuantityError with the text (shortened) when it is not a quantity.
    """
    if not isinstance(text, str):
        if isinstance(text, bool) or text != text or text in (float("inf"), float("-inf")):
            raise QuantityError(f"quantity {text!r} is not a number")
        return Fraction(str(text)) if isinstance(text, float) else Fraction(text)
    matched = _SYNTAX.fullmatch(text) if len(text) <= _TEXT_LIMIT else None
    if matched is None:
        raise QuantityError(f"quantity {text[:64]!r} must match {_SYNTAX.pattern!r}")
    sign, digits, suffix = matched.groups()
    suffix = suffix or ""
    number = Fraction(digits + "0" if digits.endswith(".") else digits)
    if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix != "Ei":
        # A hostile exponent must not produce a number of a billion digits.
        exponent = max(-_EXPONENT_LIMIT, min(_EXPONENT_LIMIT, int(suffix[1:])))
        number *= Fraction(10) ** exponent
    else:
        number *= _SCALE[suffix]
    return -number if sign == "-" else number


def _clamp(value: int) -> int:
    return max(-LIMIT, min(LIMIT, value))


def _ceil(value: Fraction) -> int:
    # Go rounds away from zero towards +infinity for positives; negative requests never pass validation.
    return -((-value.numerator) // value.denominator)


@lru_cache(maxsize=65536)
def value(text: str | int | float) -> int:
    """Whole units, rounded up and clamped to ±LIMIT (Go's `Value()`)."""
    return _clamp(_ceil(parse(text)))


@lru_cache(maxsize=65536)
def milli_value(text: str | int | float) -> int:
    """Thousandths, rounded up and clamped to ±LIMIT (Go's `MilliValue()`)."""
    return _clamp(_ceil(parse(text) * 1000))


def measured_value(text: str | int | float) -> int:
    """As `value`, for measurements: they are mostly plain numbers and hardly ever repeat, so none is kept."""
    if isinstance(text, str) and text.isdecimal() and len(text) < _PLAIN_DIGITS:
        return int(text)
    return _clamp(_ceil(parse(text)))


def measured_milli_value(text: str | int | float) -> int:
    """As `milli_value`, for measurements."""
    if isinstance(text, str) and text[-1:] == "m" and text[:-1].isdecimal() and len(text) < _PLAIN_DIGITS:
        return int(text[:-1])
    return _clamp(_ceil(parse(text) * 1000))


@lru_cache(maxsize=65536)
def nano_value(text: str | int | float) -> int:
    """Billionths, rounded up, not clamped: the exact unit of quota arithmetic."""
    return _ceil(parse(text) * NANO)


_DECIMAL_SUFFIX = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}


def format_nano(amount: int) -> str:
    """Billionths as the canonical decimal-SI text (`1500000000` -> "1500m", `2000000000` -> "2")."""
    mantissa, exponent = amount, -9
    if mantissa == 0:
        return "0"
    while mantissa % 1000 == 0 and exponent + 3 in _DECIMAL_SUFFIX:
        mantissa //= 1000
        exponent += 3
    return f"{mantissa}{_DECIMAL_SUFFIX[exponent]}"


_BINARY_SUFFIX = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def format_bytes(amount: int) -> str:
    """Bytes as the canonical binary-SI text (`1073741824` -> "1Gi")."""
    step = 0
    while amount and amount % 1024 == 0 and step + 1 < len(_BINARY_SUFFIX):
        amount //= 1024
        step += 1
    return f"{amount}{_BINARY_SUFFIX[step]}"


def format_amount(amount: int, *, binary: bool) -> str:
    """Billionths as canonical text: in powers of 1024 if asked and if it is a whole number, else of 1000."""
    return format_bytes(amount // NANO) if binary and amount % NANO == 0 else format_nano(amount)


def go_divide(dividend: int, divisor: int) -> int:
    """Go's integer division, which truncates toward zero where Python floors."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend >= 0) == (divisor > 0) else -quotient
