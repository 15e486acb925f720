"""Durations in Go's notation (`1m30s`), as `metav1.Duration` reads and writes them."""

import re
from decimal import Decimal
from typing import Self

_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # micro sign
    "μs": 10**3,  # Greek letter mu
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_LIMIT = 1 << 63
_MAX_DIGITS = 100  # no number that fits needs more; keeps the arithmetic on hostile input short
_PART = re.compile(r"([0-9]*(?:\.[0-9]*)?)([^0-9.]*)")


class Duration(int):
    """A length of time in whole nanoseconds, as Go counts it; compares and adds as an integer."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read Go's notation, e.g. `1m30s`, `-2.5h`, `0`.

        Raises ValueError with the text of Go's time.ParseDuration.
        """
        sign = -1 if text.startswith("-") else 1
        rest = text[1:] if text[:1] in ("-", "+") else text
        if rest == "0":
            return cls(0)
        total = 0
        bad = ValueError(f"time: invalid duration {_quote(text)}")
        if not rest:
            raise bad
        position = 0
        while position < len(rest):
            part = _PART.match(rest, position)
            if part is None or part[1] in ("", ".") or len(part[1]) > _MAX_DIGITS:
                raise bad
            number, unit = part.groups()
            if not unit:
                raise ValueError(f"time: missing unit in duration {_quote(text)}")
            if unit not in _NANOSECONDS:
                raise ValueError(f"time: unknown unit {_quote(unit)} in duration {_quote(text)}")
            total += int(Decimal(number) * _NANOSECONDS[unit])
            if total > _LIMIT:
                raise bad
            position = part.end()
        if total >= _LIMIT and sign > 0:
            raise bad
        return cls(sign * total)

    @classmethod
    def of(cls, seconds: float) -> Self:
        """The duration nearest to a number of seconds."""
        return cls(round(seconds * 10**9))

    @property
    def seconds(self) -> float:
        return int(self) / 10**9

    def __str__(self) -> str:
        """As Go prints it: `15s`, `10m0s`, `1.5s`, `100ms`."""
        nanoseconds = int(self)
        if nanoseconds == 0:
            return "0s"
        sign, size = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
        if size < 10**9:
            unit = next(u for u in ("ms", "µs", "ns") if size >= _NANOSECONDS[u])
            return f"{sign}{_decimal(size, _NANOSECONDS[unit])}{unit}"
        minutes, below = divmod(size, 60 * 10**9)
        hours, minutes = divmod(minutes, 60)
        text = f"{_decimal(below, 10**9)}s"
        if hours or minutes:
            text = f"{minutes}m{text}"
        if hours:
            text = f"{hours}h{text}"
        return sign + text

    def __repr__(self) -> str:
        return f"Duration({str(self)!r})"


def _decimal(size: int, unit: int) -> str:
    whole, fraction = divmod(size, unit)
    if not fraction:
        return str(whole)
    digits = str(fraction).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}"


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
