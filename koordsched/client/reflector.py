"""List and watch: keeps a sink equal to what the API server holds, through every kind of interruption."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from enum import Enum
from random import Random
from typing import Generic, TypeVar

from koordsched.api.meta import HasMetadata
from koordsched.api.versions import is_older
from koordsched.client import transport as limits
from koordsched.client.backoff import Backoff
from koordsched.client.clock import Clock
from koordsched.client.encodings import Encodings
from koordsched.client.errors import (
    ApiError,
    ClientError,
    ConnectionFailure,
    Forbidden,
    Gone,
    NotFound,
    TooLong,
    error_from_status,
    raise_for_status,
    whole,
)
from koordsched.client.identity import is_api_server
from koordsched.client.objectapplier import ObjectApplier, OnMalformed
from koordsched.client.paging import Progress
from koordsched.client.protobufformat import ProtobufFormat
from koordsched.client.sink import Sink
from koordsched.client.timeslices import TimeSlices
from koordsched.client.transport import Transport
from koordsched.client.wireformat import INITIAL_EVENTS_END, Decode, Meta, Unreadable

log = logging.getLogger(__name__)

T = TypeVar("T", bound=HasMetadata)

PAGE_SIZE = 500
"""Objects per list request (client-go tools/pager uses the same); doubled when paging was too slow for compaction, and
halved when a page was longer than may be read (`transport`).
"""

LONGEST_PAGE = 2_000
"""To which it may grow: a page is split into its objects in one piece, which takes about 10 µs for a pod of 5 KB."""

LIST_TIMEOUT = 60.0
"""Seconds for one page."""

EARLY = 1.0
"""Seconds before its time at which the end of a watch is not the one that was asked for."""

WATCH_SECONDS = (300, 600)
"""Range from which the life of each watch is drawn, so that watches do not all end at once (client-go reflector.go)."""

WATCH_GRACE = 30.0
"""Seconds past its announced end after which a watch counts as dead."""

SETTLED = 5.0
"""Seconds a watch must have lasted for its end to count as normal."""

MUTE_WATCHES = 3
"""Watches in a row that may end within `SETTLED` without an event before a list is taken: a proxy may let none through,
and then only lists show changes (client-go, reflector.go: VeryShortWatchError).
"""

BACKOFF = (0.2, 30.0)
"""First and longest delay, in seconds, between attempts that fail."""

UNAVAILABLE_BACKOFF = (1.0, 30.0)
"""The same for a resource that is forbidden or does not exist: a server that starts may answer that for a moment."""

STREAMING_REFUSED = (400, 405, 415, 422)
"""Answers to a streamed list that mean: not on this server."""

STREAMED_LIST_ATTEMPTS = 2
"""Streamed lists that may break off before their end until pages are used instead."""


class State(Enum):
    """The state of a reflector; readiness names those that are not SYNCED."""

    SYNCING = "syncing"
    SYNCED = "synced"
    FAILING = "failing"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not found"


OnState = Callable[[State, ClientError | None], None]
"""(the new state, the error behind it)."""


class _Relist(Exception):
    """The watch cannot continue from its version."""


async def _nothing() -> None:
    pass


class Reflector(Generic[T]):
    """Runs list and watch of one resource for ever.

    `path` is the collection's, such as /api/v1/pods; `selectors` its fieldSelector and labelSelector. `decode` makes an
    object of its JSON; whatever it raises counts as a malformed object, which is reported and skipped. With `protobuf`
    that is asked for, and what comes decides. `before_resuming` is awaited before lists other than the first and those
    of `relist`, and before a watch that was lost, refused, or ended early is opened again; `on_older` hears that the
    newest state of the server is older than what it has shown. `on_state` hears of every change of `state`, with the
    error behind it if there is one. With `watch_list` the initial state is streamed where the server can do that.

    The first list asks for the newest state (no resourceVersion): a cache on the server may be behind what our
    predecessor wrote, and a scheduler that starts from an old state would bind to occupied room. Later lists ask for
    nothing older than what was seen, which caches can serve. Events no newer than what was handled (duplicates after a
    disturbed connection) are skipped; resource versions of one resource are ordered numbers.

    A listing is taken in slices of the loop's time, of which `turns` says whose they are, while the scheduler goes on
    with what it knows. Watching begins when all of it has been handled, so no event can be undone by a listed object,
    and a listing that broke off is followed by one of the newest state.
    """

    def __init__(
        self,
        transport: Transport,
        path: str,
        decode: Decode[T],
        sink: Sink[T],
        *,
        clock: Clock,
        rng: Random,
        selectors: Mapping[str, str] | None = None,
        on_malformed: OnMalformed | None = None,
        on_state: OnState | None = None,
        protobuf: ProtobufFormat[T] | None = None,
        watch_list: bool = False,
        page_size: int = PAGE_SIZE,
        slices: TimeSlices | None = None,
        before_resuming: Callable[[], Awaitable[None]] = _nothing,
        on_older: Callable[[], None] | None = None,
    ) -> None:
        self._transport = transport
        self._encodings = Encodings(decode, protobuf)
        self._applier = ObjectApplier(path, self._encodings.json, sink, on_malformed)
        self._clock = clock
        self._rng = rng
        self._selectors = dict(selectors or {})
        self._on_state = on_state
        self._before_resuming = before_resuming
        self._on_older = on_older
        self._backoff = Backoff(rng, *BACKOFF)
        self._relist_backoff = Backoff(rng, *BACKOFF)
        self._unavailable_backoff = Backoff(rng, *UNAVAILABLE_BACKOFF)
        self._page_size = page_size
        self._stream_lists = watch_list
        self._streams_cut = 0
        self._mute_watches = 0
        self._listed = False
        self._newest_only = True
        self._lost = False
        self._slices = slices or TimeSlices(clock.monotonic)
        self._interruption: asyncio.Timeout | None = None
        self._outdated = False
        self._refreshing = False
        self._if_served = False
        self.anew = False
        """The server went back in time since the last list: versions known do not count against those of the next."""
        self._refreshed = asyncio.Event()
        self.path = path
        self.state = State.SYNCING
        self.error: ClientError | None = None
        self.synced = asyncio.Event()
        self.lists = 0
        self.watches = 0
        self.events = 0
        self.failures = 0

    @property
    def resource_version(self) -> str:
        """The version up to which everything has been handed to the sink; empty before the first list."""
        return self._applier.version

    @property
    def stale_events(self) -> int:
        """Events that were not newer than the cached state."""
        return self._applier.stale_events

    @property
    def malformed(self) -> int:
        """Objects that could not be decoded or taken in."""
        return self._applier.malformed

    async def run(self) -> None:
        """Lists, watches, recovers, until cancelled."""
        while True:
            interruption = self._interruption = asyncio.timeout(None)
            try:
                async with interruption:
                    delay = await self._step()
                    if delay > 0:
                        await asyncio.sleep(delay)
            except TimeoutError:
                if not interruption.expired():
                    raise

    async def relist(self, *, if_served: bool = False, anew: bool = False) -> None:
        """Lists the newest state once more, whatever is under way, and returns when it has been handled.

        A watch does not tell how far behind it is; to know everything that was written until now, a list is needed.
        `if_served`: returns also when the server says that it has no such resource, or that we must not read it.
        `anew`: the server went back in time, see `Sink`.
        """
        self.anew = self.anew or anew
        if if_served and self.state in (State.FORBIDDEN, State.NOT_FOUND):
            return
        self._outdated, self._refreshing, self._if_served = True, False, if_served
        self._refreshed.clear()
        if self._interruption is not None:
            self._interruption.reschedule(asyncio.get_running_loop().time())
        await self._refreshed.wait()

    async def _step(self) -> float:
        """One list or one watch. Returns how long to wait before the next, in seconds."""
        began, heard = self._clock.monotonic(), self.events
        if self._outdated:
            self._outdated, self._refreshing = False, True
            self._listed, self._newest_only = False, True
        try:
            if self._applier.version and not self._refreshing and (self._lost or not self._listed):
                await self._before_resuming()
            self._lost = False
            if not self._listed and not self._stream_lists:
                await self._list()
                return 0.0
            await self._watch()
        except (_Relist, Gone) as reason:
            log.info("%s: listing again: %s", self.path, reason)
            self._listed = False
            self._newest_only = self._newest_only or isinstance(reason, Gone)
            # Not the delay of failed connections: after an outage it has grown long, and the server is back.
            return self._relist_backoff.next()
        except (Forbidden, NotFound) as error:
            self.failures += 1
            self._listed = False
            state = State.FORBIDDEN
            if isinstance(error, NotFound):
                state = State.NOT_FOUND if await self._vanished() else State.FAILING
            self._report(state, error)
            if self._if_served and state is not State.FAILING:
                self._end_refresh()
            return self._unavailable_backoff.next()
        except ClientError as error:
            return self._failed(error)
        finally:
            self._applier.streaming = False
        return self._ended(self._clock.monotonic() - began, is_mute=self.events == heard)

    def _ended(self, lasted: float, *, is_mute: bool) -> float:
        """A watch ended after this many seconds; returns how long to wait before the next."""
        if lasted >= SETTLED:
            self._mute_watches = 0
            self._backoff.reset()
            self._relist_backoff.reset()
            return 0.0
        # Servers end watches at will, but one that ends at once, again and again, must not become a busy loop.
        self._mute_watches = self._mute_watches + 1 if is_mute else 0
        if self._mute_watches < MUTE_WATCHES:
            return self._backoff.next()
        log.info("%s: listing again: watches end at once and without an event", self.path)
        self._listed = False
        self._mute_watches = 0
        return self._relist_backoff.next()

    def _end_refresh(self) -> None:
        if self._refreshing:
            self._refreshing = False
            self._refreshed.set()

    async def _vanished(self) -> bool:
        """The server does not have the resource (any more), so there are no such objects. False if it is not the server
        that says so.

        Objects of the core group stay: it always exists, so such an answer is wrong.
        """
        if self.state is State.NOT_FOUND or self.path.startswith("/api/"):
            return True
        if not await is_api_server(self._transport):
            return False
        await self._paced(self._applier.begin(streamed=False))
        await self._paced(self._applier.complete(""))
        return True

    def _failed(self, error: ClientError) -> float:
        """Reports an error that may pass by itself and returns how long to wait, in seconds."""
        self.failures += 1
        self._lost = not isinstance(error, ApiError) or error.status >= 500
        delay = self._backoff.next()
        if isinstance(error, ApiError):
            delay = max(delay, min(error.retry_after or 0.0, BACKOFF[1]))
            if self._stream_lists and not self._listed and error.status in STREAMING_REFUSED:
                log.info("%s: the server does not stream lists: %s", self.path, error)
                self._stream_lists = False
                return 0.0
            if error.has_cause("ResourceVersionTooLarge") or error.status in (400, 422):
                # The server is behind us or was restored from a backup: its newest state is the only common ground.
                self._listed, self._newest_only = False, True
                delay = max(delay, self._relist_backoff.next())
        self._report(State.FAILING, error)
        return delay

    # --- listing ---

    async def _list(self) -> None:
        """Hands every object to the sink, page by page, and takes out those that are gone."""
        query = {**self._selectors, "limit": str(self._page_size)}
        if self._applier.version and not self._newest_only:
            query |= {"resourceVersion": self._applier.version, "resourceVersionMatch": "NotOlderThan"}
        self.lists += 1
        progress = Progress(self.path)
        await self._paced(self._applier.begin(streamed=False, anew=self.anew))
        while True:
            try:
                response = await self._transport.request(
                    "GET", self.path, query=query, timeout=LIST_TIMEOUT, headers=self._encodings.headers
                )
                await self._breathe()
                self._applier.format = self._encodings.of(response.headers)
                page = self._applier.format.page(raise_for_status(response).body)
            except Gone:
                # Compacted while we were paging: fewer, larger pages make it in time.
                if "continue" in query:
                    self._page_size = max(self._page_size, min(self._page_size * 2, LONGEST_PAGE))
                raise
            except TooLong:
                self._page_size = max(self._page_size // 2, 1)
                raise
            except Unreadable as error:
                raise ApiError(response.status, message=f"the answer is not a list: {error}") from error
            if "resourceVersion" in query and is_older(page.version, self._applier.version):
                # An older state than requested: the known one is kept until a list of the newest state is read.
                self._newest_only = True
                raise _Relist(f"a response older than the last one ({page.version})")
            self._compare(page.version)
            # From here on the sink may be ahead of the version that we can name.
            self._newest_only = True
            await self._paced(map(self._applier.upsert, page.items))
            if not page.next_token:
                break
            progress.check(page.items[0] if page.items else None)
            query = {**self._selectors, "limit": str(self._page_size), "continue": page.next_token}
        await self._replaced(page.version)

    def _compare(self, newest: str) -> None:
        if self._on_older is not None and is_older(newest, self._applier.version):
            self._on_older()

    async def _replaced(self, version: str) -> None:
        await self._paced(self._applier.complete(version))
        self.anew = self.anew and self._outdated
        self._backoff.reset()
        self._listed, self._newest_only = True, False
        self.synced.set()
        self._end_refresh()
        self._report(State.SYNCED, None)

    # --- watching ---

    async def _watch(self) -> None:
        """Handles one watch to its end; it starts with the whole state if nothing has been listed."""
        seconds = self._rng.randint(*WATCH_SECONDS)
        query = {**self._selectors, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        if not self._listed:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        if self._applier.version and not self._newest_only:
            query["resourceVersion"] = self._applier.version
        self.watches += 1
        due = self._clock.monotonic() + seconds
        async with (
            self._transport.stream(
                self.path, query=query, timeout=seconds + WATCH_GRACE, headers=self._encodings.headers
            ) as stream,
            aclosing(stream.chunks()) as chunks,
        ):
            if stream.status >= 300:
                body = await whole(chunks, limits.LONGEST_ANSWER, f"GET {self.path}")
                raise error_from_status(body, stream.status, stream.headers)
            # Not as soon as a list came: where only watching is refused, lists would follow one another.
            self._unavailable_backoff.reset()
            if self._listed:
                self._report(State.SYNCED, None)
            else:
                self.lists += 1
                self._newest_only = True
                await self._paced(self._applier.begin(streamed=True, anew=self.anew))
            self._applier.format = self._encodings.of(stream.headers)
            frames = self._applier.format.splitter()
            try:
                async for chunk in chunks:
                    for frame in frames.feed(chunk):
                        if version := self._handle(frame):
                            self._compare(version)
                            await self._replaced(version)
                        if self._slices.over():
                            await self._slices.next()
            except Unreadable as error:
                raise _Relist(f"an unreadable event: {error}") from error
            except ConnectionFailure as error:
                log.debug("%s: the watch was cut: %s", self.path, error)
                self._lost = True
            # A server that ends a watch before its time may be on its way out, and another one come for it.
            self._lost = self._lost or self._clock.monotonic() < due - EARLY
        if not self._listed:
            self._streams_cut += 1
            self._stream_lists = self._streams_cut < STREAMED_LIST_ATTEMPTS

    def _handle(self, frame: bytes) -> str:
        """Handles one event. Returns the version of a streamed state that is complete with it, otherwise nothing.

        Raises Unreadable, Gone or _Relist when the watch cannot go on.
        """
        kind, data = self._applier.format.event(frame)
        self.events += 1
        if kind == "ADDED" or kind == "MODIFIED":
            self._applier.upsert(data, frame)
        elif kind == "DELETED":
            self._applier.delete(data, frame)
        elif kind == "BOOKMARK":
            return self._bookmark(self._applier.format.meta(data) or Meta())
        elif kind == "ERROR":
            failure = error_from_status(data)
            raise failure if isinstance(failure, Gone) else _Relist(str(failure))
        else:
            raise _Relist(f"an event of unknown type {kind!r}")
        return ""

    def _bookmark(self, meta: Meta) -> str:
        if not self._applier.streaming:
            self._applier.advance(meta.resource_version)
        elif (meta.annotations or {}).get(INITIAL_EVENTS_END) == "true":
            self._streams_cut = 0
            return meta.resource_version
        return ""

    def _report(self, state: State, error: ClientError | None) -> None:
        changed = state is not self.state
        self.state, self.error = state, error
        if changed and self._on_state is not None:
            self._on_state(state, error)

    async def _paced(self, steps: Iterable[object]) -> None:
        """Carries the steps out, and lets other tasks run whenever the time slice is used up."""
        over = self._slices.over
        for _ in steps:
            if over():
                await self._slices.next()

    async def _breathe(self) -> None:
        if self._slices.over():
            await self._slices.next()
