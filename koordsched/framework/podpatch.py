"""What PreBind plugins change of a pod's metadata, written at once when all of them have succeeded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordsched.api.meta import ObjectMeta


class PodPatch:
    """Changes of one pod; of the same key the last counts."""

    __slots__ = ("_metadata",)

    def __init__(self) -> None:
        self._metadata: dict[str, Any] = {}

    def annotate(self, key: str, value: str | None) -> None:
        """Sets an annotation; None removes it."""
        self.merge({"annotations": {key: value}})

    def label(self, key: str, value: str | None) -> None:
        """Sets a label; None removes it."""
        self.merge({"labels": {key: value}})

    def merge(self, metadata: Mapping[str, Any]) -> None:
        """Merges into the metadata (JSON); None removes a field."""
        _merge(self._metadata, metadata)

    def after(self, earlier: PodPatch, shown: ObjectMeta) -> PodPatch:
        """These changes, with those labels and annotations that an earlier attempt alone changed as they are shown."""
        both = PodPatch()
        for field, there in (("annotations", shown.annotations), ("labels", shown.labels)):
            for key in earlier._metadata.get(field, ()):
                both.merge({field: {key: there.get(key)}})
        both.merge(self._metadata)
        return both

    def changes(self, shown: ObjectMeta | None) -> dict[str, Any]:
        """The metadata to send: what `shown` does not have yet (None: nothing is known of it). Empty if there is none.

        Of fields other than labels and annotations nothing is known, so they are always sent.
        """
        changes = dict(self._metadata)
        for field, there in (("annotations", shown.annotations), ("labels", shown.labels)) if shown is not None else ():
            wanted = changes.get(field)
            if wanted is not None:
                changes[field] = {key: value for key, value in wanted.items() if there.get(key) != value}
                if not changes[field]:
                    del changes[field]
        return changes


def _merge(into: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, Mapping):
            before = into.get(key)
            into[key] = dict(before) if isinstance(before, dict) else {}
            _merge(into[key], value)
        else:
            into[key] = value
