"""Whether requests can each have as many devices as they need out of sets that overlap: a flow."""

from __future__ import annotations

from collections.abc import Sequence


def can_be_shared_out(needs: Sequence[tuple[int, int]], kinds: Sequence[int]) -> bool:
    """Whether the needs, (number, set of devices), can be met with no device serving two. `kinds` partitions the
    devices into sets (bits); devices of a kind that are in the same sets of needs make the search faster, nothing else.
    """
    ordered = sorted(needs, key=lambda need: need[1].bit_count())
    left = 0
    for _, devices in ordered:
        left |= devices
    for number, devices in ordered:
        mine = devices & left
        if mine.bit_count() < number:
            return _flows(needs, kinds)
        for _ in range(number):
            mine &= mine - 1
        left &= ~devices | mine
    return True


def _flows(needs: Sequence[tuple[int, int]], kinds: Sequence[int]) -> bool:
    """The same by augmenting paths, with as many devices of a kind for a need as it may have of them."""
    together = 0
    for _, devices in needs:
        together |= devices
    here = [kind & together for kind in kinds if kind & together]
    room = [kind.bit_count() for kind in here]
    most = [[(kind & devices).bit_count() for kind in here] for _, devices in needs]
    given = [[0] * len(here) for _ in needs]
    for need, (number, _) in enumerate(needs):
        for _ in range(number):
            if not _augment(need, most, given, room):
                return False
    return True


def _augment(need: int, most: list[list[int]], given: list[list[int]], room: list[int]) -> bool:
    """Gives one more device to a need, moving others if necessary."""
    came: dict[int, tuple[int, int]] = {}
    """By kind: the need that would take of it, and the kind that this need would give up (-1: none)."""
    queue = [(need, -1)]
    seen = {need}
    while queue:
        taker, gives_up = queue.pop()
        for kind in range(len(room)):
            if kind in came or given[taker][kind] >= most[taker][kind]:
                continue
            came[kind] = (taker, gives_up)
            if room[kind] > 0:
                room[kind] -= 1
                while kind >= 0:
                    by, before = came[kind]
                    given[by][kind] += 1
                    if before >= 0:
                        given[by][before] -= 1
                    kind = before
                return True
            for other, has in enumerate(given):
                if has[kind] > 0 and other not in seen:
                    seen.add(other)
                    queue.append((other, kind))
    return False
