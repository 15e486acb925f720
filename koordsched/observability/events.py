"""Events about pods: recorded at once, written when there is room, never waited for.

`EventBroadcaster` writes what recorders (`eventrecorder`) noted through a sink, a bounded number at a time; equal
events become a series (core spec 5.2; client-go `tools/events/event_broadcaster.go`): the first is created, the second
turns it into a series of 2, further ones are counted in memory and written when the series ends or is half an hour old.
Repetitions of an event that still waits to be written cost no write.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from random import Random

from koordsched.framework.handle import Clock
from koordsched.observability.eventrecorder import EventRecorder
from koordsched.observability.eventsink import LaneEventSink
from koordsched.observability.eventwire import (
    EventKey,
    TimeFormat,
    encode_event,
    encode_series_patch,
    event_name,
    event_namespace,
    nanoseconds,
    reporting_instance,
)
from koordsched.observability.lossreport import LossReport

_log = logging.getLogger(__name__)

FINISH_AFTER = 360.0
"""Seconds after its last event that a series is over."""
REFRESH_AFTER = 1800.0
"""Seconds after which the count of a series that goes on is written."""
HOUSEKEEPING_INTERVAL = 30.0
"""Seconds between two looks for such series."""

MAX_TRIES = 12
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 10.0
_HANDED_OVER_AT_ONCE = 64
_AT_LEISURE = 8
"""Events handed to the sink at a time while there is no hurry: an API server busy with Events tells kubelets later."""
_LATE = 10.0
"""Seconds after which a waiting event is urgent: until it is written, `kubectl describe pod` does not show it."""


@dataclass(slots=True, eq=False, repr=False)
class _Event:
    """An event that was recorded, and how far it got."""

    key: EventKey
    instance: str
    name: str
    note: str
    #: Wall time of the first and of the latest occurrence, nanoseconds.
    time_ns: int
    last_ns: int
    #: Monotonic time of the latest occurrence, of the latest write, and when it came to wait for the next, seconds.
    last_seen: float
    written_at: float
    queued_at: float
    count: int = 1
    #: The count that the API server has; 0 before it has the event.
    written: int = 0
    exists: bool = False
    #: Waiting to be written, or being written.
    queued: bool = False
    tries: int = 0


@dataclass(eq=False, repr=False)
class EventBroadcaster:
    """Writes what its recorders record.

    `capacity` bounds the events that wait (about 1 KB each): further ones are dropped and counted. `max_in_flight`
    bounds those handed to the sink at a time when half of that is reached, the first has waited for long or the end is
    near, `max_series` the events remembered to recognise repetitions. Before `run`, and when the API server does not
    answer, events just wait.

    `sent`, `coalesced` (events that cost no write because they repeat another) and `dropped` by reason are for metrics.
    """

    sink: LaneEventSink
    clock: Clock
    rng: Random
    _: KW_ONLY
    hostname: str
    capacity: int = 20000
    max_in_flight: int = 64
    max_series: int = 10000

    def __post_init__(self) -> None:
        self._waiting: deque[_Event] = deque()
        self._in_flight = 0
        # In order of the latest occurrence.
        self._series: OrderedDict[EventKey, _Event] = OrderedDict()
        self._last_ns = 0
        self._times = TimeFormat()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pump_due = False
        self._pause = 0.0
        self._resume_at = 0.0
        self._drained: asyncio.Event | None = None
        self.sent = 0
        self.coalesced = 0
        self.dropped: dict[str, int] = {"full": 0, "rejected": 0, "unreachable": 0}
        self._losses = LossReport(_log, "events", self.clock.monotonic)

    @property
    def pending(self) -> int:
        """Events that wait or are being written."""
        return len(self._waiting) + self._in_flight

    def recorder(self, controller: str) -> EventRecorder:
        """A recorder for the events of this profile."""
        return EventRecorder(self, controller, reporting_instance(controller, self.hostname))

    def record(self, key: EventKey, instance: str, note: str, *, once: bool = False) -> None:
        """Notes an event. `once`: it cannot repeat, so it is not remembered as the start of a series."""
        now = self.clock.monotonic()
        time_ns = self._unique_time()
        event = None if once else self._series.get(key)
        if event is None:
            if len(self._waiting) >= self.capacity:
                self._drop(key, "full", "too many wait")
                return
            event = _Event(
                key, instance, event_name(key.regarding.name, time_ns), note, time_ns, time_ns, now, now, now
            )
            if not once:
                self._remember(key, event)
            self._enqueue(event)
            return
        event.count += 1
        event.last_ns = time_ns
        event.last_seen = now
        self._series.move_to_end(key)
        if event.count == 2 and not event.queued:
            self._enqueue(event)
        else:
            self.coalesced += 1

    async def run(self) -> None:
        """Writes events until cancelled; what waits then goes on waiting."""
        self._loop = asyncio.get_running_loop()
        self._pump_due = False
        try:
            self._schedule_pump()
            while True:
                await asyncio.sleep(HOUSEKEEPING_INTERVAL)
                self.keep_house()
        finally:
            self._loop = None

    async def drain(self, seconds: float) -> int:
        """While `run` runs: waits until everything is written, or for this long. Returns what is still pending."""
        self._drained = asyncio.Event()
        self._schedule_pump()
        if self.pending:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._drained.wait()
        return self.pending

    def keep_house(self) -> None:
        """Writes the counts of series that ended or are due to be refreshed, and forgets what ended."""
        self._losses.tick()
        now = self.clock.monotonic()
        while self._series:
            key, event = next(iter(self._series.items()))
            if now - event.last_seen <= FINISH_AFTER:
                break
            del self._series[key]
            self._finish(event)
        for event in self._series.values():
            if event.count > max(event.written, 1) and now - event.written_at >= REFRESH_AFTER and not event.queued:
                self._enqueue(event)

    def _remember(self, key: EventKey, event: _Event) -> None:
        if len(self._series) >= self.max_series:
            _, oldest = self._series.popitem(last=False)
            self._finish(oldest)
        self._series[key] = event

    def _finish(self, event: _Event) -> None:
        if event.count > event.written and event.exists and not event.queued:
            self._enqueue(event)

    def _unique_time(self) -> int:
        """Wall time in nanoseconds, never the same twice: event names contain it."""
        self._last_ns = time_ns = max(nanoseconds(self.clock.wall()), self._last_ns + 1)
        return time_ns

    # --- writing ---------------------------------------------------------------------------------

    def _enqueue(self, event: _Event) -> None:
        event.queued = True
        event.queued_at = self.clock.monotonic()
        self._waiting.append(event)
        self._schedule_pump()

    def _schedule_pump(self) -> None:
        if self._pump_due or self._loop is None or not self._waiting or self._in_flight >= self._wanted_in_flight:
            return
        self._pump_due = True
        if self._paused:
            self._loop.call_later(self._resume_at - self.clock.monotonic(), self._pump)
        else:
            self._loop.call_soon(self._pump)

    @property
    def _wanted_in_flight(self) -> int:
        in_haste = (
            self._drained is not None
            or 2 * len(self._waiting) >= self.capacity
            or (self._waiting and self.clock.monotonic() - self._waiting[0].queued_at >= _LATE)
        )
        return self.max_in_flight if in_haste else min(_AT_LEISURE, self.max_in_flight)

    @property
    def _paused(self) -> bool:
        return self._pause > 0 and self._resume_at > self.clock.monotonic()

    def _pump(self) -> None:
        self._pump_due = False
        if self._loop is None:
            return
        for _ in range(_HANDED_OVER_AT_ONCE):
            if not self._waiting or self._in_flight >= self._wanted_in_flight or self._paused:
                break
            self._write(self._waiting.popleft())
        self._schedule_pump()

    def _write(self, event: _Event) -> None:
        count = event.count
        patching = event.exists
        namespace = event_namespace(event.key.regarding)
        last_time = self._times.micro(event.last_ns)
        self._in_flight += 1

        def on_result(status: int) -> None:
            self._written(event, status, count, patching)

        if patching:
            self.sink.patch(namespace, event.name, encode_series_patch(count, last_time), on_result)
            return
        body = encode_event(
            name=event.name,
            key=event.key,
            instance=event.instance,
            note=event.note,
            time=self._times.micro(event.time_ns),
            count=count,
            last_time=last_time,
        )
        self.sink.create(namespace, body, on_result)

    def _written(self, event: _Event, status: int, count: int, patching: bool) -> None:
        self._in_flight -= 1
        event.queued = False
        event.tries += 1
        if 200 <= status < 300:
            self._succeeded(event, count)
        elif status == 409 and not patching:
            # An earlier try got through although its answer did not.
            self._succeeded(event, 1)
        elif status == 404 and patching:
            # Events are deleted after an hour: start again, with the whole series.
            event.exists = False
            self._retry(event, "rejected", status)
        elif status == 0 or status == 429 or status >= 500:
            self._pause = min(max(self._pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE)
            self._resume_at = self.clock.monotonic() + self._pause * self.rng.uniform(1.0, 1.25)
            self._retry(event, "unreachable", status)
        else:
            self._give_up(event, "rejected", status)
        self._schedule_pump()
        if self._drained is not None and not self.pending:
            self._drained.set()

    def _succeeded(self, event: _Event, count: int) -> None:
        self.sent += 1
        self._pause = 0.0
        event.exists = True
        event.tries = 0
        event.written = count
        event.written_at = self.clock.monotonic()
        # Occurrences that came while it was being written can wait, unless it was the second or they would never be
        # written because the series ended.
        if event.count > count and (count < 2 or self._series.get(event.key) is not event):
            self._enqueue(event)

    def _retry(self, event: _Event, reason: str, status: int) -> None:
        if event.tries >= MAX_TRIES:
            self._give_up(event, reason, status)
        elif len(self._waiting) >= self.capacity:
            self._give_up(event, "full", status)
        else:
            self._enqueue(event)

    def _give_up(self, event: _Event, reason: str, status: int) -> None:
        self._drop(event.key, reason, f"status {status}" if status else "no answer")
        if self._series.get(event.key) is event:
            del self._series[event.key]

    def _drop(self, key: EventKey, reason: str, why: str) -> None:
        self.dropped[reason] += 1
        regarding = key.regarding
        self._losses.lost(f"{reason}: {why}", f"{key.reason} about {regarding.namespace}/{regarding.name}".rstrip("/"))
