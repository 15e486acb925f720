"""Sets of logical CPUs: ints, in which bit i stands for CPU i. As texts they are Linux lists of CPUs, as `0-3,8`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import reduce
from itertools import compress
from operator import or_

MAX_CPUS = 4096
"""Ids of CPUs are below this (upstream's limit, which keeps hostile texts from costing memory)."""

RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
SHOWN = 60
"""How many characters of a malformed text a message repeats."""

IDS = tuple(range(MAX_CPUS))
BITS = bytes.maketrans(b"01", b"\0\1")


def parse(text: str) -> int:
    """The CPUs that a list names, none for "". Raises ValueError for anything but ids and ascending ranges of them."""
    if not text:
        return 0
    cpus = 0
    for part in text.split(","):
        match = RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"cpuset {_shown(text)}: {_shown(part)} is neither a CPU nor a range of CPUs")
        first = _id_of(match[1], text)
        last = first if match[2] is None else _id_of(match[2], text)
        if last < first:
            raise ValueError(f"cpuset {_shown(text)}: the range {_shown(part)} ends before it starts")
        cpus |= (1 << last + 1) - (1 << first)
    return cpus


def text(cpus: int) -> str:
    """The list of these CPUs: ascending, neighbours as ranges, "" for none. The opposite of `parse`."""
    ranges = []
    first = 0
    while cpus:
        gap = (cpus & -cpus).bit_length() - 1
        cpus >>= gap
        first += gap
        length = (~cpus & cpus + 1).bit_length() - 1
        cpus >>= length
        ranges.append(str(first) if length == 1 else f"{first}-{first + length - 1}")
        first += length
    return ",".join(ranges)


def ids(cpus: int) -> list[int]:
    """The ids of these CPUs, ascending. Ids are below MAX_CPUS."""
    return list(compress(IDS, bin(cpus)[:1:-1].encode().translate(BITS)))


def of(ids: Iterable[int]) -> int:
    """The set of CPUs with these ids, which are 0 or more; any may come twice."""
    return reduce(or_, map((1).__lshift__, ids), 0)


def _id_of(digits: str, text: str) -> int:
    if len(digits.lstrip("0")) > len(str(MAX_CPUS)) or int(digits) >= MAX_CPUS:
        raise ValueError(f"cpuset {_shown(text)}: CPU {_shown(digits)} is above {MAX_CPUS - 1}")
    return int(digits)


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[: SHOWN - 3] + "...")
