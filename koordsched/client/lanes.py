"""Write lanes: which write is sent next when not all can be sent at once.

The order is lease > binding > eviction > nomination and condition > event. A write costs a future and two deque
operations, no task. Leases never wait for anything; the other lanes share an adaptive number of slots.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from random import Random

from koordsched.client.clock import Clock
from koordsched.client.errors import (
    Ambiguous,
    ApiError,
    ClientError,
    Fenced,
    LanesClosed,
    NotSent,
    QueueFull,
    TooManyRequests,
    error_from_status,
)
from koordsched.client.externalwrites import ExternalWrites
from koordsched.client.ratelimit import AdaptiveLimit, TokenBucket
from koordsched.client.transport import Request, Response, Transport
from koordsched.client.writepause import WritePause

log = logging.getLogger(__name__)


class Lane(IntEnum):
    """Kinds of writes, most urgent first."""

    LEASE = 0
    BINDING = 1
    EVICTION = 2
    STATUS = 3
    EVENT = 4


CAPACITY = {Lane.LEASE: 16, Lane.BINDING: 20_000, Lane.EVICTION: 10_000, Lane.STATUS: 20_000, Lane.EVENT: 20_000}
"""Writes that may wait in each lane."""

ATTEMPTS = {Lane.LEASE: 1, Lane.BINDING: 6, Lane.EVICTION: 6, Lane.STATUS: 4, Lane.EVENT: 3}
"""How often a write is tried that provably was not carried out. The elector times writes of its lease itself."""

CYCLE = 64
OUT_OF_TURN = {**dict.fromkeys(range(7, CYCLE, 8), Lane.EVICTION), 16: Lane.STATUS, 48: Lane.STATUS, 32: Lane.EVENT}
"""Of `CYCLE` writes, those that go to a less urgent lane if something waits there. As long as bindings wait, every
eighth write is an eviction (a preemptor has a higher priority than most pods that are bound), every 32nd a status,
every 64th an event."""

IN_DOUBT = (502, 504)
"""Statuses of a proxy or a server that ran out of time: the write may have been carried out, or still be."""

SHORTEST_WAIT = 1e-4
"""Seconds that a timer is set for at least: a rounding error must not make it fire over and over."""


@dataclass(slots=True, eq=False)
class LaneStats:
    """Counters of one lane since the start; `waiting` writes are queued and `in_flight` ones with the server now."""

    submitted: int = 0
    sent: int = 0
    succeeded: int = 0
    failed: int = 0
    ambiguous: int = 0
    retried: int = 0
    rejected: int = 0
    dropped: int = 0
    fenced: int = 0
    waiting: int = 0
    in_flight: int = 0
    latency_sum: float = 0.0


@dataclass(slots=True, eq=False, repr=False)
class _Write:
    lanes: Lanes
    lane: Lane
    request: Request
    body: Callable[[], bytes] | None
    future: asyncio.Future[Response] | None
    attempts: int = 0
    started: float = 0.0

    def done(self, outcome: Response | ClientError) -> None:
        self.lanes._finished(self, outcome)


class Lanes:
    """Queues writes by lane and hands them to the transport.

    `fence` is asked right before a write of any lane but the lease's is handed to a socket. `qps` and `burst` limit
    the rate only if given; events then have a bucket of their own, as in kube-scheduler, and leases none.
    `clock` times latencies in seconds.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        rng: Random,
        *,
        fence: Callable[[], bool] | None = None,
        qps: float | None = None,
        burst: int | None = None,
        limit: AdaptiveLimit | None = None,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._fence = fence
        self._loop = asyncio.get_running_loop()
        self._queues: dict[Lane, deque[_Write]] = {lane: deque() for lane in Lane}
        self._shared = [self._queues[lane] for lane in Lane if lane is not Lane.LEASE]
        self._buckets: dict[Lane, TokenBucket] = {}
        if qps is not None:
            now = clock.monotonic()
            writes = TokenBucket(qps, burst or max(int(qps), 1), now)
            events = TokenBucket(qps, burst or max(int(qps), 1), now)
            self._buckets = {lane: events if lane is Lane.EVENT else writes for lane in Lane if lane is not Lane.LEASE}
        self._pause = WritePause(rng)
        """Of all lanes but the lease's."""
        self._timer: asyncio.TimerHandle | None = None
        self._turn = 0
        self._closed = False
        self._idle: list[asyncio.Future[None]] = []
        self.limit = limit or AdaptiveLimit()
        self.in_flight = 0
        self.doubtful_at = float("-inf")
        """When a write, leases apart, last ended without an answer (monotonic seconds): it may still be carried out."""
        self.stats = {lane: LaneStats() for lane in Lane}
        self.external_writes = ExternalWrites(clock)
        """Writes that others were asked to make; only `quiet_for` looks at them."""

    def submit(self, lane: Lane, request: Request) -> asyncio.Future[Response]:
        """Queues a write and returns the future of its answer (status below 300).

        The future raises ApiError, NotSent, Ambiguous, Fenced, QueueFull or LanesClosed; cancelling it withdraws a
        write that still waits. Refusals (429) and NotSent are tried again, as `ATTEMPTS` says.
        """
        future: asyncio.Future[Response] = self._loop.create_future()
        stats, queue = self.stats[lane], self._queues[lane]
        stats.submitted += 1
        if self._closed:
            future.set_exception(LanesClosed(f"{request.method} {request.target}: shutting down"))
        elif len(queue) >= CAPACITY[lane]:
            stats.rejected += 1
            future.set_exception(QueueFull(f"{len(queue)} writes already wait in lane {lane.name.lower()}"))
        else:
            queue.append(_Write(self, lane, request, None, future))
            self._pump()
        return future

    def post(self, lane: Lane, request: Request, body: Callable[[], bytes] | None = None) -> None:
        """Queues a write whose outcome is not awaited. If the lane is full, its oldest write is dropped.

        `body`, if given, is called right before sending: a write that is dropped is never encoded.
        """
        stats, queue = self.stats[lane], self._queues[lane]
        stats.submitted += 1
        if self._closed:
            stats.dropped += 1
            return
        if len(queue) >= CAPACITY[lane]:
            dropped = queue.popleft()
            stats.dropped += 1
            if dropped.future is not None and not dropped.future.done():
                dropped.future.set_exception(QueueFull(f"dropped from lane {lane.name.lower()}"))
        queue.append(_Write(self, lane, request, body, None))
        self._pump()

    async def drain(self, within: float) -> bool:
        """Waits until nothing waits and nothing is in flight; False if that takes longer than `within` seconds."""
        idle = self._loop.create_future()
        self._idle.append(idle)
        self._notify_idle()
        try:
            async with asyncio.timeout(within):
                await idle
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Takes no more writes; the waiting ones end as LanesClosed. Those in flight are left to the transport."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for lane, queue in self._queues.items():
            for write in queue:
                self.stats[lane].dropped += 1
                if write.future is not None and not write.future.done():
                    write.future.set_exception(LanesClosed(f"{write.request.method} {write.request.target}"))
            queue.clear()

    def quiet_for(self, seconds: float) -> bool:
        """Whether every write, leases apart, has been answered, and none was left in doubt in the last `seconds`.

        `external_writes` included.
        """
        since = self._clock.monotonic() - seconds
        return not self.in_flight and self.doubtful_at < since and self.external_writes.quiet_since(since)

    def refresh_waiting(self) -> None:
        """Brings `waiting` in the statistics up to date; called when metrics are read."""
        for lane, queue in self._queues.items():
            self.stats[lane].waiting = len(queue)

    # --- choosing and sending ---

    def _pump(self) -> None:
        leases = self._queues[Lane.LEASE]
        now = self._clock.monotonic()
        while leases:
            self._start(leases.popleft(), now)
        wait = self._pause.until - now
        if wait > 0:
            if any(self._shared):
                self._wake_in(wait)
            return
        limit = self.limit
        while self.in_flight < limit.current:
            queue = self._next_queue()
            if queue is None:
                break
            if self._buckets and (wait := self._buckets[queue[0].lane].take(now)) > 0:
                queue = self._skip_bucket(queue[0].lane, now)
                if queue is None:
                    self._wake_in(wait)
                    break
            self._start(queue.popleft(), now)

    def _next_queue(self) -> deque[_Write] | None:
        """The lane whose turn it is by `OUT_OF_TURN`, otherwise the most urgent one, among those where writes wait."""
        self._turn = (self._turn + 1) % CYCLE
        lane = OUT_OF_TURN.get(self._turn)
        if lane is not None and self._holds(self._queues[lane]):
            return self._queues[lane]
        for queue in self._shared:
            if self._holds(queue):
                return queue
        return None

    @staticmethod
    def _holds(queue: deque[_Write]) -> bool:
        """Whether something waits there; writes withdrawn meanwhile are taken from its head."""
        while queue and (future := queue[0].future) is not None and future.done():
            queue.popleft()
        return bool(queue)

    def _skip_bucket(self, lane: Lane, now: float) -> deque[_Write] | None:
        """With the bucket of `lane` empty: the lane of the other bucket that may go instead, its token taken."""
        for other in (Lane.EVENT,) if lane is not Lane.EVENT else (Lane.BINDING, Lane.EVICTION, Lane.STATUS):
            if self._queues[other] and self._buckets[other].take(now) <= 0:
                return self._queues[other]
        return None

    def _start(self, write: _Write, now: float) -> None:
        request, lane = write.request, write.lane
        if write.body is not None:
            try:
                request.body, write.body = write.body(), None
            except (TypeError, ValueError) as error:
                # One body that cannot be encoded must not delay other writes.
                log.warning("%s %s dropped, its body cannot be encoded: %s", request.method, request.target, error)
                self.stats[lane].dropped += 1
                return
        if lane is not Lane.LEASE:
            request.fence = self._fence
            self.in_flight += 1
        stats = self.stats[lane]
        stats.in_flight += 1
        stats.sent += 1
        write.attempts += 1
        write.started = now
        try:
            self._transport.send(request, write.done)
        except ValueError as error:
            # One write that cannot be put on the wire must not keep its slot. No other try would end otherwise.
            self._loop.call_soon(write.done, ApiError(400, "BadRequest", f"{request.method}: {error}"))

    def _finished(self, write: _Write, outcome: Response | ClientError) -> None:
        now = self._clock.monotonic()
        lane = write.lane
        stats = self.stats[lane]
        stats.in_flight -= 1
        if lane is not Lane.LEASE:
            self.in_flight -= 1
        future = write.future
        if isinstance(outcome, Response) and outcome.status < 300:
            latency = now - write.started
            stats.succeeded += 1
            stats.latency_sum += latency
            if lane is not Lane.LEASE:
                self.limit.succeeded(now, latency, self.in_flight + 1 >= self.limit.current)
                self._pause.succeeded(now)
            if future is not None and not future.done():
                future.set_result(outcome)
        else:
            self._failed(write, outcome, now)
        self._pump()
        if self._idle:
            self._notify_idle()

    def _failed(self, write: _Write, outcome: Response | ClientError, now: float) -> None:
        error: ClientError
        if isinstance(outcome, Response):
            error = error_from_status(outcome.body, outcome.status, outcome.headers)
            if error.status in IN_DOUBT:
                error = Ambiguous(str(error))
        else:
            error = outcome
        stats = self.stats[write.lane]
        if isinstance(error, Fenced):
            stats.fenced += 1
        else:
            if write.lane is not Lane.LEASE and _shows_overload(write.lane, error):
                self.limit.overloaded(now)
                self._pause.overloaded(write.lane.name.lower(), error, now)
            if self._may_repeat(write, error):
                stats.retried += 1
                self._queues[write.lane].appendleft(write)
                return
            if isinstance(error, ApiError | NotSent):
                stats.failed += 1
            else:
                stats.ambiguous += 1
                if write.lane is not Lane.LEASE:
                    self.doubtful_at = now
        if write.future is not None and not write.future.done():
            write.future.set_exception(error)

    def _may_repeat(self, write: _Write, error: ClientError) -> bool:
        refused = isinstance(error, NotSent) or _throttled(write.lane, error)
        withdrawn = write.future is not None and write.future.done()
        return refused and not withdrawn and not self._closed and write.attempts < ATTEMPTS[write.lane]

    def _wake_in(self, delay: float) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(max(delay, SHORTEST_WAIT), self._woken)

    def _woken(self) -> None:
        self._timer = None
        self._pump()

    def _notify_idle(self) -> None:
        if self.in_flight or self.stats[Lane.LEASE].in_flight or any(self._queues.values()):
            return
        idle, self._idle = self._idle, []
        for waiter in idle:
            if not waiter.done():
                waiter.set_result(None)


def _throttled(lane: Lane, error: ClientError) -> bool:
    """A 429 by flow control; on an eviction it may be the verdict of a disruption budget instead."""
    if not isinstance(error, TooManyRequests):
        return False
    return lane is not Lane.EVICTION or not error.has_cause("DisruptionBudget")


def _shows_overload(lane: Lane, error: ClientError) -> bool:
    if isinstance(error, ApiError):
        return error.status == 503 or _throttled(lane, error)
    return True
