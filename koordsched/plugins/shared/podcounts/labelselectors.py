"""Many label selectors put to a pod at once: which of them match.

A pod's spec may list ten thousand terms. Asked one by one they would cost that much for every pod they are put to; here
it costs what the pod's labels have to do with. Selectors are members of sets that are bits of a number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from koordsched.api.selectors import Requirement, Selector
from koordsched.plugins.shared.podcounts.bits import BitIndex

Requirements = tuple[Requirement, ...]
"""ANDed; none at all match everything."""

_NEGATIVE = ("NotIn", "DoesNotExist")

Spot = str | tuple[str, str]
"""A label key, whatever its value, or a key and a value."""


def is_negative(requirement: Requirement) -> bool:
    """Whether it is true where the label is missing."""
    return requirement[1] in _NEGATIVE


def spots_of(requirement: Requirement) -> Sequence[Spot]:
    """The labels that make the requirement true, or false if it is a negative one."""
    key, _, values = requirement
    return [(key, value) for value in dict.fromkeys(values)] if values else (key,)


def _spots(key: str, values: Collection[str] | None) -> Iterator[Spot]:
    if values is None:
        yield key
    else:
        yield from ((key, value) for value in dict.fromkeys(values))


class LabelSelectors:
    """Selectors by number, which come and go.

    The keys that a selector requires are in slots 0, 1, 2 ...: where none of a slot is as required, no selector matches
    that has so many.
    """

    __slots__ = ("_beyond", "_every", "_keys", "_negative", "_positive", "_slots")

    def __init__(self, selectors: Iterable[Requirements] = ()) -> None:
        """`selectors`: the first ones, numbered from 0; they must be valid."""
        self._negative: BitIndex[Spot] = BitIndex()
        self._positive: BitIndex[tuple[Spot, int]] = BitIndex()
        self._slots: dict[Spot, dict[int, None]] = {}
        self._every = 0
        self._beyond: list[int] = []
        """By slot, the selectors with a requirement in it."""
        self._keys: dict[str, int] = {}
        """How many requirements there are on each."""
        for number, requirements in enumerate(selectors):
            self.put(number, Selector(requirements))

    def put(self, number: int, selector: Selector) -> None:
        """A selector under a number that no other has."""
        bit = 1 << number
        self._every |= bit
        for key, values in selector.forbidden.items():
            self._keys[key] = self._keys.get(key, 0) + 1
            for spot in _spots(key, values):
                self._negative.add(spot, number)
        for slot, (key, values) in enumerate(selector.required.items()):
            self._keys[key] = self._keys.get(key, 0) + 1
            if slot == len(self._beyond):
                self._beyond.append(0)
            self._beyond[slot] |= bit
            for spot in _spots(key, values):
                self._slots.setdefault(spot, {})[slot] = None
                self._positive.add((spot, slot), number)

    def drop(self, number: int, selector: Selector) -> None:
        """The selector that was put under this number goes."""
        bit = 1 << number
        self._every ^= bit
        for key, values in selector.forbidden.items():
            self._release(key)
            for spot in _spots(key, values):
                self._negative.remove(spot, number)
        for slot, (key, values) in enumerate(selector.required.items()):
            self._release(key)
            self._beyond[slot] ^= bit
            for spot in _spots(key, values):
                self._positive.remove((spot, slot), number)
                if (spot, slot) not in self._positive:
                    del self._slots[spot][slot]
                    if not self._slots[spot]:
                        del self._slots[spot]
        while self._beyond and not self._beyond[-1]:
            self._beyond.pop()

    def _release(self, key: str) -> None:
        self._keys[key] -= 1
        if not self._keys[key]:
            del self._keys[key]

    def matching(self, labels: Mapping[str, str]) -> int:
        """The selectors that match these labels, as bits."""
        keys = self._keys
        spots: list[Spot] = []
        for key in keys if len(keys) < len(labels) else labels:
            if key in keys and (value := labels.get(key)) is not None:
                spots += (key, (key, value))
        found = self._every & ~self._negative.of(spots)
        true: dict[int, int] = {}
        for spot in spots:
            for slot in self._slots.get(spot, ()):
                true[slot] = true.get(slot, 0) | self._positive.of(((spot, slot),))
        for slot, members in enumerate(self._beyond):
            if slot not in true:
                return found & ~members  # those with requirements in later slots are among them
            found &= true[slot] | ~members
        return found
