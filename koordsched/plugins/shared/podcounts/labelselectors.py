"""Many label selectors put to a pod at once: which of them match.

A pod's spec may list ten thousand terms. Asked one by one they would cost that much for every pod they are put to; here
it costs what the pod's labels have to do with. Selectors are members of sets that are bits of a number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from koordsched.api.selectors import Requirement, Selector
from koordsched.plugins.shared.podcounts.bits import BitIndex, Counters

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
    return _spots(key, values or None)


def _spots(key: str, values: Collection[str] | None) -> Sequence[Spot]:
    return (key,) if values is None else [(key, value) for value in dict.fromkeys(values)]


class LabelSelectors:
    """Selectors by number, which come and go. One matches if none of the labels is one that it forbids, and as many as
    it requires are ones that it requires.
    """

    __slots__ = ("_every", "_keys", "_negative", "_positive", "_required")

    def __init__(self, selectors: Iterable[Requirements] = ()) -> None:
        """`selectors`: the first ones, numbered from 0; they must be valid."""
        self._negative: BitIndex[Spot] = BitIndex()
        self._positive: BitIndex[Spot] = BitIndex()
        self._required = Counters()
        """How many labels each requires."""
        self._keys: dict[str, int] = {}
        """How many requirements there are on each."""
        self._every = 0
        for number, requirements in enumerate(selectors):
            self.put(number, Selector(requirements))

    def put(self, number: int, selector: Selector) -> None:
        """A selector under a number that no other has."""
        self._every |= 1 << number
        self._required.set(number, len(selector.required))
        keys = self._keys
        for index, values_by_key in self._indexed(selector):
            for key, values in values_by_key.items():
                keys[key] = keys.get(key, 0) + 1
                for spot in _spots(key, values):
                    index.add(spot, number)

    def drop(self, number: int, selector: Selector) -> None:
        """The selector that was put under this number goes."""
        self._every ^= 1 << number
        self._required.set(number, 0)
        keys = self._keys
        for index, values_by_key in self._indexed(selector):
            for key, values in values_by_key.items():
                keys[key] -= 1
                if not keys[key]:
                    del keys[key]
                for spot in _spots(key, values):
                    index.remove(spot, number)

    def _indexed(self, selector: Selector) -> Iterable[tuple[BitIndex[Spot], Mapping[str, Collection[str] | None]]]:
        return (self._positive, selector.required), (self._negative, selector.forbidden)

    def matching(self, labels: Mapping[str, str]) -> int:
        """The selectors that match these labels, as bits."""
        keys = self._keys
        spots: list[Spot] = []
        missing = self._required.copy()
        for key in keys if len(keys) < len(labels) else labels:
            if key in keys and (value := labels.get(key)) is not None:
                of_label = (key, (key, value))
                spots += of_label
                missing.count_down(self._positive.of(of_label))
        return self._every & ~self._negative.of(spots) & ~missing.positive
