"""What time alone changes in the queue: back-offs end, and no pod stays unschedulable for ever.

No timers are started here: the owner of the queue calls `run` every second of the injected clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

from koordsched.cluster.events import BACKOFF_COMPLETE, UNSCHEDULABLE_TIMEOUT
from koordsched.queue.hints import Strategy
from koordsched.queue.inflight import InFlight
from koordsched.queue.item import P
from koordsched.queue.queues import Queues

#: Seconds between looks for pods that sat unschedulable for too long.
FLUSH_INTERVAL = 30.0
#: --pod-max-in-unschedulable-pods-duration, seconds.
MAX_UNSCHEDULABLE = 300.0


class QueueTimers(Generic[P]):
    """The flushes of one queue. `max_unschedulable`: seconds after which a pod is tried again without an event."""

    def __init__(
        self, queues: Queues[P], in_flight: InFlight[P], clock: Callable[[], float], max_unschedulable: float
    ) -> None:
        self._queues = queues
        self._in_flight = in_flight
        self._clock = clock
        self._max_unschedulable = max_unschedulable
        self._started = clock()
        self._next_flush = self._tick_after(self._started)

    def run(self) -> None:
        """Run the flushes that are due."""
        self.flush_backoff()
        now = self._clock()
        if now >= self._next_flush:
            self._next_flush = self._tick_after(now)
            self.flush_unschedulable()

    def flush_backoff(self) -> int:
        """Activate the pods whose back-off is over. Returns how many. To be called every whole second."""
        expired = self._queues.backoff.pop_expired(self._clock())
        self._queues.activate_all(expired, BACKOFF_COMPLETE)
        return len(expired)

    def flush_unschedulable(self) -> int:
        """Retry the pods that sat unschedulable for too long, asking no hints. Returns how many.

        A safety net for hints that missed something. Gated pods stay.
        """
        overdue = self._queues.unschedulable.overdue(self._clock(), self._max_unschedulable)
        if overdue:
            for queued in overdue:
                queued.flushed = True
            self._queues.move(dict.fromkeys(overdue, Strategy.AFTER_BACKOFF), UNSCHEDULABLE_TIMEOUT.label)
            self._in_flight.record(UNSCHEDULABLE_TIMEOUT, None, None)
        return len(overdue)

    def next_deadline(self) -> float | None:
        """When `run` will next have something to do; None if nothing waits for time to pass."""
        deadlines = []
        release = self._queues.backoff.next_release
        if release is not None:
            deadlines.append(release)
        oldest = self._queues.unschedulable.oldest_timestamp
        if oldest is not None:
            deadlines.append(max(self._next_flush, self._tick_after(oldest + self._max_unschedulable)))
        return min(deadlines, default=None)

    def _tick_after(self, time: float) -> float:
        """The first look for overdue pods strictly after a time."""
        return self._started + ((time - self._started) // FLUSH_INTERVAL + 1) * FLUSH_INTERVAL
