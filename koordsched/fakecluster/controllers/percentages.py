"""`IntOrString` numbers: a count, or a percentage of a total."""

from __future__ import annotations

import math
import re

_PERCENTAGE = re.compile(r"(\d{1,9})%")


def scaled_value(value: int | str | None, total: int, *, round_up: bool) -> int:
    """The count that `value` means out of `total`; what is neither a count nor a percentage counts as 0."""
    if isinstance(value, int):
        return value
    matched = _PERCENTAGE.fullmatch(value) if value else None
    if matched is None:
        return 0
    share = int(matched.group(1)) * total / 100
    return math.ceil(share) if round_up else math.floor(share)
