"""Sets of completion indexes in the notation of Job statuses: `0-3,7`."""

from __future__ import annotations

from collections.abc import Iterable


def parse_indexes(text: str, limit: int) -> set[int]:
    """The indexes below `limit` that the text names; parts that cannot be read are left out."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if first.isdecimal() and (last.isdecimal() or not dash):
            found.update(range(int(first), min(int(last or first), limit - 1) + 1))
    return found


def format_indexes(indexes: Iterable[int]) -> str:
    """Runs of three and more as `first-last`, as upstream writes them."""
    parts: list[str] = []
    run: list[int] = []
    for index in [*sorted(indexes), None]:
        if run and (index is None or index != run[-1] + 1):
            parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run)
            run = []
        if index is not None:
            run.append(index)
    return ",".join(parts)
