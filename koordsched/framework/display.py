"""What plugins show on the command line, independent of how it is printed: lines and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from koordsched.api.quantity import NANO, format_bytes, nano_value

_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_BYTES = ("memory", "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text; "" makes an empty one."""

    text: str
    bold: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A text per column in each row. The columns named in `numbers` are aligned to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[str] = ()


def amount_text(resource: str, quantity: str) -> str:
    """A quantity of a resource in a readable form: `1010400m` CPUs are 1010.4, 2147483649 bytes 2Gi.

    From 1 CPU on in CPUs; bytes as Kubernetes writes them if that takes four digits at most, else in the largest unit
    of powers of 1024 that leaves a whole part; two decimals, rounded. Everything else stays as it is. Raises
    QuantityError.
    """
    amount = nano_value(quantity)
    if resource == "cpu" and amount >= NANO:
        return _short(Decimal(amount) / NANO)
    kind = resource.rpartition("/")[2].removeprefix("batch-").removeprefix("mid-")
    if kind not in _BYTES and not kind.startswith("hugepages-"):
        return quantity
    exact = format_bytes(amount // NANO)
    if amount % NANO == 0 and sum(map(str.isdigit, exact)) <= 4:
        return exact
    unit, divisor = "", NANO
    for name in _BINARY:
        if amount < divisor * 1024:
            break
        unit, divisor = name, divisor * 1024
    return _short(Decimal(amount) / divisor) + unit


def _short(number: Decimal) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")
