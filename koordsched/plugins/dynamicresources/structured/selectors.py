"""Expressions about devices as the allocator uses them, and which attributes they read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Protocol

from koordsched.plugins.dynamicresources.structured.devices import Equipment

Expired = Callable[[], bool]
"""Whether the time for the search is over."""

Attribute = tuple[str, str]
"""Domain and id of an attribute."""


class SelectorFailure(Exception):
    """An expression cannot be compiled (`anywhere`), or not be evaluated on a device; the text says which, and why."""

    def __init__(self, text: str, *, anywhere: bool = False) -> None:
        self.anywhere = anywhere
        super().__init__(text)


class Expressions(Protocol):
    """Evaluates expressions."""

    def selects(self, text: str, equipment: Equipment, expired: Expired) -> bool:
        """Whether the expression selects such a device. Raises SelectorFailure."""


_READ = re.compile(
    r"""\bdevice\s*\.\s*(?:
        (?P<plain>driver|allowMultipleAllocations)\b(?!\s*\()
      | (?:attributes|capacity)\s*\[\s*(?P<quote>['"])(?P<domain>[^'"\\]*)(?P=quote)\s*\]\s*\.\s*(?P<id>[A-Za-z_]\w*)
    )""",
    re.VERBOSE | re.ASCII,
)
_DEVICE = re.compile(r"\bdevice\b", re.ASCII)


def read_by(texts: Iterable[str]) -> frozenset[Attribute] | None:
    """The attributes that expressions read at most; None if that is not plain to see.

    It is where each mention of `device` is followed by the name of a field and, for attributes, by the domain as a
    literal and the id. (Then no map of attributes is a value of its own.)
    """
    found: set[Attribute] = set()
    for text in texts:
        reads = list(_READ.finditer(text))
        if len(reads) != len(_DEVICE.findall(text)):
            return None
        found.update((read["domain"], read["id"]) for read in reads if read["id"])
    return frozenset(found)
