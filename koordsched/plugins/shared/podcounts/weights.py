"""Many weighted label selectors put to a pod at once: what those that match it weigh together.

A pod's spec may list ten thousand terms. Asked one by one they would cost that much for every pod they are put to; here
it costs what the pod's labels have to do with. Selectors of one requirement, which nearly all are, become sums per
label; others are looked up by one of their requirements.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from koordsched.api.selectors import SelectorError, ValueTest, value_test

Requirement = tuple[str, str, tuple[str, ...]]
"""(label key, operator, values)."""

Requirements = tuple[Requirement, ...]
"""ANDed; none at all match everything."""

_TAKES_VALUES = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}
_NEGATIVE = ("NotIn", "DoesNotExist")

_Spot = str | tuple[str, str]
"""A label key, whatever its value, or a key and a value."""


def check(requirements: Requirements) -> None:
    """Raises SelectorError if one is not valid."""
    for _, operator, values in requirements:
        takes_values = _TAKES_VALUES.get(operator)
        if takes_values is None:
            raise SelectorError(f"{operator[:64]!r} is not a valid label selector operator")
        if takes_values is not bool(values):
            value_test(operator, values)


def _spots(requirement: Requirement) -> Iterable[_Spot]:
    """The labels that make the requirement true, or false if it is a negative one."""
    key, _, values = requirement
    return [(key, value) for value in values] if values else (key,)


class LabelWeights:
    """The sum of the weights of the selectors that match; selectors must be valid, weights positive."""

    __slots__ = ("_base", "_excluded", "_keys", "_places", "_sums")

    def __init__(self, selectors: Iterable[tuple[int, Requirements]]) -> None:
        self._base = 0
        self._sums: dict[_Spot, int] = {}
        self._excluded: dict[_Spot, list[tuple[int, int]]] = {}
        self._places: dict[_Spot, list[_Bucket]] = {}
        together: defaultdict[Requirements, list[tuple[int, Requirements]]] = defaultdict(list)
        for number, (weight, requirements) in enumerate(selectors):
            if len(requirements) == 1:
                self._take_one(weight, requirements[0])
            elif not requirements:
                self._base += weight
            else:
                positive = tuple(r for r in requirements if r[1] not in _NEGATIVE)
                negative = tuple(r for r in requirements if r[1] in _NEGATIVE)
                if positive:
                    together[positive].append((weight, negative))
                else:
                    self._take_negative(number, weight, negative)
        self._place(together)
        spots = (spot for found in (self._sums, self._excluded, self._places) for spot in found)
        self._keys = {spot if isinstance(spot, str) else spot[0] for spot in spots}

    def _take_one(self, weight: int, requirement: Requirement) -> None:
        if requirement[1] in _NEGATIVE:
            self._base += weight
            weight = -weight
        for spot in _spots(requirement):
            self._sums[spot] = self._sums.get(spot, 0) + weight

    def _take_negative(self, number: int, weight: int, negative: Requirements) -> None:
        """Counts the selector everywhere, except where a label makes one of the requirements false."""
        self._base += weight
        for requirement in negative:
            for spot in _spots(requirement):
                self._excluded.setdefault(spot, []).append((number, weight))

    def _place(self, together: Mapping[Requirements, list[tuple[int, Requirements]]]) -> None:
        """Each under the requirement that fewest others have."""
        frequency = Counter(requirement for positive in together for requirement in positive)
        for positive, members in together.items():
            bucket = _Bucket(positive, members)
            for spot in _spots(min(positive, key=lambda requirement: (frequency[requirement], len(requirement[2])))):
                self._places.setdefault(spot, []).append(bucket)

    def of(self, labels: Mapping[str, str]) -> int:
        """What those that match these labels weigh together; 0 if none does."""
        total = self._base
        excluded: dict[int, int] = {}
        keys = self._keys
        for key in keys if len(keys) < len(labels) else labels:
            if key not in keys or (value := labels.get(key)) is None:
                continue
            for spot in (key, (key, value)):
                total += self._sums.get(spot, 0)
                for bucket in self._places.get(spot, ()):
                    total += bucket.of(labels)
                if spot in self._excluded:
                    excluded.update(self._excluded[spot])
        return total - sum(excluded.values())


class _Bucket:
    """Selectors with the same positive requirements."""

    __slots__ = ("_tests", "_weights")

    def __init__(self, positive: Requirements, members: Sequence[tuple[int, Requirements]]) -> None:
        self._tests: tuple[tuple[str, ValueTest], ...] = tuple((key, value_test(op, vs)) for key, op, vs in positive)
        self._weights: int | LabelWeights = sum(weight for weight, _ in members)
        if any(negative for _, negative in members):
            self._weights = LabelWeights(members)

    def of(self, labels: Mapping[str, str]) -> int:
        for key, test in self._tests:
            if not test(labels.get(key)):
                return 0
        return self._weights if isinstance(self._weights, int) else self._weights.of(labels)


S = TypeVar("S", bound=Hashable)
"""What tells the namespaces that a selector is about."""

_NAMESPACES_KEPT = 1024
_MERGED_KEPT = 8


class ScopedWeights(Generic[S]):
    """Weighted selectors, each for the namespaces of its scope."""

    __slots__ = ("_by_scope", "_in_namespace", "_merged")

    def __init__(self, selectors: Iterable[tuple[S, int, Requirements]]) -> None:
        self._by_scope: defaultdict[S, list[tuple[int, Requirements]]] = defaultdict(list)
        for scope, weight, requirements in selectors:
            self._by_scope[scope].append((weight, requirements))
        self._in_namespace: dict[str, LabelWeights] = {}
        self._merged: dict[tuple[S, ...], LabelWeights] = {}

    def within(self, namespace: str, covers: Callable[[S], bool]) -> LabelWeights:
        """Those whose scope covers the namespace; `covers` must answer alike until `forget`."""
        found = self._in_namespace.get(namespace)
        if found is None:
            covering = tuple(scope for scope in self._by_scope if covers(scope))
            found = self._merged.get(covering)
            if found is None:
                if len(self._merged) >= _MERGED_KEPT:
                    self._merged.clear()
                    self._in_namespace.clear()
                found = LabelWeights(member for scope in covering for member in self._by_scope[scope])
                self._merged[covering] = found
            if len(self._in_namespace) >= _NAMESPACES_KEPT:
                self._in_namespace.clear()
            self._in_namespace[namespace] = found
        return found

    def forget(self) -> None:
        """Scopes may cover other namespaces now."""
        self._in_namespace.clear()
