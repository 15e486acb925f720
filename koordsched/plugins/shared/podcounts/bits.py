"""Sets of small numbers as the bits of one: thousands of members take bytes, and are combined in one step."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, KeysView, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_FEW = 64
"""The bits of so many members are not kept, but put together when they are asked for."""


def bits(members: Iterable[int]) -> int:
    """The number that has these bits."""
    chosen = list(members)
    if not chosen:
        return 0
    found = bytearray(max(chosen) // 8 + 1)
    for member in chosen:
        found[member >> 3] |= 1 << (member & 7)
    return int.from_bytes(found, "little")


class BitIndex(Generic[K]):
    """Members by key."""

    __slots__ = ("_kept", "_members")

    def __init__(self) -> None:
        self._members: dict[K, list[int]] = {}
        self._kept: dict[K, int] = {}

    def add(self, key: K, member: int) -> None:
        """Each member once for each key."""
        self._members.setdefault(key, []).append(member)
        if key in self._kept:
            self._kept[key] |= 1 << member

    def remove(self, key: K, member: int) -> None:
        """It must be one of the key."""
        members = self._members[key]
        members.remove(member)
        if len(members) <= _FEW:
            self._kept.pop(key, None)
        elif key in self._kept:
            self._kept[key] ^= 1 << member
        if not members:
            del self._members[key]

    def of(self, keys: Iterable[K]) -> int:
        """The members of any of the keys."""
        found, few = 0, list[int]()
        for key in keys:
            members = self._members.get(key)
            if members is None:
                continue
            if len(members) <= _FEW:
                few += members
                continue
            kept = self._kept.get(key)
            if kept is None:
                kept = self._kept[key] = bits(members)
            found |= kept
        return found | bits(few) if few else found

    def keys(self) -> KeysView[K]:
        """The keys that have members."""
        return self._members.keys()

    def __contains__(self, key: object) -> bool:
        return key in self._members

    def __bool__(self) -> bool:
        return bool(self._members)


class Weights:
    """What sets of members weigh together; weights are positive."""

    __slots__ = ("_planes",)

    def __init__(self, weights: Sequence[int]) -> None:
        digits = range(max(weights, default=0).bit_length())
        self._planes = [
            (1 << digit, bits(member for member, weight in enumerate(weights) if weight >> digit & 1))
            for digit in digits
        ]

    def of(self, members: int) -> int:
        """The sum of the weights of these members."""
        return sum(worth * (members & plane).bit_count() for worth, plane in self._planes)
