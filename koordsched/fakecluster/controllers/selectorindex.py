"""Which selectors match these labels, and which labelled things does this selector match, without a full pass.

A selector is filed under one label pair that every match must carry; only selectors without such a pair (match
expressions like NotIn) are asked every time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from koordsched.api.meta import LabelSelector
from koordsched.api.selectors import Selector, SelectorError, compile_selector

Item = TypeVar("Item", bound=Hashable)

_Bucket = tuple[str, str, str] | str
"""(namespace, key, value), or the namespace alone for what has no pair."""


def parse_selector(selector: Mapping[str, Any] | None) -> Selector | None:
    """Compiles a `metav1.LabelSelector`; None, which matches nothing, when it is absent or not valid."""
    if selector is None:
        return None
    try:
        return compile_selector(msgspec.convert(selector, LabelSelector))
    except (SelectorError, msgspec.ValidationError):
        return None


class SelectorIndex(Generic[Item]):
    """Namespaced selectors of items, looked up by the labels of a pod."""

    def __init__(self) -> None:
        self._selectors: dict[Item, tuple[_Bucket, Selector]] = {}
        self._buckets: dict[_Bucket, set[Item]] = {}

    def put(self, item: Item, namespace: str, selector: Selector | None) -> None:
        """Files the item under its selector, in place of its earlier one; None removes it."""
        previous = self._selectors.pop(item, None)
        if previous is not None:
            bucket = self._buckets[previous[0]]
            bucket.discard(item)
            if not bucket:
                del self._buckets[previous[0]]
        if selector is not None:
            pair = selector.equalities[:1]
            where: _Bucket = (namespace, *pair[0]) if pair else namespace
            self._selectors[item] = where, selector
            self._buckets.setdefault(where, set()).add(item)

    def __len__(self) -> int:
        return len(self._selectors)

    def selector(self, item: Item) -> Selector | None:
        """The selector the item is filed under."""
        found = self._selectors.get(item)
        return found[1] if found else None

    def matching(self, namespace: str, labels: Mapping[str, str]) -> list[Item]:
        """The items of that namespace whose selectors match the labels, in sorted order of their text."""
        if not self._selectors:
            return []
        buckets = self._buckets
        found: set[Item] = set()
        for pair in labels.items():
            found |= buckets.get((namespace, *pair), frozenset())
        found |= buckets.get(namespace, frozenset())
        return sorted((item for item in found if self._selectors[item][1].matches(labels)), key=repr)


class LabelIndex(Generic[Item]):
    """Labelled items, looked up by a selector."""

    def __init__(self) -> None:
        self._labels: dict[Item, tuple[str, Mapping[str, str]]] = {}
        self._buckets: dict[_Bucket, dict[Item, None]] = {}

    def put(self, item: Item, namespace: str, labels: Mapping[str, str]) -> None:
        """Files the item under its labels, in place of its earlier ones."""
        self.discard(item)
        self._labels[item] = namespace, labels
        for bucket in self._where(namespace, labels):
            self._buckets.setdefault(bucket, {})[item] = None

    def discard(self, item: Item) -> None:
        """Removes the item, if it is there."""
        previous = self._labels.pop(item, None)
        if previous is None:
            return
        for where in self._where(*previous):
            bucket = self._buckets[where]
            bucket.pop(item, None)
            if not bucket:
                del self._buckets[where]

    def matching(self, namespace: str, selector: Selector) -> Iterator[Item]:
        """The items of that namespace that the selector matches, in the order they were filed."""
        pair = selector.equalities[:1]
        where: _Bucket = (namespace, *pair[0]) if pair else namespace
        for item in list(self._buckets.get(where, ())):
            if selector.matches(self._labels[item][1]):
                yield item

    @staticmethod
    def _where(namespace: str, labels: Mapping[str, str]) -> Iterator[_Bucket]:
        yield namespace
        for pair in labels.items():
            yield (namespace, *pair)
