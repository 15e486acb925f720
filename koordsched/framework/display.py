"""What plugins show to people on the command line, free of how it is printed: lines and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
