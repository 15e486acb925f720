"""Watches: one encoding of a change for all who watch alike, a bounded buffer for each of them.

Semantics: apiserver `pkg/storage/cacher` (what enters or leaves a selector is ADDED or DELETED) and
`pkg/endpoints/handlers/watch.go` (bookmarks, time-outs).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Sequence

import orjson

from koordsched.fakecluster.clock import CallLater, TimerHandle
from koordsched.fakecluster.selectors import RecordTest
from koordsched.fakecluster.store import ADDED, DELETED, MODIFIED, Change, Collection, Record

Encode = Callable[[Record], bytes]
"""The object as a watch event carries it (plain, in another version, as a Table…)."""

CHUNK = 1 << 18
"""Bytes that one item of a stream gathers at most (one larger frame still goes whole)."""


Frame = tuple[bytes, bytes, bytes]
"""One line of a watch stream in pieces: joined when it is sent, so that those who wait for it share the object."""


def frame(type_: str, body: bytes) -> Frame:
    """One line of a watch stream."""
    return b'{"type":"%s","object":' % type_.encode(), body, b"}\n"


class Watcher:
    """One client's stream. `limit` bytes may wait for it; beyond that it is closed and has to come again."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._frames: list[Frame] = []
        self._size = 0
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None

    def push(self, encoded: Frame) -> None:
        """Hand over one frame."""
        self._frames.append(encoded)
        self._size += len(encoded[1])
        if self._size > self._limit:
            # What is buffered cannot be sent in time; the client resumes from the last version it saw.
            self._frames.clear()
            self._closed = True
        self._wake()

    def close(self) -> None:
        """End the stream after what is buffered."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    async def frames(self) -> AsyncIterator[bytes]:
        """Batches of frames, joined, until the watcher is closed."""
        while True:
            if self._frames:
                frames, self._frames, self._size = self._frames, [], 0
                for batch in batches(frames):
                    yield batch
                continue
            if self._closed:
                return
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter


def batches(frames: Sequence[Frame]) -> list[bytes]:
    """The frames joined into chunks of about CHUNK bytes."""
    joined: list[bytes] = []
    part: list[bytes] = []
    size = 0
    for encoded in frames:
        part += encoded
        size += len(encoded[1])
        if size >= CHUNK:
            joined.append(b"".join(part))
            part, size = [], 0
    if part:
        joined.append(b"".join(part))
    return joined


class WatchGroup:
    """The watchers of one collection that see the same objects in the same encoding."""

    def __init__(self, namespace: str | None, matches: RecordTest | None, encode: Encode, encoding: Hashable) -> None:
        self.watchers: dict[Watcher, None] = {}
        """In the order in which they came, so that runs with the same inputs are alike."""
        self._namespace = namespace
        self._matches = matches
        self._encode = encode
        self._encoding = encoding

    def sees(self, record: Record | None) -> bool:
        """Whether the record is within namespace and selectors."""
        return (
            record is not None
            and (self._namespace is None or record.key[0] == self._namespace)
            and (self._matches is None or self._matches(record))
        )

    def encoded(self, change: Change) -> Frame | None:
        """The frame that this change is for the group; None when it does not concern it."""
        if self._namespace is not None and change.new.key[0] != self._namespace:
            return None
        type_, left = change.type, False
        if self._matches is not None:
            now = type_ is not DELETED and self._matches(change.new)
            before = change.old is not None and self._matches(change.old)
            if not now and not before:
                return None
            type_ = MODIFIED if now and before else ADDED if now else DELETED
            left = type_ is DELETED and change.type is not DELETED
        key = (type_, left, self._encoding)
        found = change.frames.get(key)
        if found is None:
            record = departed(change) if left else change.new
            found = change.frames[key] = frame(type_, self._encode(record))
        return found

    def __call__(self, change: Change) -> None:
        encoded = self.encoded(change)
        if encoded is not None:
            for watcher in self.watchers:
                watcher.push(encoded)

    def end(self) -> None:
        """End the streams after what is buffered."""
        for watcher in self.watchers:
            watcher.close()


def departed(change: Change) -> Record:
    """The event for an object that left a watcher's selector: the old state under the new version."""
    old = change.old
    if old is None:
        return change.new
    obj = old.fresh()
    obj["metadata"]["resourceVersion"] = str(change.rv)
    return Record(old.key, old.uid, change.rv, orjson.dumps(obj), old.labels, old.fields, old.deleting)


