"""Equal label sets as one object, so that a million pods of a few thousand kinds cost a few thousand dicts."""

from __future__ import annotations

from weakref import WeakValueDictionary

_BYTES, _BYTES_PER_LABEL = 300, 300


class LabelSet:
    """An immutable set of labels, shared by every pod that carries exactly these. Compare by identity."""

    __slots__ = ("__weakref__", "labels")

    def __init__(self, labels: dict[str, str]) -> None:
        self.labels = labels

    @property
    def nbytes(self) -> int:
        """About what it takes."""
        return _BYTES + sum(_BYTES_PER_LABEL + len(key) + len(value) for key, value in self.labels.items())

    def __repr__(self) -> str:
        return f"LabelSet({self.labels})"


class LabelSets:
    """Interns label sets; a set that no pod carries any more disappears by itself."""

    __slots__ = ("_sets",)

    def __init__(self) -> None:
        self._sets: WeakValueDictionary[tuple[tuple[str, str], ...], LabelSet] = WeakValueDictionary()

    def intern(self, labels: dict[str, str]) -> LabelSet:
        """The one LabelSet with these labels."""
        key = tuple(sorted(labels.items()))
        found = self._sets.get(key)
        if found is None:
            found = self._sets[key] = LabelSet(labels)
        return found

    def __len__(self) -> int:
        return len(self._sets)
