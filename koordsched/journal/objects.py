"""The newest record of every object in a journal: what the next segment begins with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"


class Change(NamedTuple):
    """What a record means for the objects of a collection: which one it is about, and whether that was deleted."""

    path: str
    identity: str = ""
    gone: bool = False


def identity_of(path: str, namespace: str, name: str, uid: str) -> str:
    """What the scheduler knows an object by."""
    return uid if path == PODS else f"{namespace}/{name}"


class NewestObjects:
    """By collection and identity, in the order in which they appeared."""

    def __init__(self) -> None:
        self._records: dict[str, dict[str, bytes]] = {}

    def apply(self, record: bytes, change: Change) -> None:
        """Takes note of a record."""
        records = self._records.setdefault(change.path, {})
        if change.gone:
            records.pop(change.identity, None)
        else:
            records[change.identity] = record

    def __iter__(self) -> Iterator[bytes]:
        for records in self._records.values():
            yield from records.values()
