"""Sets of CPUs as Linux writes them: `0-3,8`."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIGHEST_CPU = 8191
"""No machine has more (Linux: NR_CPUS)."""
_PART = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", re.ASCII)
_LONGEST_TEXT = 65536


def parse_cpuset(text: object) -> frozenset[int]:
    """The numbers of the CPUs; none for an empty text. Raises ValueError for anything but numbers and ranges."""
    if not isinstance(text, str) or len(text) > _LONGEST_TEXT:
        raise ValueError("not a CPU set such as 0-3,8")
    found: set[int] = set()
    for part in text.split(",") if text else ():
        match = _PART.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last > HIGHEST_CPU:
            raise ValueError(f"{text[:64]!r} is not a CPU set such as 0-3,8")
        found.update(range(first, last + 1))
    return frozenset(found)


def format_cpuset(cpus: Iterable[int]) -> str:
    """The text of a set, ascending and with ranges."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
