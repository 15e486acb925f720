"""Namespaces by their labels: which of them the selectors of terms mean.

A pod may have thousands of terms with selectors of their own, and a cluster thousands of namespaces. So no selector is
put to namespaces one by one, and sets of them are bits of a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

import numpy as np
import numpy.typing as npt

from koordsched.api.core import Namespace
from koordsched.api.selectors import check
from koordsched.cluster.builtinkinds import NAMESPACES
from koordsched.cluster.objects import Store
from koordsched.cluster.state import ClusterState
from koordsched.plugins.shared.podcounts.bits import BitIndex, bits
from koordsched.plugins.shared.podcounts.labelselectors import Requirements, Spot, is_negative, spots_of

_SPARE = 64
"""Numbers of namespaces that are gone before all are numbered anew."""


class NamespaceSet(Set[str]):
    """Names of namespaces: bits of `mask`, at the places that `places` gives them, and `others`."""

    __slots__ = ("mask", "others", "places")

    def __init__(self, places: Mapping[str, int], mask: int, others: frozenset[str]) -> None:
        self.places = places
        self.mask = mask
        self.others = others

    def __contains__(self, name: object) -> bool:
        place = self.places.get(name) if isinstance(name, str) else None
        return bool(self.mask >> place & 1) if place is not None else name in self.others

    def __iter__(self) -> Iterator[str]:
        yield from (name for name, place in self.places.items() if self.mask >> place & 1)
        yield from self.others

    def __len__(self) -> int:
        return self.mask.bit_count() + len(self.others)

    def __and__(self, other: Set[str]) -> Set[str]:
        if isinstance(other, NamespaceSet) and other.places is self.places:
            return NamespaceSet(self.places, self.mask & other.mask, self.others & other.others)
        return frozenset(name for name in other if name in self)

    __rand__ = __and__

    def __eq__(self, other: object) -> bool:
        """Sets that were numbered differently count as different: what is kept for one is not used for the other."""
        return (
            isinstance(other, NamespaceSet)
            and self.places is other.places
            and (self.mask, self.others) == (other.mask, other.others)
        )

    def __hash__(self) -> int:
        return hash((self.mask, self.others))


class Namespaces:
    """Labels of namespaces, and which of them satisfy a selector.

    `version` grows with every change of labels: what was derived before is out of date then.
    """

    def __init__(self, cluster: ClusterState) -> None:
        self._store: Store[Namespace] = cluster.objects.of(NAMESPACES)
        self.version = 0
        self._places: dict[str, int] = {}
        self._labelled: BitIndex[Spot] = BitIndex()
        """The namespaces that have a label, by its key, and by key and value."""
        self._all = 0
        self._indexed = -1
        self._store.subscribe(self._on_change)

    def _on_change(self, old: Namespace | None, new: Namespace | None) -> None:
        if old is None or new is None or old.metadata.labels != new.metadata.labels:
            self.version += 1

    def labels(self, name: str) -> Mapping[str, str] | None:
        """The labels of a namespace: none if there is no such namespace, None if we may not see it."""
        namespace = self._store.get("", name)
        if namespace is None:
            return None if self._store.hidden else {}
        return namespace.metadata.labels

    def meant(self, listed: frozenset[str], by_labels: Requirements) -> NamespaceSet:
        """Those that are listed, and those whose labels satisfy the requirements. Raises SelectorError."""
        check(by_labels)
        if self._indexed != self.version:
            self._index()
        mask = self._all
        for requirement in by_labels:
            found = self._labelled.of(spots_of(requirement))
            mask &= ~found if is_negative(requirement) else found
        places = self._places
        others = frozenset(name for name in listed if name not in places)
        return NamespaceSet(places, mask | bits(places[name] for name in listed if name in places), others)

    def _index(self) -> None:
        self._indexed = self.version
        self._labelled = BitIndex()
        if len(self._places) > 2 * len(self._store) + _SPARE:
            self._places = {}  # sets that are still in use keep the old one
        places = self._places
        for namespace in self._store:
            meta = namespace.metadata
            place = places.setdefault(meta.name, len(places))
            for label in meta.labels.items():
                self._labelled.add(label[0], place)
                self._labelled.add(label, place)
        self._all = bits(places[namespace.metadata.name] for namespace in self._store)


class NamespaceScopes:
    """Scopes by number, from 0, each a set of namespaces, or None for all: which of them a namespace is in."""

    __slots__ = ("_count", "_everywhere", "_kept", "_listed", "_numbered")

    def __init__(self, scopes: Sequence[Set[str] | None]) -> None:
        self._count = len(scopes)
        self._everywhere = bits(number for number, scope in enumerate(scopes) if scope is None)
        self._listed: BitIndex[str] = BitIndex()
        numbered: dict[int, tuple[Mapping[str, int], list[tuple[int, int]]]] = {}
        for number, scope in enumerate(scopes):
            if isinstance(scope, NamespaceSet):
                numbered.setdefault(id(scope.places), (scope.places, []))[1].append((number, scope.mask))
                scope = scope.others
            for name in scope or ():
                self._listed.add(name, number)
        self._numbered = [(places, *_table(members)) for places, members in numbered.values()]
        self._kept: dict[str, int] = {}

    def of(self, namespace: str) -> int:
        """The scopes that the namespace is in, as bits."""
        found = self._kept.get(namespace)
        if found is None:
            found = self._everywhere | self._listed.of((namespace,))
            for places, numbers, table in self._numbered:
                place = places.get(namespace)
                if place is not None and place >> 3 < table.shape[1]:
                    within = np.zeros(self._count, dtype=np.bool_)
                    within[numbers] = table[:, place >> 3] >> (place & 7) & 1
                    found |= int.from_bytes(np.packbits(within, bitorder="little").tobytes(), "little")
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            self._kept[namespace] = found
        return found


_KEPT = 64
"""Namespaces; a pod may have ten thousand terms."""


def _table(members: Sequence[tuple[int, int]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Numbers of scopes, of which there is one at least, and their masks: int64[scopes], uint8[scopes, bytes]."""
    width = max(mask.bit_length() for _, mask in members) // 8 + 1
    masks = b"".join(mask.to_bytes(width, "little") for _, mask in members)
    numbers = np.array([number for number, _ in members], dtype=np.int64)
    return numbers, np.frombuffer(masks, dtype=np.uint8).reshape(len(members), width)