class WatchStream:
    """The body of a watch response: initial events, then live ones. `aclose` releases it, started or not."""

    def __init__(
        self, initial: Sequence[Frame] | AsyncIterator[bytes], watcher: Watcher, cleanup: Callable[[], None]
    ) -> None:
        self._generator = self._generate(initial, watcher)
        self._cleanup = cleanup

    async def _generate(
        self, initial: Sequence[Frame] | AsyncIterator[bytes], watcher: Watcher
    ) -> AsyncGenerator[bytes, None]:
        if isinstance(initial, Sequence):
            for batch in batches(initial):
                yield batch
        else:
            async for batch in initial:
                yield batch
        async for batch in watcher.frames():
            yield batch

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self._generator.__anext__()
        except BaseException:
            self._cleanup()
            raise

    async def aclose(self) -> None:
        """Release the watch; also when it was never read."""
        self._cleanup()
        await self._generator.aclose()


class WatchHub:
    """All watch groups, by what they see and how."""

    def __init__(self, call_later: CallLater, buffer_limit: int = 128 << 20, bookmark_interval: float = 60.0) -> None:
        self._call_later = call_later
        self._buffer_limit = buffer_limit
        self._bookmark_interval = bookmark_interval
        self._groups: dict[Hashable, tuple[WatchGroup, Collection]] = {}
        self._watchers: dict[Watcher, None] = {}

    def open(
        self,
        key: Hashable,
        collection: Collection,
        make_group: Callable[[], WatchGroup],
        timeout: float,
        bookmark: Callable[[], Frame] | None,
        initial: Callable[[WatchGroup], Sequence[Frame] | AsyncIterator[bytes]],
    ) -> WatchStream:
        """Open a watch on the group at `key`, from this instant; `initial` is sent before what follows.

        `timeout` in seconds ends it; `bookmark` makes the bookmark frames, sent periodically and before the end.
        """
        entry = self._groups.get(key)
        if entry is None:
            group = make_group()
            self._groups[key] = (group, collection)
            collection.observers.append(group)
        else:
            group = entry[0]
        watcher = Watcher(self._buffer_limit)
        group.watchers[watcher] = None
        self._watchers[watcher] = None
        timers: list[TimerHandle] = [self._call_later(timeout, self._end, watcher, bookmark)]
        if bookmark is not None:
            timers.append(self._call_later(self._bookmark_interval, self._mark, watcher, bookmark, timers))

        def cleanup() -> None:
            for timer in timers:
                timer.cancel()
            self._watchers.pop(watcher, None)
            group.watchers.pop(watcher, None)
            current = self._groups.get(key)
            if not group.watchers and current is not None and current[0] is group:
                del self._groups[key]
                current[1].observers.remove(group)

        return WatchStream(initial(group), watcher, cleanup)

    def close_all(self) -> None:
        """End every stream: the server goes down."""
        for watcher in list(self._watchers):
            watcher.close()

    def _mark(self, watcher: Watcher, bookmark: Callable[[], Frame], timers: list[TimerHandle]) -> None:
        watcher.push(bookmark())
        timers[1] = self._call_later(self._bookmark_interval, self._mark, watcher, bookmark, timers)

    def _end(self, watcher: Watcher, bookmark: Callable[[], Frame] | None) -> None:
        if bookmark is not None:
            watcher.push(bookmark())
        watcher.close()
