"""State: encoded objects, their index, and the history that watches replay.

An object is kept as the JSON bytes that every list and watch sends. Beside the bytes stand the few facts that
selectors need; the decoded form is kept only for the objects written last (a bounded number), because what was just
written is what controllers and the next write will look at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec
import orjson
from sortedcontainers import SortedDict

Object = dict[str, Any]
Key = tuple[str, str]
"""(namespace, name); the namespace of cluster-scoped objects is empty."""

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"


class Record(msgspec.Struct, gc=False, eq=False):
    """One version of one object. Immutable, and in no reference cycle: nothing for the garbage collector to visit."""

    key: Key
    uid: str
    rv: int
    data: bytes
    labels: dict[str, str]
    fields: tuple[str, ...]
    """Values of the resource's selectable fields, in their order."""
    deleting: bool
    _decoded: Object | None = None

    @property
    def namespace(self) -> str:
        return self.key[0]

    @property
    def name(self) -> str:
        return self.key[1]

    def obj(self) -> Object:
        """The decoded object. Shared: read only. Its managedFields may be an orjson.Fragment, never looked into."""
        return self._decoded if self._decoded is not None else orjson.loads(self.data)

    def fresh(self) -> Object:
        """A decoded copy that the caller owns."""
        decoded: Object = orjson.loads(self.data)
        return decoded

    def remember(self, decoded: Object) -> None:
        """Keep the decoded form for readers that come soon."""
        self._decoded = decoded

    def forget(self) -> None:
        """Drop the decoded form; `obj` decodes again when asked."""
        self._decoded = None


class Change(msgspec.Struct, gc=False, eq=False):
    """A committed write. `old` is None for ADDED; for DELETED `new` is the last state, with the deletion's version."""

    type: str
    old: Record | None
    new: Record
    frames: dict[Any, tuple[bytes, bytes, bytes]] = {}
    """Encoded watch events (watch.Frame) by (event type, transformation): encoded once for all watchers."""

    @property
    def rv(self) -> int:
        return self.new.rv

    def size(self) -> int:
        """Bytes that the history holds because of this change."""
        return len(self.new.data) + 400


class Observer(Protocol):
    """Receives every change of a collection."""

    def __call__(self, change: Change) -> None:
        """A change was committed."""

    def end(self) -> None:
        """No more changes will come: to go on, an observer has to subscribe again."""


class Collection:
    """All objects of one stored resource, ordered by key, with the recent history of their changes."""

    def __init__(self, first_rv: int, history_bytes: int, history_length: int) -> None:
        self.items: dict[Key, Record] = SortedDict()
        self.history: deque[Change] = deque()
        self.compacted = first_rv
        """Changes up to this resourceVersion are no longer in the history."""
        self.observers: list[Observer] = []
        self._history_limit = history_bytes
        self._history_length = history_length
        self._history_size = 0

    def get(self, namespace: str, name: str) -> Record | None:
        return self.items.get((namespace, name))

    def scan(self, namespace: str | None = None) -> Iterator[Record]:
        """Records in key order, of one namespace or (None) of all. Not to be interleaved with writes."""
        if namespace is None:
            yield from self.items.values()
            return
        items = self.items
        keys = items.irange((namespace, ""), (namespace + "\0", ""), (True, False))  # type: ignore[attr-defined]  # SortedDict has no stubs
        for key in keys:
            yield items[key]

    def at(self, rv: int, namespace: str | None) -> list[Record] | None:
        """The records as they were at `rv`, in key order; None when the history does not reach back that far."""
        if rv < self.compacted:
            return None
        undone: dict[Key, Record | None] = {}
        for change in reversed(self.history):
            if change.rv <= rv:
                break
            undone[change.new.key] = change.old
        if not undone:
            return list(self.scan(namespace))
        state = dict(self.items)
        for key, record in undone.items():
            if record is None:
                state.pop(key, None)
            else:
                state[key] = record
        return [state[k] for k in sorted(state) if namespace is None or k[0] == namespace]

    def since(self, rv: int) -> list[Change]:
        """The changes after `rv`, oldest first; the caller has compared `rv` with `compacted`."""
        found: list[Change] = []
        for change in reversed(self.history):
            if change.rv <= rv:
                break
            found.append(change)
        found.reverse()
        return found

    def apply(self, change: Change) -> None:
        """Commit a change and tell the observers."""
        record = change.new
        if change.type is DELETED:
            self.items.pop(record.key, None)
        elif record.key in self.items:
            # The key has its place in the order already.
            dict.__setitem__(self.items, record.key, record)
        else:
            self.items[record.key] = record
        self.history.append(change)
        self._history_size += change.size()
        while self._history_size > self._history_limit or len(self.history) > self._history_length:
            dropped = self.history.popleft()
            self._history_size -= dropped.size()
            self.compacted = dropped.rv
        for observer in self.observers:
            observer(change)

    def compact(self) -> None:
        """Forget the whole history: every watch from the past ends with 410."""
        if self.history:
            self.compacted = self.history[-1].rv
        self.history.clear()
        self._history_size = 0

    def end(self) -> None:
        """Tells the observers that no more changes will come."""
        for observer in self.observers:
            observer.end()

    def begin_anew(self, rv: int) -> None:
        """Keep the objects and forget what was before `rv`: watches end, and those that resume from before get 410."""
        self.compact()
        self.compacted = rv
        self.end()


class Store:
    """The collections, under one counter of resourceVersions.

    `first_rv` is the resourceVersion of the empty store. A server that starts anew should take one above all that its
    predecessor can have handed out, so that watches of old clients end with 410 instead of missing events.
    """

    def __init__(
        self, first_rv: int = 1, history_bytes: int = 128 << 20, history_length: int = 100_000, decoded: int = 1024
    ) -> None:
        self.rv = first_rv
        self.first_rv = first_rv
        self.log: Callable[[str, Change], None] | None = None
        """Called with the storage key and every change before the write is answered."""
        self._history_bytes = history_bytes
        self._history_length = history_length
        self._collections: dict[str, Collection] = {}
        self._decoded: deque[Record] = deque()
        self._decoded_limit = decoded

    def collection(self, storage: str) -> Collection:
        """The collection of a storage key, made on first use."""
        found = self._collections.get(storage)
        if found is None:
            found = Collection(self.first_rv, self._history_bytes, self._history_length)
            self._collections[storage] = found
        return found

    def drop(self, storage: str) -> None:
        """Forget a collection (its CRD is gone), and end its watches."""
        dropped = self._collections.pop(storage, None)
        if dropped is not None:
            dropped.end()

    def begin_anew(self) -> None:
        """Keeps all objects and forgets the history: every watch ends, and clients that resume one have to list."""
        rv = self.next_rv()
        for collection in self._collections.values():
            collection.begin_anew(rv)

    def next_rv(self) -> int:
        """Take the next resourceVersion."""
        self.rv += 1
        return self.rv

    def remember(self, record: Record, decoded: Object) -> None:
        """Keep the decoded form of a record until `decoded` newer ones have come."""
        record.remember(decoded)
        self._decoded.append(record)
        if len(self._decoded) > self._decoded_limit:
            self._decoded.popleft().forget()
