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
        members = self._members.get(key)
        if members is None:
            self._members[key] = [member]  # takes less than one that grows
            return
        members.append(member)
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


class Counters:
    """A number per member, 0 at first: per binary digit, the members that have it, as bits."""

    __slots__ = ("_digits",)

    def __init__(self) -> None:
        self._digits: list[int] = []

    def copy(self) -> Counters:
        """The same numbers, to count down."""
        found = Counters()
        found._digits = self._digits.copy()
        return found

    def set(self, member: int, number: int) -> None:
        """`number`: not negative."""
        digits, bit = self._digits, 1 << member
        digits += [0] * (number.bit_length() - len(digits))
        for digit, having in enumerate(digits):
            digits[digit] = having | bit if number >> digit & 1 else having & ~bit
        while digits and not digits[-1]:
            digits.pop()

    def count_down(self, members: int) -> None:
        """One less for each of these members; they must be among `positive`."""
        digits = self._digits
        for digit, having in enumerate(digits):
            if not members:
                return
            digits[digit] = having ^ members
            members &= ~having

    @property
    def positive(self) -> int:
        """The members whose number is not 0."""
        found = 0
        for having in self._digits:
            found |= having
        return found

    def least(self, members: int) -> int:
        """The smallest number of these members."""
        least = 0
        for digit in range(len(self._digits) - 1, -1, -1):
            fewer = members & ~self._digits[digit]
            if fewer:
                members = fewer
            else:
                least |= 1 << digit
        return least

    def __bool__(self) -> bool:
        return bool(self._digits)


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
