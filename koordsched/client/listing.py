"""What a complete listing contains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from zlib import crc32

_SHARDS = 1021


def _shard_of(uid: str) -> int:
    """Not by `hash`: how many shards there are, and the steps it takes to clear them, would differ by process."""
    return crc32(uid.encode()) % _SHARDS


class ListedUids:
    """The uids of the objects that a listing has shown so far.

    They lie in many small sets: a large one takes long, without a pause, to grow, and again to be freed (at a million
    uids 60 and 200 ms on a busy machine).
    """

    __slots__ = ("_shards",)

    def __init__(self) -> None:
        self._shards: defaultdict[int, set[str]] = defaultdict(set)

    def add(self, uid: str) -> None:
        """The object exists."""
        self._shards[_shard_of(uid)].add(uid)

    def discard(self, uid: str) -> None:
        """It does not exist any more."""
        shard = self._shards.get(_shard_of(uid))
        if shard is not None:
            shard.discard(uid)

    def __contains__(self, uid: str) -> bool:
        shard = self._shards.get(_shard_of(uid))
        return shard is not None and uid in shard

    def clear(self) -> Iterator[None]:
        """Forgets all of them, some with each step."""
        while self._shards:
            self._shards.popitem()
            yield
