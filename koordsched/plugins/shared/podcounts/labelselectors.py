"""Many label selectors put to a pod at once: which of them match.

A pod's spec may list ten thousand terms. Asked one by one they would cost that much for every pod they are put to; here
it costs what the pod's labels have to do with. Selectors are members of sets that are bits of a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from koordsched.api.selectors import SelectorError, value_test
from koordsched.plugins.shared.podcounts.bits import BitIndex, bits

Requirement = tuple[str, str, tuple[str, ...]]
"""(label key, operator, values)."""

Requirements = tuple[Requirement, ...]
"""ANDed; none at all match everything."""

_TAKES_VALUES = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}
_NEGATIVE = ("NotIn", "DoesNotExist")

Spot = str | tuple[str, str]
"""A label key, whatever its value, or a key and a value."""


def check(requirements: Requirements) -> None:
    """Raises SelectorError if one is not valid."""
    for _, operator, values in requirements:
        takes_values = _TAKES_VALUES.get(operator)
        if takes_values is None:
            raise SelectorError(f"{operator[:64]!r} is not a valid label selector operator")
        if takes_values is not bool(values):
            value_test(operator, values)


def is_negative(requirement: Requirement) -> bool:
    """Whether it is true where the label is missing."""
    return requirement[1] in _NEGATIVE


def spots_of(requirement: Requirement) -> Sequence[Spot]:
    """The labels that make the requirement true, or false if it is a negative one."""
    key, _, values = requirement
    return [(key, value) for value in dict.fromkeys(values)] if values else (key,)


class LabelSelectors:
    """Selectors by number, from 0; they must be valid.

    The positive requirements of a selector are in slots 0, 1, 2 ...: where none of a slot is true, no selector matches
    that has so many.
    """

    __slots__ = ("_beyond", "_every", "_keys", "_negative", "_positive", "_slots")

    def __init__(self, selectors: Iterable[Requirements]) -> None:
        self._negative: BitIndex[Spot] = BitIndex()
        self._positive: BitIndex[tuple[Spot, int]] = BitIndex()
        self._slots: dict[Spot, dict[int, None]] = {}
        beyond: list[list[int]] = []
        number = -1
        for number, requirements in enumerate(selectors):
            slot = 0
            for requirement in dict.fromkeys(requirements):
                spots = spots_of(requirement)
                if is_negative(requirement):
                    self._take_negative(number, spots)
                    continue
                if slot == len(beyond):
                    beyond.append([])
                beyond[slot].append(number)
                for spot in spots:
                    self._slots.setdefault(spot, {})[slot] = None
                    self._positive.add((spot, slot), number)
                slot += 1
        self._every = (1 << (number + 1)) - 1
        self._beyond = [bits(members) for members in beyond]
        """By slot, the selectors with a requirement in it."""
        found = (*self._slots, *self._negative.keys())
        self._keys = {spot if isinstance(spot, str) else spot[0] for spot in found}

    def _take_negative(self, number: int, spots: Iterable[Spot]) -> None:
        for spot in spots:
            self._negative.add(spot, number)

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
